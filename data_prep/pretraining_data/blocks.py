"""Deals the documents of a corpus out to blocks: the unit of work, and what one shard holds."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from albert_tf.errors import UserError
from data_prep.pretraining_data import documents

SPLITS = ("train", "eval")


class Block(NamedTuple):
    """Documents that become one shard, or one shard for each pass over them.

    Attributes:
        split: `train` or `eval`.
        number: from 0, within the split.
        texts: documents, one sentence a line.
        num_bytes: read from the input files since the block before.
    """

    split: str
    number: int
    texts: list[str]
    num_bytes: int


def read_blocks(
    paths: Sequence[str],
    *,
    block_bytes: int,
    eval_fraction: float,
    language: str | None,
    needs_two_documents: bool,
) -> Iterator[Block]:
    """Yields blocks of about `block_bytes` of text, each of at least two documents where it can.

    The end of a split that would be a single document joins the block before. Documents are cut
    at half a block, and all parts of one fall into the same split.

    Args:
        paths: input files.
        block_bytes: of UTF-8 text.
        eval_fraction: of the documents; which they are depends on their text alone (of one that is
            cut, on its first part).
        language: whose rules split lines into sentences; None takes a line for a sentence.
        needs_two_documents: refuse a split of a single document.

    Raises:
        UserError: bad input, or not enough documents.
    """
    gathered: dict[str, list[str]] = {split: [] for split in SPLITS}
    held: dict[str, list[str]] = {split: [] for split in SPLITS}
    sizes = dict.fromkeys(SPLITS, 0)
    counts = dict.fromkeys(SPLITS, 0)
    progress: list[int] = []

    def release(split: str) -> Iterator[Block]:
        if held[split]:
            yield Block(split, counts[split], held[split], sum(progress))
            progress.clear()
            counts[split] += 1
        held[split], gathered[split], sizes[split] = gathered[split], [], 0

    for path in paths:
        for lines, is_first in documents.read_parts(
            path, max_bytes=block_bytes // 2, on_progress=progress.append
        ):
            content = "\n".join(lines).encode()
            if is_first:
                split = _split(content, eval_fraction)
            if language:
                lines = documents.split_sentences(lines, language)
            gathered[split].append("\n".join(lines))
            sizes[split] += len(content)
            if sizes[split] >= block_bytes and len(gathered[split]) > 1:
                yield from release(split)
    _check(gathered, held, eval_fraction, needs_two_documents)
    for split in SPLITS:
        if len(gathered[split]) == 1:
            held[split] += gathered[split]
            gathered[split] = []
        yield from release(split)
        yield from release(split)


def _split(content: bytes, eval_fraction: float) -> str:
    digest = hashlib.blake2b(content, digest_size=8).digest()
    return "eval" if int.from_bytes(digest, "big") < eval_fraction * 2**64 else "train"


def _check(
    gathered: dict[str, list[str]],
    held: dict[str, list[str]],
    eval_fraction: float,
    needs_two_documents: bool,
) -> None:
    for split in SPLITS:
        count = len(gathered[split]) + len(held[split])
        if count == 0 and (split == "train" or eval_fraction):
            remedy = {
                "train": "a smaller --eval_fraction",
                "eval": "a larger --eval_fraction, or 0",
            }
            raise UserError(
                f"no document fell into the {split} split with --eval_fraction={eval_fraction}. "
                f"Give more documents (a blank line ends one) or {remedy[split]}."
            )
        if count == 1 and needs_two_documents:
            raise UserError(
                f"the {split} split has a single document, and random segments come from another. "
                "Give more documents (a blank line ends one), or take --sentence_task=sop "
                "with --one_segment=split."
            )
