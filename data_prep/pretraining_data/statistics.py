"""Statistics of pre-training records: counts of each shard, and their summary."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.tokenizers.tokenization import Tokenizer
from data_prep.pretraining_data import blocks
from data_prep.pretraining_data.record_writer import Instance


def count_instances(instances: Sequence[Instance], tokenizer: Tokenizer) -> Counter[str]:
    """Returns counts of examples, tokens, predictions and their replacements."""
    labels = np.concatenate([i.masked.labels for i in instances])
    inputs = np.concatenate([i.masked.ids[i.masked.positions] for i in instances])
    masked = int(np.count_nonzero(inputs == tokenizer.mask_id))
    kept = int(np.count_nonzero(inputs == labels))
    return Counter(
        examples=len(instances),
        tokens=sum(len(i.masked.ids) for i in instances),
        predictions=len(labels),
        masked=masked,
        kept=kept,
        replaced=len(labels) - masked - kept,
        label_1=sum(i.label for i in instances),
    )


def summarize(
    shards: Mapping[str, Mapping[str, int]], *, predictions_are_capped: bool
) -> dict[str, Any]:
    """Returns the statistics of each split. Text counts once, whatever the number of passes."""
    summary: dict[str, Any] = {"predictions_are_capped": predictions_are_capped}
    for split in blocks.SPLITS:
        if chosen := {name: s for name, s in shards.items() if name.startswith(split)}:
            summary[split] = _summarize_split(chosen)
    return summary


def _summarize_split(shards: Mapping[str, Mapping[str, int]]) -> dict[str, float]:
    total: Counter[str] = Counter()
    for shard in shards.values():
        total.update(shard)
    return {
        "documents": total["documents"],
        "sentences": total["sentences"],
        "tokens": total["text_tokens"],
        "unknown_rate": _divide(total["unknown"], total["text_tokens"]),
        "examples": total["examples"],
        "mean_length": _divide(total["tokens"], total["examples"]),
        "truncated_rate": _divide(total["truncated"], total["tokens"] + total["truncated"]),
        "mask_rate": _divide(total["predictions"], total["tokens"]),
        "masked_share": _divide(total["masked"], total["predictions"]),
        "kept_share": _divide(total["kept"], total["predictions"]),
        "replaced_share": _divide(total["replaced"], total["predictions"]),
        "label_1_share": _divide(total["label_1"], total["examples"]),
    }


def format_summary(summary: Mapping[str, Any]) -> list[str]:
    """Returns a line for each split."""
    return [
        "{split}: {documents:,} documents, {sentences:,} sentences, {tokens:,} tokens "
        "({unknown_rate:.2%} unknown) -> {examples:,} examples of {mean_length:.0f} tokens on "
        "average; {truncated_rate:.1%} truncated, {mask_rate:.1%} to predict "
        "({masked_share:.1%} [MASK], {kept_share:.1%} kept, {replaced_share:.1%} random), "
        "{label_1_share:.1%} with label 1".format(split=split, **summary[split])
        for split in blocks.SPLITS
        if split in summary
    ]


def _divide(part: int, whole: int) -> float:
    return round(part / whole, 6) if whole else 0.0
