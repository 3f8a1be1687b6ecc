"""Masked phonemes, and the word behind each phoneme, for models that make a voice (PL-BERT)."""

import dataclasses
import random
from typing import Any

import keras
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.model import layers, pretraining_heads, xla
from albert_tf.model.albert_model import Albert, Batch
from albert_tf.model.keras_model import ConfiguredModel
from albert_tf.model.losses import Loss, Tensors, classification_sums, example_weights
from albert_tf.objectives import masked_lm
from albert_tf.records import features
from albert_tf.records.features import Features
from albert_tf.train_config import PretrainConfig

WORD = "word"


class AlbertForPhonemes(ConfiguredModel):
    """ALBERT with a head for masked phonemes, and one for words, which is thrown away.

    A batch of the features of `PHONEMES` -> {"masked_lm_logits": [B, P, V], of the computing type,
    "word_logits": [B, S, W], float32}. Arguments are those of `Albert`, and `num_words`, W.
    """

    required_inputs = (features.MASKED_LM_POSITIONS,)

    def __init__(
        self,
        config: AlbertConfig,
        *,
        num_words: int,
        seed: int = 0,
        dtype: str | None = None,
        name: str = "albert_for_phonemes",
        **kwargs: Any,
    ):
        options = {"num_words": num_words, **kwargs}
        super().__init__(config, seed=seed, dtype=dtype, name=name, **options)
        dtype = self.dtype_policy.name
        self.albert = Albert(config, seed=seed, dtype=dtype, **kwargs)
        rng = random.Random(seed + 1)
        with layers.scope("cls"):
            embeddings = self.albert.embeddings
            self.masked_lm = pretraining_heads.MaskedLm(config, rng, embeddings, dtype=dtype)
            self.words = pretraining_heads.ClassWeights(
                config, rng, num_words, name="words", dtype=dtype
            )
        self.built = True

    def call(self, batch: Batch, training=False, seed=None) -> dict[str, tf.Tensor]:
        batch = self.read_inputs(batch)
        options = {"pooled": False, "skips_padding": True}
        with xla.trace_options(checks_values=False):
            outputs = self.albert(batch, training=training, seed=seed, **options)
        x = outputs["sequence_output"]  # [B, S, D]
        chosen = tf.gather(x, batch[features.MASKED_LM_POSITIONS], batch_dims=1)
        words = self.words.scores(tf.reshape(x, [-1, self.config.hidden_size]))
        return {
            "masked_lm_logits": self.masked_lm(chosen, training=training),
            "word_logits": tf.reshape(words, [*tf.unstack(tf.shape(x)[:2]), words.shape[-1]]),
        }


def _make_model(config: PretrainConfig) -> tuple[AlbertForPhonemes, list[keras.Variable]]:
    """Returns the model, and its weights but the pooler's, which no gradient reaches."""
    model = AlbertForPhonemes(
        config.albert,
        num_words=config.num_words,
        seed=config.seed,
        rematerialize=config.rematerialize,
        layer_loop=config.layer_loop,
        dtype=config.dtype,
    )
    unreached = {id(weight) for weight in model.albert.pooler.trainable_weights}
    return model, [weight for weight in model.trainable_weights if id(weight) not in unreached]


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


_MASKED = masked_lm.make_objective(sentence=None)
PHONEMES = dataclasses.replace(
    _MASKED,
    loss=Loss((*_MASKED.loss.names, WORD), _count, _add_up),
    list_features=_list_features,
    make_model=_make_model,
)
