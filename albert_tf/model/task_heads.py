"""Task heads. For shapes see `layers`.

A head gets the encoder's output and the batch, and returns float32 logits by name. Its dropout is
`classifier_dropout_prob`, independent of the encoder's.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.model import early_exit, layers, ops, pretraining_heads
from albert_tf.model.albert_model import Albert, Batch
from albert_tf.records import features
from albert_tf.train_config import FinetuneConfig

Tensors = Mapping[str, tf.Tensor]


class HeadSizes(NamedTuple):
    """The sizes of a head; from `start_n_top` on, they are fields of `FinetuneConfig`."""

    classes: int = 1  # C, classes or choices
    start_n_top: int = 5  # K, starts of an answer in the beam search
    end_n_top: int = 5  # M, ends per start
    early_exit: bool = False  # whether each layer has a head
    exit_patience: int | None = None  # of early exit; None: all layers run
    exit_tolerance: float = 0.1  # values that differ by less agree
    embedding_size: int = 0  # W, after a linear layer; 0: no such layer, W is D

    @classmethod
    def from_config(cls, classes: int, config: FinetuneConfig) -> "HeadSizes":
        return cls(classes, *(getattr(config, name) for name in cls._fields[1:]))


class Head:
    """The interface between a model and its head.

    Attributes:
        reads: the encoder output that it reads.
        reads_padding: whether outputs at padding matter.
        required_inputs: required inputs in addition to `input_ids`.
        takes_choices: whether a row of the batch has a sequence for each of `HeadSizes.classes`.
        takes_texts: whether it does in training.
    """

    reads = "pooled_output"
    reads_padding = False
    required_inputs: tuple[str, ...] = ()
    takes_choices = False
    takes_texts = False
    unfit = ""  # why Keras's `fit` cannot train it

    def run(self: Any, albert: Albert, tokens: Batch, batch: Tensors, *, training, seed, **choices):
        """Runs the encoder, with `choices`, and then the head; returns the head's outputs."""
        outputs = albert(tokens, training=training, seed=seed, **choices)
        return self(outputs[self.reads], {**batch, **tokens}, training=training, seed=seed)


class Classifier(Head, pretraining_heads.ClassWeights):
    """Dropout, then a score for each class."""

    has_scoped_names = False
    has_one_output = False
    leave = early_exit.leave

    def __init__(self, config: AlbertConfig, rng, sizes: HeadSizes, **kwargs):
        outputs = 1 if self.has_one_output else sizes.classes
        super().__init__(config, rng, outputs, **kwargs)
        self.classes, self.sizes = sizes.classes, sizes
        if sizes.early_exit:
            rows = (config.num_hidden_layers - 1) * outputs  # for all layers except the last
            self.exits = pretraining_heads.ClassWeights(config, rng, rows, name="exits", **kwargs)
            self.unfit = early_exit.UNFIT

    def run(self, albert, tokens, batch, **options):
        if self.sizes.early_exit:
            return early_exit.apply(albert, self, tokens, **options)
        return super().run(albert, tokens, batch, **options)

    def call(self, pooled, batch, training=False, seed=None):  # [B, D] -> [B, C]
        return {"logits": self.arrange(self.scores(self.drop(pooled, seed if training else None)))}

    def drop(self, pooled, seed, layer=0):
        """[B, D] -> [B, D], float32, with the dropout of the head after a layer."""
        return _dropout(tf.cast(pooled, tf.float32), self.config, seed, layer)

    def arrange(self, scores):
        """[B, C], of choices [B * C, 1] -> [B, C]"""
        return scores

    def agree(self, one, other):
        """[..., C] twice -> [...], whether both give the same answer."""
        return tf.equal(tf.argmax(one, -1), tf.argmax(other, -1))


class Regression(Classifier):
    """A classifier of one class, whose score is the value."""

    has_one_output = True

    def agree(self, one, other):
        return tf.abs(one - other)[..., 0] < self.sizes.exit_tolerance


class MultipleChoice(Classifier):
    """One score per choice, with the same weights."""

    takes_choices = True
    has_one_output = True

    def arrange(self, scores):
        return tf.reshape(scores, [-1, self.classes])


class MultiLabel(Classifier):
    """A classifier with independent scores: high if the label applies."""

    def agree(self, one, other):
        return tf.reduce_all(tf.equal(one > 0, other > 0), -1)


