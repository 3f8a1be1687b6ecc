"""Writes shards of records from blocks of text: encodes, pairs, masks and serializes."""

import dataclasses
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from albert_tf import train_config
from albert_tf.errors import UserError
from albert_tf.records import token_lengths
from albert_tf.tokenizers import tokenization
from albert_tf.tokenizers.tokenization import Tokenizer
from data_prep.pretraining_data import blocks, masking, record_writer, segments, statistics
from data_prep.pretraining_data.blocks import Block
from data_prep.pretraining_data.segments import Encoded

_BATCH = 256  # sentences to encode, or records to serialise, at once


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Settings of pre-training records. Defaults are the published ones.

    Attributes:
        max_seq_length: tokens of an example, S
        max_predictions_per_seq: masked tokens of an example, P; 20 caps masked_lm_prob at S = 512
        masked_lm_prob: share of the tokens to mask
        ngram: longest n-gram of words to mask
        short_seq_prob: share of documents cut into shorter examples
        dupe_factor: passes over the text, each with other pairs and masks
        sentence_task: sop, nsp or none
        one_segment: chunks of one sentence: split, skip or random (see `segments.make_pairs`)
        split_sentences: lines are paragraphs: split them into sentences
        language: language whose rules --split_sentences uses
        eval_fraction: share of the documents to hold out
        seed: seed of every random choice; which documents are held out does not depend on it
        gzip: compress the records
        shard_megabytes: megabytes of text in a shard
    """

    max_seq_length: int = 512
    max_predictions_per_seq: int = 20
    masked_lm_prob: float = 0.15
    ngram: int = 3
    short_seq_prob: float = 0.1
    dupe_factor: int = 40
    sentence_task: str = "sop"
    one_segment: str = "split"
    split_sentences: bool = False
    language: str = "en"
    eval_fraction: float = 0.0
    seed: int = 12345
    gzip: bool = False
    shard_megabytes: float = 16.0

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if (choice := getattr(self, name)) not in choices:
                raise UserError(f"{name}: {choice!r} is not one of {', '.join(choices)}.")
        for name, lowest in _LOWEST.items():
            if getattr(self, name) < lowest:
                raise UserError(f"{name} must be at least {lowest}.")
        for name in ("masked_lm_prob", "short_seq_prob", "eval_fraction"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"{name} must be in [0, 1).")
        if self.max_predictions_per_seq > self.max_seq_length:
            raise UserError(
                f"max_predictions_per_seq {self.max_predictions_per_seq} is more than "
                f"max_seq_length {self.max_seq_length}."
            )
        if self.sentence_task == "none" and self.one_segment == "random":
            raise UserError("one_segment=random needs sentence_task sop or nsp, which have labels.")

    @property
    def needs_two_documents(self) -> bool:
        return self.sentence_task == "nsp" or self.one_segment == "random"

    @property
    def uncapped_predictions(self) -> int:
        return round(self.max_seq_length * self.masked_lm_prob)

    @property
    def predictions_are_capped(self) -> bool:
        return self.max_predictions_per_seq < self.uncapped_predictions


_CHOICES = {"sentence_task": train_config.SENTENCE_TASKS, "one_segment": segments.ONE_SEGMENT}
_LOWEST = {
    "max_seq_length": 8,
    "max_predictions_per_seq": 1,
    "ngram": 1,
    "dupe_factor": 1,
    "seed": 0,
    "shard_megabytes": 0.001,
}


class Job(NamedTuple):
    """A block and the names of its shards: {pass: name}."""

    block: Block
    shards: dict[int, str]


def count_passes(config: DataConfig, split: str) -> int:
    return config.dupe_factor if split == "train" else 1


def make_shard_writer(
    config: DataConfig, vocabulary: str, output_dir: str
) -> Callable[[Job], Iterator[tuple[str, dict[str, int], float]]]:
    """Returns `write_shards(job)`, which yields (name, statistics, bytes of input) of each shard.

    It raises UserError for a block with too few documents for the config.
    """
    tokenizer = tokenization.load(vocabulary)

    def write_shards(job: Job) -> Iterator[tuple[str, dict[str, int], float]]:
        block = job.block
        encoded, text_counts = encode_documents(block.texts, tokenizer)
        # A document without a known piece is dropped only here.
        if config.needs_two_documents and len(encoded) == 1:
            raise UserError(
                f"block {block.number} of the {block.split} split has text in one document alone, "
                f"and random segments come from another: remove {output_dir} and take a larger "
                "--shard_megabytes, or --sentence_task=sop with --one_segment=split."
            )
        for dupe, name in job.shards.items():
            key = [config.seed, blocks.SPLITS.index(block.split), block.number, dupe]
            counts = Counter({"examples": 0, **(text_counts if dupe == 0 else {})})
            examples = _make_examples(
                encoded, tokenizer, np.random.default_rng(key), config, counts
            )
            record_writer.write(os.path.join(output_dir, name), examples)
            yield name, dict(counts), block.num_bytes / count_passes(config, block.split)

    return write_shards


def encode_documents(
    texts: Sequence[str], tokenizer: Tokenizer
) -> tuple[list[Encoded], Counter[str]]:
    """Encodes documents of one sentence a line; drops sentences and documents without a piece."""
    sentences = [text.split("\n") for text in texts]
    flat = list(itertools.chain.from_iterable(sentences))
    ids: list[np.ndarray] = []
    lengths: list[int] = []
    # Python integers would take ten times the memory.
    for i in range(0, len(flat), _BATCH):
        batch = tokenizer.encode_batch(flat[i : i + _BATCH])
        lengths += map(len, batch)
        ids.append(np.fromiter(itertools.chain.from_iterable(batch), np.int32))
    all_ids = np.concatenate(ids)
    encoded, first, begin = [], 0, 0
    for document in sentences:
        last = first + len(document)
        bounds = [0, *itertools.accumulate(n for n in lengths[first:last] if n)]
        if len(bounds) > 1:
            encoded.append(Encoded(all_ids[begin : begin + bounds[-1]], bounds))
        first, begin = last, begin + bounds[-1]
    counts = Counter(
        documents=len(encoded),
        sentences=sum(len(document.bounds) - 1 for document in encoded),
        text_tokens=len(all_ids),
        unknown=int(np.count_nonzero(all_ids == tokenizer.unk_id)),
    )
    return encoded, counts


def _make_examples(
    encoded: Sequence[Encoded],
    tokenizer: Tokenizer,
    rng: np.random.Generator,
    config: DataConfig,
    counts: Counter[str],
) -> Iterator[bytes]:
    """Yields the examples of one pass in random order; adds to `counts`."""
    pairs = _make_pairs(encoded, tokenizer, rng, config, counts)
    order = rng.permutation(len(pairs))
    for i in range(0, len(pairs), _BATCH):
        instances = _mask_pairs([pairs[j] for j in order[i : i + _BATCH]], tokenizer, rng, config)
        counts.update(statistics.count_instances(instances, tokenizer))
        yield from record_writer.serialize(
            record_writer.make_batch(
                instances, config.max_seq_length, config.max_predictions_per_seq
            )
        )


def _make_pairs(
    encoded: Sequence[Encoded],
    tokenizer: Tokenizer,
    rng: np.random.Generator,
    config: DataConfig,
    counts: Counter[str],
) -> list[segments.Pair]:
    max_num_tokens = config.max_seq_length - token_lengths.NUM_SPECIAL_TOKENS
    pairs = []
    for index in range(len(encoded)):
        for pair in segments.make_pairs(
            encoded,
            index,
            rng,
            is_word_start=tokenizer.is_word_start,
            max_num_tokens=max_num_tokens,
            short_seq_prob=config.short_seq_prob,
            sentence_task=config.sentence_task,
            one_segment=config.one_segment,
        ):
            pairs.append(segments.truncate_pair(pair, max_num_tokens, rng))
            counts["truncated"] += segments.count_tokens(pair) - segments.count_tokens(pairs[-1])
    return pairs


def _mask_pairs(
    pairs: Sequence[segments.Pair],
    tokenizer: Tokenizer,
    rng: np.random.Generator,
    config: DataConfig,
) -> list[record_writer.Instance]:
    masked = masking.mask(
        [record_writer.make_sequence(pair, tokenizer) for pair in pairs],
        tokenizer,
        rng,
        masked_lm_prob=config.masked_lm_prob,
        max_predictions_per_seq=config.max_predictions_per_seq,
        ngram=config.ngram,
    )
    return [
        record_writer.Instance(sequence, len(pair.first) + 2, pair.label)
        for sequence, pair in zip(masked, pairs, strict=True)
    ]
