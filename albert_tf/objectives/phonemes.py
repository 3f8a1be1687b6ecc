"""Masked phonemes, and the word of each phoneme, for text-to-speech models (PL-BERT)."""

import dataclasses

import tensorflow as tf

from albert_tf.model.losses import Loss, Tensors, classification_sums, example_weights
from albert_tf.objectives import masked_lm
from albert_tf.records import features
from albert_tf.records.features import Features
from albert_tf.train_config import PretrainConfig

WORD = "word"


def _list_features(config: PretrainConfig) -> Features:
    of_text = _MASKED.list_features(config)
    return {**of_text, features.WORD_IDS: of_text[features.INPUT_IDS]}


def _weigh_words(batch: Tensors) -> tf.Tensor:  # [B, S]
    has_word = tf.cast(batch[features.WORD_IDS] > 0, tf.float32)
    return has_word * example_weights(batch)[:, tf.newaxis]


def _count(batch: Tensors) -> dict[str, tf.Tensor]:
    return _MASKED.loss.counts(batch) | {WORD: tf.reduce_sum(_weigh_words(batch))}


def _add_up(outputs: Tensors, batch: Tensors) -> dict[str, tf.Tensor]:
    logits, labels = outputs["word_logits"], batch[features.WORD_IDS]
    of_words = classification_sums(WORD, logits, labels, _weigh_words(batch))
    return _MASKED.loss.sums(outputs, batch) | of_words


_MASKED = masked_lm.make_objective(None)
PHONEMES = dataclasses.replace(
    _MASKED,
    loss=Loss((*_MASKED.loss.names, WORD), _count, _add_up),
    list_features=_list_features,
)
