"""Lengths in tokens: which lengths a kind of task uses, and which values fit together."""

import dataclasses
from collections.abc import Container, Mapping
from typing import Any

from absl import logging

from albert_tf.errors import require
from albert_tf.kinds import text_data
from albert_tf.kinds.base import Kind
from albert_tf.records import features
from albert_tf.train_config import FinetuneConfig, Lengths

# The special tokens and one token per text.
MIN_SEQ_LENGTH = features.NUM_SPECIAL_TOKENS + 2


def select(lengths: Lengths, kind: Kind | None) -> dict[str, int | str]:
    """Returns {field: value} of the lengths that a kind, or a model without a task, uses."""
    fields = kind.data.lengths if kind else ()
    return {name: getattr(lengths, name) for name in ("max_seq_length", *fields)}


def follow(config: FinetuneConfig, kind: Kind | None, named: Container[str]) -> FinetuneConfig:
    """Returns the config with lengths that suit `max_seq_length`; keeps those in `named`.

    A question, or a question with an option, gets at most a third of it, and the next window begins
    in the first half of the rest: the published values for 384 and 512 stay. Raises `UserError` if
    windows would not overlap.
    """
    for name in ("max_qa_length", "max_query_length", "doc_stride"):
        if name not in select(config, kind) or name in named:
            continue
        is_stride, total = name == "doc_stride", config.max_seq_length
        most = max(1, kind.data.text_capacity(config) // 2 if kind and is_stride else total // 3)
        if (length := getattr(config, name)) > most:
            logging.info(f"{name} is {most} instead of {length}, because max_seq_length={total}.")
            change: dict[str, Any] = {name: most}
            config = dataclasses.replace(config, **change)
    if kind and "doc_stride" in kind.data.lengths:
        most = max(1, kind.data.text_capacity(config) - 1)
        require(
            config.doc_stride <= most,
            f"doc_stride={config.doc_stride}: windows of max_seq_length={config.max_seq_length} "
            f"would not overlap. Use at most {most}, or better half of it.",
        )
    return config


def check(lengths: Lengths, kind: Kind | None) -> None:
    """Raises `UserError` if a length of `select` is too small or leaves no room for a text."""
    for name, length in select(lengths, kind).items():
        if isinstance(length, str):
            continue
        least = MIN_SEQ_LENGTH if name == "max_seq_length" else 1
        require(length >= least, f"{name} must be at least {least}, not {length}.")
    if kind and kind.data.crowded_text:
        name = kind.data.lengths[-1]
        length, total = getattr(lengths, name), lengths.max_seq_length
        require(
            length + features.NUM_SPECIAL_TOKENS < total,
            f"{name}={length} leaves no room for the {kind.data.crowded_text} in "
            f"max_seq_length={total}: use a smaller one.",
        )


# {name of a count: (the length that truncates, what is truncated)}
CUTS = {
    "truncated": ("max_seq_length", "are truncated"),
    "truncated_endings": ("max_qa_length", "lose the beginning of a question or an option"),
    "truncated_questions": ("max_query_length", "lose the end of the question"),
}


def warn_of_losses(counts: Mapping[str, int], total: int, config: FinetuneConfig) -> None:
    """Warns about the inputs, of `total`, that are too long for the model or unreadable."""
    text_data.warn_of_unreadable(counts, total)
    for name, (length, cut) in CUTS.items():
        if number := counts.get(name):
            size, most = getattr(config, length), config.albert.max_position_embeddings
            remedies = ["split them"] if length == "max_seq_length" else []
            if length != "max_seq_length" or size < most:
                remedies.append(
                    f"use more tokens (bin/export_saved_model --set {length}=N, or "
                    f"load(..., {length}=N); the model has {most} positions)"
                )
            remedy = " or ".join(remedies)
            logging.warning(
                f"{number:,} of {total:,} inputs {cut}: {length} is {size} tokens. "
                f"{remedy[0].upper()}{remedy[1:]}."
            )


def make_buckets(max_seq_length: int, *, few: bool = False) -> list[int]:
    """Returns the ascending lengths to which batches of shorter sequences are padded.

    A step is compiled for each length, so compilers of whole steps use `few`: 32, 64, then
    multiples of 128. Otherwise padding is at most 7 tokens, or a fifth.
    """
    if few:
        buckets = [32, 64, *range(128, max_seq_length, 128)]
    else:
        buckets = [8]
        while buckets[-1] < max_seq_length:
            buckets.append(buckets[-1] + max(8, 2 ** (buckets[-1].bit_length() - 3)))
    return [*(length for length in buckets if length < max_seq_length), max_seq_length]
