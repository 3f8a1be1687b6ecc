"""Divides the documents of a source into blocks, the units of work."""

import hashlib
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

from albert_tf.data_prep.corpus import documents
from albert_tf.data_prep.corpus.documents import TableReader
from albert_tf.data_prep.corpus.sources import Source
from albert_tf.data_prep.pretraining_data.data_config import DataConfig
from albert_tf.errors import UserError

SPLITS = ("train", "eval")


class Block(NamedTuple):
    """The documents of one shard, or of one shard per pass over them: the unit of work.

    Attributes:
        number: counts from 0 within a split of the source.
        texts: documents, one sentence per line.
        num_bytes: bytes of the input files read since the previous block.
        files: for each document, the number of its file within the source, ascending.
    """

    split: str
    source: int
    number: int
    texts: list[str]
    num_bytes: int = 0
    files: Sequence[int] = ()

    @property
    def name(self) -> str:
        return f"{self.split}-{self.source:05d}-{self.number:03d}"


def read_blocks(
    number: int,
    source: Source,
    config: DataConfig,
    left_out: Container[int] = (),
    *,
    is_corpus: bool = False,
    read_table: TableReader | None = None,
) -> Iterator[Block]:
    """Yields blocks of about `config.shard_megabytes`, with at least two documents if possible.

    A single last document of a split joins the previous block. Documents are split at half a block.
    All parts of a document belong to the same split, which depends only on the text of the first
    part.

    Args:
        left_out: the numbers of documents to leave out.
        is_corpus: whether this is the whole corpus, which must have text for each split.
        read_table: as in `documents.read`.

    Raises `UserError` for bad input, or not enough documents.
    """
    total: Counter[str] = Counter()
    unclaimed: Counter[str] = Counter()  # bytes since the last block
    last = None
    stream = _read_source(source, config, left_out, unclaimed, read_table)
    for block in _cut_blocks(number, stream, config):
        total[block.split] += len(block.texts)
        if last:
            yield last
        last = block._replace(num_bytes=unclaimed.pop("num_bytes", 0))
    # Before the last block: problems of a small corpus show before anything is written.
    if is_corpus:
        for split in SPLITS:
            check_count(split, total[split], config)
    if last:
        yield last._replace(num_bytes=last.num_bytes + unclaimed.pop("num_bytes", 0))


def _cut_blocks(
    number: int, stream: Iterator[tuple[str, int, str, int]], config: DataConfig
) -> Iterator[Block]:
    """Yields the blocks of the documents from `_read_source`."""
    block_bytes = int(config.shard_megabytes * 1e6)
    gathered: dict[str, list[tuple[str, int]]] = {split: [] for split in SPLITS}
    pending: dict[str, list[tuple[str, int]]] = {split: [] for split in SPLITS}
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()

    def release(split: str) -> Iterator[Block]:
        if pending[split]:
            texts, numbers = zip(*pending[split], strict=True)
            yield Block(split, number, counts[split], [*texts], files=numbers)
            counts[split] += 1
        pending[split], gathered[split], sizes[split] = gathered[split], [], 0

    for text, file, split, size in stream:
        gathered[split].append((text, file))
        sizes[split] += size
        if sizes[split] >= block_bytes and len(gathered[split]) > 1:
            yield from release(split)
    for split in SPLITS:
        if len(gathered[split]) == 1:
            pending[split] += gathered[split]
            gathered[split] = []
        yield from release(split)
        yield from release(split)


def _read_source(
    source: Source,
    config: DataConfig,
    left_out: Container[int],
    unclaimed: Counter[str],
    read_table: TableReader | None,
) -> Iterator[tuple[str, int, str, int]]:
    """Yields (text, file, split, bytes) of documents or parts; adds bytes to `unclaimed`."""
    number, skips = -1, False
    for file, place in enumerate(source):
        parts = documents.read(
            place,
            max_bytes=int(config.shard_megabytes * 1e6) // 2,
            on_progress=lambda num_bytes: unclaimed.update(num_bytes=num_bytes),
            text_field=config.text_field,
            read_table=read_table,
        )
        for lines, is_first in parts:
            content = "\n".join(lines).encode()
            if is_first:
                number += 1
                skips = number in left_out
                split = _choose_split(content, config.eval_fraction)
            if skips:
                continue
            if config.split_sentences:
                lines = documents.split_sentences(lines, config.language)
            yield "\n".join(lines), file, split, len(content)


def _choose_split(content: bytes, eval_fraction: float) -> str:
    digest = hashlib.blake2b(content, digest_size=8).digest()
    return "eval" if int.from_bytes(digest, "big") < eval_fraction * 2**64 else "train"


def check_count(split: str, count: int, config: DataConfig) -> None:
    """Raises `UserError` if a corpus has too few documents in a split."""
    if count == 0 and (config.eval_fraction < 1 if split == "train" else config.eval_fraction):
        remedy = "smaller --eval_fraction" if split == "train" else "larger --eval_fraction, or 0"
        raise UserError(
            f"no document fell into the {split} split with --eval_fraction={config.eval_fraction}. "
            f"Add documents (a blank line ends one) or use a {remedy}."
        )
    if count == 1 and config.needs_two_documents:
        raise UserError(
            f"the {split} split has a single document, but random segments need another one. "
            "Add documents (a blank line ends one), or use --sentence_task=sop "
            "with --one_segment=split."
        )
