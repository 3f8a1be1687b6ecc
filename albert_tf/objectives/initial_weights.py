"""Initial weights of a new run, other than the published random ones."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from albert_tf.model import albert_model
from albert_tf.records import features, input_pipeline
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train_config import PretrainConfig

# The number of records in which tokens are counted: enough for all but rare tokens.
_COUNTED = 100_000


def assign(
    model: albert_model.AlbertForPretraining,
    config: PretrainConfig,
    paths: Sequence[str],
    tokenizer: Tokenizer,
) -> None:
    """Sets the weights for which the config chooses another start; `paths` are record files."""
    if config.initial_positions == "sinusoids":
        table = model.albert.embeddings.position_embeddings
        deviation = config.albert.initializer_range
        table.assign(deviation * np.sqrt(2) * make_sinusoids(*table.shape))
    if config.initial_output_bias == "log_frequencies":
        model.masked_lm.output_bias.assign(compute_log_frequencies(paths, tokenizer))


def make_sinusoids(num_positions: int, size: int) -> np.ndarray:
    """[num_positions, size] of sines, then cosines, in [-1, 1], with a mean square of one half.

    The wave lengths are as in the Transformer paper, from 2 pi to 20,000 pi positions.
    """
    rates = 10_000.0 ** (-np.arange((size + 1) // 2) / ((size + 1) // 2))
    angles = np.arange(num_positions)[:, np.newaxis] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], 1)[:, :size]


def compute_log_frequencies(paths: Sequence[str], tokenizer: Tokenizer) -> np.ndarray:
    """[V] logarithms of the share of each token in the records; special tokens never occur."""
    counts = np.zeros(tokenizer.size, np.int64)
    batches = input_pipeline.read(paths).take(_COUNTED).batch(1000)
    spec = {features.INPUT_IDS: tf.io.RaggedFeature(tf.int64)}
    for batch in batches:
        ids = tf.io.parse_example(batch, spec)[features.INPUT_IDS].flat_values
        counts += np.bincount(ids.numpy(), minlength=len(counts))
    is_special = np.ones(len(counts), np.bool_)
    is_special[tokenizer.replacement_ids] = False
    counts[is_special] = 0
    return np.log((counts + 1) / (counts + 1).sum())


def compute_frequency_loss(paths: Sequence[str], tokenizer: Tokenizer) -> float:
    """Returns the masked-LM loss, in nats, of guessing by token frequencies alone."""
    logs = compute_log_frequencies(paths, tokenizer)
    return float(-(np.exp(logs) * logs).sum())