class TokenClassifier(Head, pretraining_heads.ClassWeights):
    """Dropout, then a score of each token for each tag."""

    reads = "sequence_output"

    def __init__(self, config: AlbertConfig, rng, sizes: HeadSizes, **kwargs):
        with layers.scope("cls"):
            super().__init__(config, rng, sizes.classes, name="token_classification", **kwargs)
        self.classes = sizes.classes

    def call(self, x, batch, training=False, seed=None):  # [B, S, D] -> [B, S, C]
        rows = _dropout(tf.cast(_rows(x), tf.float32), self.config, seed if training else None)
        return {"logits": tf.reshape(self.scores(rows), [-1, _num_tokens(x), self.classes])}


class Span(Head, pretraining_heads.ClassWeights):
    """SQuAD 1.1: scores of every token as the start and as the end of the answer.

    As published, it has no dropout, and includes the question's tokens and padding.
    """

    reads = "sequence_output"
    reads_padding = True

    def __init__(self, config: AlbertConfig, rng, sizes: HeadSizes, **kwargs):
        with layers.scope("cls"):
            super().__init__(config, rng, 2, name="squad", **kwargs)

    def call(self, x, batch, training=False, seed=None):  # [B, S, D] -> [B, S]
        logits = self.scores(tf.cast(_rows(x), tf.float32))
        start, end = tf.unstack(tf.reshape(logits, [-1, _num_tokens(x), 2]), axis=-1)
        return {"start_logits": start, "end_logits": end}


class SpanOrNone(Head, layers.AlbertLayer):
    """SQuAD 2.0, as published (and as in XLNet): the end depends on the start.

    In training, the start is the label's:

        start_logits, end_logits  [B, S], -1e30 where `p_mask` is 1
        cls_logits                [B], high for "there is no answer"

    Otherwise a beam search finds the K best starts and the M best ends for each:

        start_top_log_probs, start_top_index  [B, K]
        end_top_log_probs, end_top_index      [B, K * M]; start i begins at index i * M
        cls_logits                            [B]
    """

    reads = "sequence_output"
    required_inputs = (features.P_MASK,)  # padding is in it
    has_scoped_names = False

    def __init__(self, config: AlbertConfig, rng, sizes: HeadSizes, **kwargs):
        super().__init__(config, rng, **kwargs)
        self.sizes = sizes
        size = config.hidden_size
        with layers.scope("start_logits"):
            self.start = layers.Dense(size, 1, config, rng, name="dense", **kwargs)
        with layers.scope("end_logits"):
            self.end_0 = layers.Dense(2 * size, size, config, rng, name="dense_0", **kwargs)
            self.layer_norm = layers.LayerNorm(size, config, rng, name="LayerNorm", **kwargs)
            self.end_1 = layers.Dense(size, 1, config, rng, name="dense_1", **kwargs)
        with layers.scope("answer_class"):
            self.answer_0 = layers.Dense(2 * size, size, config, rng, name="dense_0", **kwargs)
            with layers.scope("dense_1"):
                self.answer_1 = self.weight("kernel", (size, 1))

    def call(self, x, batch, training=False, seed=None):  # [B, S, D], see above
        mask = tf.cast(batch[features.P_MASK], tf.float32)
        start_logits = tf.reshape(_one_output(self.start, _rows(x)), tf.shape(mask))
        start_logits = _masked(start_logits, mask)
        cls_logits = self.answer_class(x, start_logits, seed if training else None)
        if training:
            starts = tf.gather(x, batch[features.START_POSITIONS], batch_dims=1)
            end_logits = self.end_logits(x, starts, mask, training=True)[:, 0]
            outputs = {"start_logits": start_logits, "end_logits": end_logits}
        else:
            outputs = self.search(x, start_logits, mask)
        return {**outputs, "cls_logits": cls_logits}

    def end_logits(self, x, starts, mask, *, training):
        """[B, S, D], hidden states at K starts [B, K, D], [B, S] -> [B, K, S]"""
        kernel, bias = self.end_0.read()
        # The published product with [token, start], without building all pairs.
        token_kernel, start_kernel = tf.split(tf.cast(kernel, x.dtype), 2)
        tokens = tf.reshape(tf.matmul(_rows(x), token_kernel), tf.shape(x))
        starts = tf.reshape(tf.matmul(_rows(starts), start_kernel), tf.shape(starts))
        pairs = tokens[:, tf.newaxis] + starts[:, :, tf.newaxis]  # [B, K, S, D]
        y = _rows(tf.tanh(pairs + tf.cast(bias, x.dtype)))
        y = self.layer_norm(y, training=training)
        logits = _one_output(self.end_1, y)
        return _masked(tf.reshape(logits, tf.shape(pairs)[:3]), mask[:, tf.newaxis])

    def answer_class(self, x, start_logits, seed):  # [B, S, D], [B, S] -> [B]
        probs = tf.nn.softmax(start_logits)
        x = tf.cast(x, tf.float32)
        start = tf.einsum("bs,bsd->bd", probs, x)
        y = tf.tanh(self.answer_0(tf.concat([start, x[:, 0]], -1)))
        kernel = tf.cast(self.answer_1.value, tf.float32)
        return tf.matmul(_dropout(y, self.config, seed), kernel)[:, 0]

    def search(self, x, start_logits, mask):  # [B, S, D], [B, S], [B, S]
        """The beam search: the best starts, and the best ends for each."""
        k = _at_most(self.sizes.start_n_top, _num_tokens(x))
        m = _at_most(self.sizes.end_n_top, _num_tokens(x))
        start_log_probs, start_index = tf.math.top_k(tf.nn.log_softmax(start_logits), k)
        starts = tf.gather(x, start_index, batch_dims=1)
        end_logits = self.end_logits(x, starts, mask, training=False)
        end_log_probs, end_index = tf.math.top_k(tf.nn.log_softmax(end_logits), m)
        return {
            "start_top_log_probs": start_log_probs,
            "start_top_index": start_index,
            "end_top_log_probs": tf.reshape(end_log_probs, [-1, k * m]),
            "end_top_index": tf.reshape(end_index, [-1, k * m]),
        }


