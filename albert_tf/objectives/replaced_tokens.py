"""Replaced-token detection: a generator fills the masks, and ALBERT finds what it has replaced.

As published with ELECTRA (Clark et al. 2020); disentangled embeddings as with DeBERTaV3 (He et al.
2021). The generator is a small ALBERT that learns masked tokens; only training needs it.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from albert_tf.model import layers, pretraining_heads, weight_names, xla
from albert_tf.model.albert_model import Albert, AlbertForPretraining
from albert_tf.model.keras_model import ConfiguredModel
from albert_tf.model.losses import Loss, Tensors, example_weights
from albert_tf.objectives.objective import Objective
from albert_tf.records import features, online_masking
from albert_tf.train_config import SHARED, PretrainConfig

REPLACED = "replaced_token"


class AlbertForReplacedTokens(ConfiguredModel):
    """ALBERT with the head that finds replaced tokens, and the generator that replaces them.

    A batch of `features.pretraining` -> {"masked_lm_logits": [B, P, V], of the generator;
    "is_replaced": [B, S], 1.0 where it has put another token; "replaced_token_logits": [B, S];
    "sentence_order_logits": [B, 2]}. What the generator puts depends on the masked text and on the
    seed of the config alone: it is the same on any replica, in any batch and in an evaluation.
    """

    required_inputs = (features.MASKED_LM_POSITIONS,)

    def __init__(self, config: PretrainConfig):
        albert, seed = config.albert, config.seed
        name = "albert_for_replaced_tokens"
        super().__init__(albert, seed=seed, dtype=config.dtype, name=name)
        dtype = self.dtype_policy.name
        options: dict[str, Any] = {"rematerialize": config.rematerialize, "dtype": dtype}
        options["layer_loop"] = config.layer_loop
        self.albert = Albert(albert, seed=seed, **options)
        shared = self.albert.embeddings if config.generator_embeddings == SHARED else None
        rng = layers.make_rng(seed, 1)
        with layers.scope(weight_names.HELPERS):
            self.generator = AlbertForPretraining(
                config.generator.albert, seed=seed + 2, embeddings=shared, **options
            )
            sizes = albert.hidden_size, albert.hidden_size
            self.dense = layers.Dense(*sizes, albert, rng, name="detection", dtype=dtype)
            self.detection, self.second_head = (
                pretraining_heads.ClassWeights(albert, rng, number, name=name, dtype=dtype)
                for number, name in ((1, "is_replaced"), (2, "seq_relationship"))
            )
        self.masked_lm = self.generator.masked_lm
        self.built = True

    def call(self, batch, training=False, seed=None, num_blocks=None) -> dict[str, tf.Tensor]:
        batch = self.read_inputs(batch)
        others = None if seed is None else tf.random.fold_in(seed, 1, alg="philox")
        with xla.trace_options(checks_values=False):
            masked_lm_logits = self.generator(batch, training=training, seed=others)[
                "masked_lm_logits"
            ]
            ids, is_replaced = self._fill_masks(batch, masked_lm_logits)
            filled = {**batch, features.INPUT_IDS: ids}
            options = {"training": training, "seed": seed, "num_blocks": num_blocks}
            outputs = self.albert(filled, **options, skips_padding=True)
        x = tf.reshape(outputs["sequence_output"], [-1, self.config.hidden_size])
        x = layers.ACTIVATIONS[self.config.hidden_act](self.dense(x), fused=training)
        return {
            "masked_lm_logits": masked_lm_logits,
            "is_replaced": is_replaced,
            "replaced_token_logits": tf.reshape(self.detection.scores(x), tf.shape(ids)),
            "sentence_order_logits": self.second_head.scores(outputs["pooled_output"]),
        }

    def _fill_masks(self, batch: Tensors, logits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the ids with a piece of the generator at each mask, and where it is another."""
        ids, positions = batch[features.INPUT_IDS], batch[features.MASKED_LM_POSITIONS]
        is_used = batch[features.MASKED_LM_WEIGHTS] > 0
        keys = online_masking.make_row_keys(ids, self._arguments["seed"])
        draws = online_masking.to_unit(online_masking.draw(keys, positions.shape[1])[0])
        pieces = tf.where(is_used, _sample(logits, draws), tf.gather(ids, positions, batch_dims=1))
        is_other = is_used & (pieces != batch[features.MASKED_LM_IDS])
        rows = tf.broadcast_to(tf.range(tf.shape(ids)[0])[:, tf.newaxis], tf.shape(positions))
        places = tf.stack([rows, positions], axis=2)
        is_replaced = tf.zeros(tf.shape(ids), tf.float32)
        is_replaced = tf.tensor_scatter_nd_update(
            is_replaced, places, tf.cast(is_other, tf.float32)
        )
        return tf.tensor_scatter_nd_update(ids, places, pieces), is_replaced

    def list_trained_weights(self, *, has_sentences: bool) -> list[keras.Variable]:
        """Returns the weights that a gradient reaches."""
        unread = [self.generator.albert.pooler, self.generator.second_head]
        unread += [] if has_sentences else [self.albert.pooler, self.second_head]
        unreached = {id(weight) for layer in unread for weight in layer.trainable_weights}
        return [weight for weight in self.trainable_weights if id(weight) not in unreached]


