"""The layers of ALBERT (paper, section 3.1).

Letters in shapes: B batch, S sequence, T tokens (see `token_layout`), E embedding, D hidden,
N heads, H size of a head, I intermediate, P predictions, R chosen tokens, V vocabulary, C classes,
choices.

Activations are [T, D]: all devices are fastest at two-dimensional products. A block reads its
weights once per call, for all steps that share them: gradients are summed in float32.
"""

import contextlib
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.model import ops

ACTIVATIONS: dict[str, Callable[..., tf.Tensor]] = {
    "gelu": ops.gelu,
    "relu": lambda x, fused: tf.nn.relu(x),
    "tanh": lambda x, fused: tf.tanh(x),
    "linear": lambda x, fused: x,
    "gelu_erf": ops.gelu_erf,
}


@contextlib.contextmanager
def scope(path: str) -> Iterator[None]:
    """Gives variables created inside the prefix `path/`."""
    with contextlib.ExitStack() as stack:
        for part in path.split("/"):
            stack.enter_context(keras.name_scope(part))
        yield


def make_rng(seed: int | None, number: int = 0) -> random.Random | None:
    """Returns a generator for the weights of a part of a model; None without a seed."""
    return None if seed is None else random.Random(seed + number)


class AlbertLayer(keras.layers.Layer):
    """Creates weights in the constructor, from `rng`; casts nothing by itself.

    Without `rng`, matrices are zeros, for a caller that sets them: random ones take 9 s in xxlarge.
    """

    # Whether weight names start with the layer's name; in published task heads they do not.
    has_scoped_names = True

    def __init__(self, config: AlbertConfig, rng: random.Random | None, **kwargs: Any):
        super().__init__(autocast=False, **kwargs)
        self.config = config
        self.rng = rng
        self.built = True

    def weight(self, name: str, shape: tuple[int, ...], initializer: str = "truncated_normal"):
        """Creates a variable: float32, but bfloat16 for matrices in the policy `bfloat16`."""
        if initializer == "truncated_normal":
            options = {"stddev": self.config.initializer_range}
            normal = keras.initializers.TruncatedNormal
            initializer = normal(**options, seed=self.rng.getrandbits(31)) if self.rng else "zeros"
        make = self.add_weight if self.has_scoped_names else keras.Variable
        dtype = "float32" if len(shape) == 1 else self.variable_dtype
        shaped = {"name": name, "shape": shape, "dtype": dtype, "autocast": False}
        return make(initializer=initializer, **shaped)


class DenseWeights(NamedTuple):
    kernel: tf.Tensor
    bias: tf.Tensor


class SublayerWeights(NamedTuple):
    """The weights of an attention or feed-forward part."""

    # In attention, for queries, keys and values: concatenated for one product, or three.
    input: Sequence[DenseWeights]
    output: DenseWeights
    norm: tuple[tf.Tensor, tf.Tensor]  # gamma, beta


EMBEDDINGS_SITE = 0


class BlockSites(NamedTuple):
    """The numbers of the dropout sites in a block."""

    attention_probs: int | tf.Tensor
    attention_output: int | tf.Tensor
    ffn_output: int | tf.Tensor


def block_sites(number: int | tf.Tensor) -> BlockSites:
    """Returns the sites of the `number`th block, after the site of the embeddings."""
    first = EMBEDDINGS_SITE + 1 + len(BlockSites._fields) * number
    return BlockSites(first, first + 1, first + 2)


def head_site(config: AlbertConfig) -> int:
    """Returns the site of a task head, after the sites of all blocks."""
    return block_sites(config.num_blocks)[0]


def affine(x: tf.Tensor, weights: DenseWeights) -> tf.Tensor:
    """x [T, in] times the kernel [in, out], plus the bias [out] -> [T, out], in the dtype of x."""
    product = tf.matmul(x, tf.cast(weights.kernel, x.dtype))
    return ops.add_bias(product, tf.cast(weights.bias, x.dtype))


