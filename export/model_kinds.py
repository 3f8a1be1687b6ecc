"""The kinds of models that are exported: what each is made of, and what it answers to token ids."""

import dataclasses
from collections.abc import Callable, Mapping, Set
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.model import albert_model, task_heads, task_model
from albert_tf.model.weight_names import CLASSIFIER, ENCODER, MASKED_LM, POOLER, SQUAD1, SQUAD2
from albert_tf.records import features
from albert_tf.train_config import FinetuneConfig
from export.requests.token_ids import NAMES, Tensors, checked_positions, refusing

DTYPES = ("float32", "bfloat16")
POOLINGS = ("mean", "first")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What becomes of a checkpoint.

    Attributes:
        kind: a key of `KINDS`.
        settings: of the run that made it: lengths, windows, answers.
        labels: of classes or choices, in the order of their ids.
        has_pairs: whether what is classified is two texts; None if that is not known.
        dtype: of the matrices and their products. LayerNorm, softmax and what is returned are
            float32 in any case.
        pooling: the embedding of a text is the `mean` over its tokens, or the pooled `first` one.
        top_k: guesses for each [MASK].
        may_be_none: a question about a text may have no answer in it.
        null_threshold: with higher odds of there being none, none is answered.
        text: answer raw text, too.
    """

    kind: str
    settings: FinetuneConfig
    labels: tuple[str, ...] = ()
    has_pairs: bool | None = None
    dtype: str = "float32"
    pooling: str = "mean"
    top_k: int = 5
    may_be_none: bool = False
    null_threshold: float = 0.0
    text: bool = True


class Kind(NamedTuple):
    """A kind of model.

    Attributes:
        what: it does, for people.
        parts: of `weight_names.parts`, that a checkpoint must have.
        network: config, options -> a network with the weights of `parts`, or more.
        answer: network, ids, options -> outputs. Ids are checked.
        more_inputs: what `answer` gets beside the ids, int32 [B, ...].
        rank: of the ids: 2 for [B, S], 3 for [B, C, S].
    """

    what: str
    parts: Set[str]
    network: Callable[[AlbertConfig, Options], keras.Model]
    answer: Callable[[Any, Mapping[str, tf.Tensor], Options], Tensors]
    more_inputs: tuple[str, ...] = ()
    rank: int = 2


def _encoder(config: AlbertConfig, options: Options) -> keras.Model:
    return albert_model.Albert(config, dtype=options.dtype)


def _pretrained(config: AlbertConfig, options: Options) -> keras.Model:
    return albert_model.AlbertForPretraining(config, dtype=options.dtype)


def _for_task(head: str) -> Callable[[AlbertConfig, Options], keras.Model]:
    def make(config: AlbertConfig, options: Options) -> keras.Model:
        settings = options.settings
        sizes = task_heads.HeadSizes(len(options.labels), settings.start_n_top, settings.end_n_top)
        return task_model.AlbertForTask(config, head, sizes, dtype=options.dtype)

    return make


def _vectors(network, ids, options) -> Tensors:
    outputs = network(ids)
    return {name: float32(outputs[name]) for name in ("sequence_output", "pooled_output")}


def _embedding(network, ids, options) -> Tensors:
    if options.pooling == "first":
        return {
            "embedding": float32(
                network(ids, positions=albert_model.no_positions(ids))["pooled_output"]
            )
        }
    vectors = float32(network(ids)["sequence_output"])  # [B, S, D]
    weights = tf.cast(ids[features.INPUT_MASK], tf.float32)
    # A row of padding alone, as a server adds to fill up a batch, gives 0 and not NaN.
    weights = tf.math.divide_no_nan(weights, tf.reduce_sum(weights, 1, keepdims=True))
    return {"embedding": tf.matmul(weights[:, tf.newaxis], vectors)[:, 0]}


def _guesses(network, ids, options) -> Tensors:
    positions = checked_positions(ids[features.MASKED_LM_POSITIONS], ids[features.INPUT_IDS])
    outputs = network.albert(_only_ids(ids), positions=positions, pooled=False)
    logits = float32(network.masked_lm(outputs["sequence_output"]))  # [B, P, V]
    best = tf.math.top_k(tf.nn.softmax(logits), min(options.top_k, logits.shape[-1]))
    return {
        "masked_lm_logits": logits,
        "top_ids": best.indices,
        "top_probabilities": best.values,
    }


def _classes(network, ids, options) -> Tensors:
    logits = _head(network, ids)["logits"]
    return {**_chosen("label", logits, options.labels), "logits": logits}


def _value(network, ids, options) -> Tensors:
    return {"value": _head(network, ids)["logits"][:, 0]}


def _choice(network, ids, options) -> Tensors:
    number = len(options.labels)
    right = tf.equal(tf.shape(ids[features.INPUT_IDS])[1], number)
    with refusing((right, f"every question must have {number} choices.")):
        rows = {name: _rows(ids[name]) for name in NAMES}
    logits = _head(network, rows)["logits"]  # [B, C]
    return {**_chosen("choice", logits, options.labels), "logits": logits}


def _spans(network, ids, options) -> Tensors:
    return _head(network, ids)


def _chosen(name: str, logits: tf.Tensor, labels: tuple[str, ...]) -> Tensors:
    best = tf.gather(tf.constant(labels), tf.argmax(logits, -1, output_type=tf.int32))
    return {name: best, "probabilities": tf.nn.softmax(logits)}


def _head(network: task_model.AlbertForTask, ids: Mapping[str, tf.Tensor]) -> Tensors:
    """What the head says; ids [B, S], of choices [B * C, S]."""
    return dict(network.apply(_only_ids(ids), ids))


def float32(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.float32)


def _only_ids(batch: Mapping[str, tf.Tensor]) -> Tensors:
    return {name: batch[name] for name in NAMES}


def _rows(x: tf.Tensor) -> tf.Tensor:  # [B, C, S] -> [B * C, S], of empty batches too
    shape = tf.shape(x)
    return tf.reshape(x, [shape[0] * shape[1], shape[2]])


_POOLED = frozenset({ENCODER, POOLER})
KINDS: dict[str, Kind] = {
    "encoder": Kind("gives a vector for each token of a text", _POOLED, _encoder, _vectors),
    "sentence_embedding": Kind("gives one vector for a text", _POOLED, _encoder, _embedding),
    "fill_mask": Kind(
        "guesses the words behind [MASK]",
        frozenset({ENCODER, MASKED_LM}),
        _pretrained,
        _guesses,
        (features.MASKED_LM_POSITIONS,),
    ),
    "classification": Kind(
        "tells the class of a text, or of a pair of texts",
        _POOLED | {CLASSIFIER},
        _for_task("classification"),
        _classes,
    ),
    "regression": Kind(
        "gives a number for a text, or for a pair of texts",
        _POOLED | {CLASSIFIER},
        _for_task("regression"),
        _value,
    ),
    "multiple_choice": Kind(
        "chooses among the answers to a question about a text",
        _POOLED | {CLASSIFIER},
        _for_task("multiple_choice"),
        _choice,
        rank=3,
    ),
    "span": Kind(
        "finds the answer to a question in a text",
        frozenset({ENCODER, SQUAD1}),
        _for_task("span"),
        _spans,
    ),
    "span_or_none": Kind(
        "finds the answer to a question in a text, or that there is none",
        frozenset({ENCODER, SQUAD2}),
        _for_task("span_or_none"),
        _spans,
        (features.P_MASK,),
    ),
}