class MeanEmbedding(Head, layers.AlbertLayer):
    """The embedding of a text: the mean over its tokens, and a linear layer for another size."""

    reads = "sequence_output"
    takes_texts = True

    def __init__(self, config: AlbertConfig, rng, sizes: HeadSizes, **kwargs):
        super().__init__(config, rng, **kwargs)
        self.dense = None
        if size := sizes.embedding_size:
            with layers.scope("cls"):
                self.dense = layers.Dense(
                    config.hidden_size, size, config, rng, name="embedding", **kwargs
                )

    def call(self, x, batch, training=False, seed=None):  # [B, S, D], pooled [B, D] -> [B, W]
        return {"embedding": self.project(self.pool(x, batch))}

    def pool(self, x, batch):  # -> [B, D]
        return average_tokens(x, batch[features.INPUT_MASK])

    def project(self, vectors):  # [B, D] -> [B, W]
        return self.dense(vectors) if self.dense else vectors


class ClsEmbedding(MeanEmbedding):
    """The embedding of a text: the output at its first token."""

    def pool(self, x, batch):  # [B, S, D] -> [B, D]
        return tf.cast(x[:, 0], tf.float32)


class PooledEmbedding(MeanEmbedding):
    """The embedding of a text: the pooled output."""

    reads = "pooled_output"

    def pool(self, x, batch):  # [B, D] -> [B, D]
        return tf.cast(x, tf.float32)


# By `FinetuneConfig.pooling`.
EMBEDDINGS = {"mean": MeanEmbedding, "cls": ClsEmbedding, "pooler": PooledEmbedding}


def average_tokens(x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:  # [B, S, D], [B, S] -> [B, D]
    """The mean of the outputs where the mask is 1, float32."""
    weights = tf.cast(mask, tf.float32)
    # A row of only padding, with which a server fills up a batch, gives 0, not NaN.
    weights = tf.math.divide_no_nan(weights, tf.reduce_sum(weights, 1, keepdims=True))
    return tf.matmul(weights[:, tf.newaxis], tf.cast(x, tf.float32))[:, 0]


def _dropout(
    x: tf.Tensor, config: AlbertConfig, seed: tf.Tensor | None, number: int = 0
) -> tf.Tensor:
    """Applies a head's dropout; `number` counts the heads after the layers."""
    return ops.dropout(x, config.classifier_dropout_prob, seed, layers.head_site(config) + number)


def _num_tokens(x: tf.Tensor) -> int | tf.Tensor:  # [B, S, D] -> S, which may be known only later
    return tf.shape(x)[1] if x.shape[1] is None else x.shape[1]


def _at_most(number: int, limit: int | tf.Tensor) -> int | tf.Tensor:
    return min(number, limit) if isinstance(limit, int) else tf.minimum(number, limit)


def _rows(x: tf.Tensor) -> tf.Tensor:  # [..., D] -> [T, D]
    # Only two-dimensional products: with oneDNN, TensorFlow 2.21 writes past the end of
    # [B, K, S, D] @ [D, 1].
    return tf.reshape(x, [-1, x.shape[-1]])


def _one_output(dense: layers.Dense, x: tf.Tensor) -> tf.Tensor:  # [T, D] -> [T], float32
    return dense(tf.cast(x, tf.float32))[:, 0]


def _masked(logits: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    return logits * (1.0 - mask) - 1e30 * mask
