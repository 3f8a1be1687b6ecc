"""The loss of guessing masked pieces by nothing but how frequent they are: what a model must beat.

    python bench/unigram_entropy.py --train_files='data/train-*' --eval_files='data/eval-*'

Frequencies are of the pieces that are predicted in the training records, plus one; the loss is
their mean cross entropy on the held-out records, in nats.
"""

import os

import numpy as np
import tensorflow as tf
from absl import app, flags

from albert_tf import files
from albert_tf.pipelines import pretraining_records
from albert_tf.records import features, input_pipeline, manifest
from albert_tf.tokenizers import tokenization

TRAIN_FILES = flags.DEFINE_list("train_files", None, "patterns of records", required=True)
EVAL_FILES = flags.DEFINE_list("eval_files", None, "patterns of held-out records", required=True)


def label_counts(patterns: list[str]) -> np.ndarray:
    """Counts how often each piece is to be predicted: [V]."""
    paths = files.expand(patterns, "files")
    folder = os.path.dirname(paths[0])
    dataset = manifest.read(folder)
    tokenizer = tokenization.load(os.path.join(folder, manifest.VOCABULARY))
    masking = pretraining_records.read_masking(paths, tokenizer)
    sizes = (dataset["settings"][key] for key in ("max_seq_length", "max_predictions_per_seq"))
    spec = features.pretraining(*sizes)
    counts = np.zeros(dataset["vocabulary"]["size"])
    for raw, is_real in input_pipeline.eval_batches(paths, batch_size=256, max_examples=0):
        raw = tf.boolean_mask(raw, is_real > 0)
        batch = masking.read(raw) if masking else features.parse(raw, spec)
        labels = batch["masked_lm_ids"].numpy()[batch["masked_lm_weights"].numpy() > 0]
        counts += np.bincount(labels, minlength=len(counts))
    return counts


def main(_):
    train, held_out = label_counts(TRAIN_FILES.value), label_counts(EVAL_FILES.value)
    probabilities = (train + 1) / (train + 1).sum()
    entropy = -(held_out * np.log(probabilities)).sum() / held_out.sum()
    print(f"unigram entropy of {held_out.sum():,.0f} predictions: {entropy:.3f} nats")


if __name__ == "__main__":
    app.run(main)
