"""Gathers the documents of a corpus into blocks, the units of work: one block makes one shard."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from albert_tf.errors import UserError
from data_prep.pretraining_data import documents

SPLITS = ("train", "eval")


class Block(NamedTuple):
    """Documents of one shard, or of one shard for each pass over them.

    Attributes:
        split: `train` or `eval`.
        number: from 0, within the split.
        texts: documents, one sentence a line.
        num_bytes: bytes of the input files read since the previous block.
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
    """Yields blocks of about `block_bytes` of text, of at least two documents where possible.

    A last single document of a split joins the previous block. Documents are split at half a
    block, and all parts of a document belong to the same split.

    Args:
        paths: input files.
        block_bytes: bytes of UTF-8 text.
        eval_fraction: share of the held-out documents; the choice depends only on the text (of a
            split document, on its first part).
        language: language whose rules split lines into sentences; None: a line is a sentence.
        needs_two_documents: whether a split with a single document is an error.

    Raises:
        UserError: bad input, or not enough documents.
    """
    gathered: dict[str, list[str]] = {split: [] for split in SPLITS}
    pending: dict[str, list[str]] = {split: [] for split in SPLITS}
    sizes = dict.fromkeys(SPLITS, 0)
    counts = dict.fromkeys(SPLITS, 0)
    progress: list[int] = []

    def release(split: str) -> Iterator[Block]:
        if pending[split]:
            yield Block(split, counts[split], pending[split], sum(progress))
            progress.clear()
            counts[split] += 1
        pending[split], gathered[split], sizes[split] = gathered[split], [], 0

    for path in paths:
        for lines, is_first in documents.read_parts(
            path, max_bytes=block_bytes // 2, on_progress=progress.append
        ):
            content = "\n".join(lines).encode()
            if is_first:
                split = _choose_split(content, eval_fraction)
            if language:
                lines = documents.split_sentences(lines, language)
            gathered[split].append("\n".join(lines))
            sizes[split] += len(content)
            if sizes[split] >= block_bytes and len(gathered[split]) > 1:
                yield from release(split)
    _check_counts(gathered, pending, eval_fraction, needs_two_documents)
    for split in SPLITS:
        if len(gathered[split]) == 1:
            pending[split] += gathered[split]
            gathered[split] = []
        yield from release(split)
        yield from release(split)


def _choose_split(content: bytes, eval_fraction: float) -> str:
    digest = hashlib.blake2b(content, digest_size=8).digest()
    return "eval" if int.from_bytes(digest, "big") < eval_fraction * 2**64 else "train"


def _check_counts(
    gathered: dict[str, list[str]],
    pending: dict[str, list[str]],
    eval_fraction: float,
    needs_two_documents: bool,
) -> None:
    for split in SPLITS:
        count = len(gathered[split]) + len(pending[split])
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