def _sample(logits: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:  # [..., V], [...] in [0, 1]
    """Draws a piece [...] by the probabilities of the logits: where their sum passes the draw."""
    logits = tf.cast(tf.stop_gradient(logits), tf.float32)
    sums = tf.cumsum(tf.nn.softmax(logits), axis=-1)
    is_passed = sums <= draws[..., tf.newaxis] * sums[..., -1:]
    number = tf.reduce_sum(tf.cast(is_passed, tf.int32), axis=-1)
    return tf.minimum(number, logits.shape[-1] - 1)


def make_objective(config: PretrainConfig, masked: Objective) -> Objective:
    """Returns the objective in which the generator learns as in `masked`, the model to find."""
    has_sentences = len(masked.loss.names) > 1

    def make_model(config: PretrainConfig) -> tuple[keras.Model, list[keras.Variable]]:
        model = AlbertForReplacedTokens(config)
        return model, model.list_trained_weights(has_sentences=has_sentences)

    loss = _make_loss(masked.loss, {REPLACED: config.detection_weight})
    # Finding gets harder as the generator gets better: `best_by` stays that of its masked tokens.
    return dataclasses.replace(masked, loss=loss, make_model=make_model)


def _make_loss(masked: Loss, weights: Mapping[str, float]) -> Loss:
    def counts(batch: Tensors) -> dict[str, tf.Tensor]:
        return {**masked.counts(batch), REPLACED: tf.reduce_sum(_weigh_tokens(batch))}

    def sums(outputs: Tensors, batch: Tensors) -> dict[str, tf.Tensor]:
        logits, labels = outputs["replaced_token_logits"], outputs["is_replaced"]
        predicted = tf.cast(logits > 0, tf.float32)
        values = {
            "loss": tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits),
            "correct": tf.cast(tf.equal(predicted, labels), tf.float32),
            "found": predicted * labels,
            "sought": labels,
        }
        is_token = _weigh_tokens(batch)
        of_tokens = {f"{REPLACED}_{x}": tf.reduce_sum(v * is_token) for x, v in values.items()}
        return {**masked.sums(outputs, batch), **of_tokens}

    names = (*masked.names, REPLACED)
    return masked._replace(
        names=names, counts=counts, sums=sums, weights=weights, recalled=(REPLACED,)
    )


def _weigh_tokens(batch: Tensors) -> tf.Tensor:  # [B, S]
    mask = tf.cast(batch[features.INPUT_MASK], tf.float32)
    return mask * example_weights(batch)[:, tf.newaxis]
