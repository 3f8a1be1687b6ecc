"""Marks spans in texts with a model in memory."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from albert_tf.data_prep.task_data import token_features
from albert_tf.data_prep.task_data.token_tables import TaggedText
from albert_tf.tasks import tag_decoding
from albert_tf.tasks.predictions import Prediction
from albert_tf.tokenizers import text_words
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train_config import FinetuneConfig

_BATCH = 32  # windows that are computed at once


def predict(
    texts: Sequence[str],
    tokenizer: Tokenizer,
    config: FinetuneConfig,
    labels: Sequence[str],
    compute: Callable[[Mapping[str, tf.Tensor]], Mapping[str, np.ndarray]],
) -> list[Prediction]:
    """Returns a prediction of `tag_decoding` for each text; `compute` is ids -> `logits`."""
    examples = [
        TaggedText(str(row), text, tuple(text_words.find_words(text)), None)
        for row, text in enumerate(texts)
    ]
    tokens, words = token_features.tokenize(examples, tokenizer)
    windows = token_features.split_into_windows(tokens, config)
    parts = []
    for begin in range(0, len(windows.unique_ids), _BATCH):
        rows = slice(begin, begin + _BATCH)
        batch = token_features.make_features(rows, tokens, windows, config.max_seq_length)
        ids = {name: tf.constant(array.astype(np.int32)) for name, array in batch.items()}
        parts.append(compute(ids)["logits"])
    outputs = {"logits": np.concatenate(parts)}
    rows_of_texts = [example._asdict() for example in examples]
    return [*tag_decoding.predict(outputs, windows, words, rows_of_texts, labels).values()]
