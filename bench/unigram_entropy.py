"""The loss of guessing masked pieces by nothing but how frequent they are: what a model must beat.

    python bench/unigram_entropy.py --train_files='data/train-*' --eval_files='data/eval-*'

Frequencies are of the pieces that are predicted in the training records, plus one; the loss is
their mean cross entropy on the held-out records, in nats. Of phonemes it prints two more: of
guessing a phoneme by the inputs to its left and right, and of guessing the words behind phonemes by
their frequencies. Each with the share of best guesses that are right.
"""

import os
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from absl import app, flags

from albert_tf import files
from albert_tf.pipelines import pretraining_records
from albert_tf.records import features, input_pipeline, manifest
from albert_tf.tokenizers import tokenization

TRAIN_FILES = flags.DEFINE_list("train_files", None, "patterns of records", required=True)
EVAL_FILES = flags.DEFINE_list("eval_files", None, "patterns of held-out records", required=True)
_MOST_SYMBOLS = 300  # a table of all pairs of neighbours has the cube of that
_PRIOR = 10.0  # how often a pair of neighbours counts as seen with the phonemes' frequencies


def read_batches(patterns: list[str]) -> Iterator[dict[str, np.ndarray]]:
    """Yields batches of records as a model reads them."""
    paths = files.expand(patterns, "files")
    folder = os.path.dirname(paths[0])
    dataset = manifest.read(folder)
    tokenizer = tokenization.load(os.path.join(folder, manifest.VOCABULARY))
    masking = pretraining_records.read_masking(paths, tokenizer)
    sizes = (dataset["settings"][key] for key in ("max_seq_length", "max_predictions_per_seq"))
    spec = features.pretraining(*sizes)
    for raw, is_real in input_pipeline.eval_batches(paths, batch_size=256, max_examples=0):
        raw = tf.boolean_mask(raw, is_real > 0)
        batch = masking.read(raw) if masking else features.parse(raw, spec)
        yield {name: x.numpy() for name, x in batch.items()}


def count(patterns: list[str], size: int, num_words: int) -> dict[str, np.ndarray]:
    """Counts the pieces to predict, [V], and of phonemes words, [W], and neighbours, [V * V, V]."""
    pieces, words = np.zeros(size), np.zeros(num_words + 1)
    table = np.zeros(size**3 if num_words and size <= _MOST_SYMBOLS else 0)
    for batch in read_batches(patterns):
        rows, columns = np.nonzero(batch["masked_lm_weights"] > 0)
        labels = batch["masked_lm_ids"][rows, columns]
        pieces += np.bincount(labels, minlength=size)
        if num_words:
            words += np.bincount(batch["word_ids"].ravel(), minlength=num_words + 1)
        if len(table):
            places, ids = batch["masked_lm_positions"][rows, columns], batch["input_ids"]
            keys = (ids[rows, places - 1] * size + ids[rows, places + 1]) * size + labels
            table += np.bincount(keys, minlength=size**3)
    return {"pieces": pieces, "words": words[1:], "neighbours": table.reshape(-1, size)}


def report(name: str, held_out: np.ndarray, scores: np.ndarray) -> None:
    """Prints how well labels [..., C] are guessed by scores [..., C] that are not normalized."""
    probabilities = scores / scores.sum(-1, keepdims=True)
    total = held_out.sum()
    entropy = -(held_out * np.log(probabilities)).sum() / total
    best = probabilities.argmax(-1)[..., np.newaxis]
    right = np.take_along_axis(held_out, best, -1).sum() / total
    print(f"{name} of {total:,.0f} predictions: {entropy:.3f} nats, {right:.1%} right")


def main(_):
    vocabulary = manifest.read(os.path.dirname(TRAIN_FILES.value[0]))["vocabulary"]
    sizes = vocabulary["size"], vocabulary.get("num_words", 0)
    train, held_out = count(TRAIN_FILES.value, *sizes), count(EVAL_FILES.value, *sizes)
    frequencies = train["pieces"] + 1
    report("unigram entropy", held_out["pieces"], frequencies)
    if len(train["neighbours"]):
        prior = _PRIOR * frequencies / frequencies.sum()
        report("from both neighbours", held_out["neighbours"], train["neighbours"] + prior)
    if sizes[1]:
        report("unigram entropy of the words", held_out["words"], train["words"] + 1)


if __name__ == "__main__":
    app.run(main)