class Dense(AlbertLayer):
    """Computes x @ kernel + bias."""

    def __init__(self, size_in: int, size_out: int, config: AlbertConfig, rng, **kwargs):
        super().__init__(config, rng, **kwargs)
        self.kernel = self.weight("kernel", (size_in, size_out))
        self.bias = self.weight("bias", (size_out,), "zeros")

    def read(self) -> DenseWeights:
        return DenseWeights(*(tf.convert_to_tensor(x.value) for x in (self.kernel, self.bias)))

    def call(self, x):  # [T, in] -> [T, out]
        return affine(x, self.read())


class LayerNorm(AlbertLayer):
    """LayerNorm with the published epsilon, 1e-12, in float32."""

    def __init__(self, size: int, config: AlbertConfig, rng, **kwargs):
        super().__init__(config, rng, **kwargs)
        self.gamma = self.weight("gamma", (size,), "ones")
        self.beta = self.weight("beta", (size,), "zeros")

    def read(self) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.convert_to_tensor(self.gamma.value), tf.convert_to_tensor(self.beta.value)

    def call(self, x, training=False):  # [T, D] -> [T, D]
        return ops.layer_norm(x, *self.read(), fused=training)


class Embeddings(AlbertLayer):
    """Word + segment + position, all of size E, then LayerNorm and dropout."""

    def __init__(self, config: AlbertConfig, rng, **kwargs):
        super().__init__(config, rng, name="embeddings", **kwargs)
        size = config.embedding_size
        self.word_embeddings = self.weight("word_embeddings", (config.vocab_size, size))
        types, positions = (config.type_vocab_size, size), (config.max_position_embeddings, size)
        self.token_type_embeddings = self.weight("token_type_embeddings", types)
        self.position_embeddings = self.weight("position_embeddings", positions)
        with scope("embeddings"):
            self.layer_norm = LayerNorm(size, config, rng, name="LayerNorm", **kwargs)

    def call(self, input_ids, segment_ids, *, layout, training=False, seed=None):
        """[B, S], [B, S] -> [T, E]"""
        table = tf.convert_to_tensor(self.word_embeddings.value)
        x = tf.cast(ops.lookup(table, layout.select(input_ids)), tf.float32)  # [T, E]
        # A product with one-hot rows: its gradient is also a product, not a scatter.
        segments = tf.one_hot(layout.select(segment_ids), self.config.type_vocab_size)
        x += tf.matmul(segments, tf.cast(self.token_type_embeddings.value, tf.float32))
        x = layout.add_positions(x, tf.cast(self.position_embeddings.value, tf.float32))
        x = self.layer_norm(tf.cast(x, self.compute_dtype), training=training)
        rate = self.config.hidden_dropout_prob
        return ops.dropout(x, rate, seed, EMBEDDINGS_SITE, drawn=layout.drawn)


