"""The heads: what turns the encoder's vectors into logits. Shapes: see `layers`."""

import tensorflow as tf

from albert_tf import kernels, layers
from albert_tf.config import AlbertConfig


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
        logits = kernels.add_bias(logits, tf.cast(self.output_bias.value, x.dtype))
        return tf.reshape(logits, shape)


class SentenceOrder(layers.AlbertLayer):
    """pooled @ weights^T + bias; class 1 is "swapped". The weights are [2, D], as published."""

    def __init__(self, config: AlbertConfig, rng, **kwargs):
        super().__init__(config, rng, name="seq_relationship", **kwargs)
        self.output_weights = self.weight("output_weights", (2, config.hidden_size))
        self.output_bias = self.weight("output_bias", (2,), "zeros")

    def call(self, pooled):  # [B, D] -> [B, 2]
        kernel = tf.cast(self.output_weights.value, pooled.dtype)
        logits = tf.matmul(pooled, kernel, transpose_b=True)
        return tf.cast(logits, tf.float32) + self.output_bias.value
