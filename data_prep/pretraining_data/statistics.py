"""What a folder of records holds, in numbers: counted per shard, summed up for the manifest."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.tokenizers.tokenization import Tokenizer
from data_prep.pretraining_data import blocks
from data_prep.pretraining_data.record_writer import Instance


def count(instances: Sequence[Instance], tokenizer: Tokenizer) -> Counter[str]:
    """Counts of examples, tokens, predictions and what they were replaced by."""
    labels = np.concatenate([i.masked.labels for i in instances])
    seen = np.concatenate([i.masked.ids[i.masked.positions] for i in instances])
    masked = int(np.count_nonzero(seen == tokenizer.mask_id))
    kept = int(np.count_nonzero(seen == labels))
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
    """The statistics of each split. Text is counted once, however many passes were made over it."""
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
        "unknown_rate": _ratio(total["unknown"], total["text_tokens"]),
        "examples": total["examples"],
        "mean_length": _ratio(total["tokens"], total["examples"]),
        "truncated_rate": _ratio(total["truncated"], total["tokens"] + total["truncated"]),
        "mask_rate": _ratio(total["predictions"], total["tokens"]),
        "masked_share": _ratio(total["masked"], total["predictions"]),
        "kept_share": _ratio(total["kept"], total["predictions"]),
        "replaced_share": _ratio(total["replaced"], total["predictions"]),
        "label_1_share": _ratio(total["label_1"], total["examples"]),
    }


def lines(summary: Mapping[str, Any]) -> list[str]:
    """The summary for the terminal."""
    return [
        "{split}: {documents:,} documents, {sentences:,} sentences, {tokens:,} tokens "
        "({unknown_rate:.2%} unknown) -> {examples:,} examples of {mean_length:.0f} tokens on "
        "average; {truncated_rate:.1%} truncated, {mask_rate:.1%} to predict "
        "({masked_share:.1%} [MASK], {kept_share:.1%} kept, {replaced_share:.1%} random), "
        "{label_1_share:.1%} with label 1".format(split=split, **summary[split])
        for split in blocks.SPLITS
        if split in summary
    ]


def _ratio(part: int, whole: int) -> float:
    return round(part / whole, 6) if whole else 0.0