class SelfAttention(AlbertLayer):
    """x -> LayerNorm(x + dropout(output(heads of softmax(q k / sqrt(H)) v)))."""

    def __init__(self, config: AlbertConfig, rng, **kwargs):
        super().__init__(config, rng, **kwargs)
        size = config.hidden_size
        with scope("attention_1/self"):
            self.query, self.key, self.value = (
                Dense(size, size, config, rng, name=name, **kwargs)
                for name in ("query", "key", "value")
            )
        with scope("attention_1/output"):
            self.output_dense = Dense(size, size, config, rng, name="dense", **kwargs)
        self.layer_norm = LayerNorm(size, config, rng, name="LayerNorm", **kwargs)

    def read(self, *, joins: bool = True) -> SublayerWeights:
        """Reads the weights; `joins` concatenates the weights of queries, keys and values.

        One product is faster than three if it outweighs copying the weights, unlike in a request.
        """
        weights = [self.query.read(), self.key.read(), self.value.read()]
        if joins:
            kernels, biases = zip(*weights, strict=True)
            weights = [DenseWeights(tf.concat(kernels, 1), tf.concat(biases, 0))]
        return SublayerWeights(weights, self.output_dense.read(), self.layer_norm.read())

    def call(self, x, weights, *, layout, rows=None, seed, sites, training):
        """[T, D], `read()` -> [T, D]; with `rows` [B, R], only these rows, [B * R, D]."""
        if rows is None:
            route, drawn = layout.tokens, layout.drawn
            groups = self.make_heads(x, weights.input, route)
        else:
            route, drawn = layout.route_queries(tf.unstack(tf.shape(rows))), None
            query, *key_value = self._take_query_apart(weights.input)
            keys_values = self.make_heads(x, key_value, layout.tokens)
            x = ops.lookup(x, tf.reshape(rows, [-1]))
            queries = self.make_heads(x, [query], route)
            groups = [q + kv for q, kv in zip(queries, keys_values, strict=True)]
        options = {"seed": seed, "site": sites.attention_probs, "training": training}
        pairs = zip(groups, layout.biases, strict=True)
        context = route.join([self.attend(qkv, bias, **options) for qkv, bias in pairs])
        y = affine(context, weights.output)
        rate = self.config.hidden_dropout_prob
        y = ops.dropout(y, rate, seed, sites.attention_output, drawn=drawn)
        return ops.layer_norm(x + y, *weights.norm, fused=training)

    def make_heads(self, x, weights, route):
        """[T, D] and some of `SublayerWeights.input` -> the heads of each group."""
        size = self.config.hidden_size
        made = [route.split(affine(x, w), w.bias.shape[0] // size) for w in weights]
        return [list(itertools.chain(*group)) for group in zip(*made, strict=True)]

    def _take_query_apart(self, weights):
        if len(weights) > 1:
            return weights
        sizes = [self.config.hidden_size, 2 * self.config.hidden_size]
        kernels, biases = tf.split(weights[0].kernel, sizes, 1), tf.split(weights[0].bias, sizes)
        return map(DenseWeights, kernels, biases)

    def attend(self, qkv, attention_bias, *, seed, site, training):
        """Query [B, N, R, H], key and value [B, N, S, H], and [B, 1, 1, S] -> [B, N, R, H]"""
        query, key, value = qkv
        query *= tf.cast(query.shape[-1] ** -0.5, query.dtype)
        scores = tf.matmul(query, key, transpose_b=True)  # [B, N, R, S]
        probs = ops.softmax(scores, attention_bias, fused=training)
        probs = ops.dropout(probs, self.config.attention_probs_dropout_prob, seed, site)
        return tf.matmul(probs, value)


class FeedForward(AlbertLayer):
    """x -> LayerNorm(x + dropout(output(act(intermediate(x)))))."""

    def __init__(self, config: AlbertConfig, rng, **kwargs):
        super().__init__(config, rng, **kwargs)
        hidden, intermediate = config.hidden_size, config.intermediate_size
        options = {"name": "dense", **kwargs}
        with scope("ffn_1/intermediate"):
            self.intermediate = Dense(hidden, intermediate, config, rng, **options)
            with scope("output"):
                self.output_dense = Dense(intermediate, hidden, config, rng, **options)
        self.layer_norm = LayerNorm(hidden, config, rng, name="LayerNorm_1", **kwargs)

    def read(self) -> SublayerWeights:
        dense = [self.intermediate.read()], self.output_dense.read()
        return SublayerWeights(*dense, self.layer_norm.read())

    def call(self, x, weights, *, drawn=None, seed, sites, training):  # [T, D] -> [T, D]
        y = ACTIVATIONS[self.config.hidden_act](affine(x, weights.input[0]), fused=training)
        y = affine(y, weights.output)
        y = ops.dropout(y, self.config.hidden_dropout_prob, seed, sites.ffn_output, drawn=drawn)
        return ops.layer_norm(x + y, *weights.norm, fused=training)
