"""The pre-training heads: the encoder's output -> logits. For shapes see `layers`."""

import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.model import layers, ops


class MaskedLm(layers.AlbertLayer):
    """Dense(E), activation, LayerNorm, then the product with the (tied) word embeddings + bias."""

    def __init__(self, config: AlbertConfig, rng, embeddings: layers.Embeddings, **kwargs):
        super().__init__(config, rng, name="predictions", **kwargs)
        self.embeddings = embeddings
        size = config.embedding_size
        with layers.scope("predictions/transform"):
            self.dense = layers.Dense(config.hidden_size, size, config, rng, name="dense", **kwargs)
            self.layer_norm = layers.LayerNorm(size, config, rng, name="LayerNorm", **kwargs)
        self.output_bias = self.weight("output_bias", (config.vocab_size,), "zeros")

    def call(self, x, training=False):  # [B, P, D] -> [B, P, V]
        shape = [tf.shape(x)[0], tf.shape(x)[1], self.config.vocab_size]
        x = self.dense(tf.reshape(x, [-1, self.config.hidden_size]))  # [B * P, E]
        x = layers.ACTIVATIONS[self.config.hidden_act](x, fused=training)
        x = self.layer_norm(x, training=training)
        table = tf.cast(self.embeddings.word_embeddings.value, x.dtype)
        logits = tf.matmul(x, table, transpose_b=True)
        logits = ops.add_bias(logits, tf.cast(self.output_bias.value, x.dtype))
        return tf.reshape(logits, shape)


class ClassWeights(layers.AlbertLayer):
    """x @ weights^T + bias, float32. The weights are [C, D], as published."""

    def __init__(self, config: AlbertConfig, rng, classes: int, **kwargs):
        super().__init__(config, rng, **kwargs)
        self.output_weights = self.weight("output_weights", (classes, config.hidden_size))
        self.output_bias = self.weight("output_bias", (classes,), "zeros")

    def scores(self, x):  # [T, D] -> [T, C], the product in the dtype of x
        kernel = tf.cast(self.output_weights.value, x.dtype)
        logits = tf.matmul(x, kernel, transpose_b=True)
        return tf.cast(logits, tf.float32) + self.output_bias.value
