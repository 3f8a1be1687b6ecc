"""Defines the kinds of models that can be exported: their weights, network and outputs."""

import dataclasses
from collections.abc import Callable, Mapping, Set
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.errors import show_fields
from albert_tf.export.export_config import MAX_TEXT_BYTES
from albert_tf.export.requests.token_ids import NAMES, Tensors
from albert_tf.kinds import multi_label, task_table
from albert_tf.model import albert_model, task_heads, task_model, weight_names
from albert_tf.model.weight_names import (
    CLASSIFIER,
    ENCODER,
    MASKED_LM,
    POOLER,
    SQUAD1,
    SQUAD2,
    TOKEN_CLASSIFIER,
)
from albert_tf.records import features
from albert_tf.records.model_inputs import require_all
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train_config import FinetuneConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How a checkpoint is exported.

    Attributes:
        kind: a key of `KINDS`.
        run_config: config of the fine-tuning run: lengths, windows, answers.
        labels: of classes or choices, in the order of their ids.
        has_pairs: whether the classified texts are pairs; None if unknown.
        dtype: of the matrices and their products. LayerNorm, softmax and outputs stay float32.
        pooling: the embedding of a text is the `mean` over its tokens, or the pooled `first` one.
        normalize: whether embeddings have length 1.
        top_k: guesses for each [MASK].
        may_be_none: whether a question may have no answer in the text.
        null_threshold: null odds above it mean that there is no answer.
        thresholds: of several labels: a probability above it means that the label applies; of
            labels that are not there the default of `multi_label`.
        text: whether there are signatures of raw text.
        max_text_bytes: longest text of a request, in UTF-8; a longer one is refused.
    """

    kind: str
    run_config: FinetuneConfig
    labels: tuple[str, ...] = ()
    has_pairs: bool | None = None
    dtype: str = "float32"
    pooling: str = "mean"
    normalize: bool = False
    top_k: int = 5
    may_be_none: bool = False
    null_threshold: float = 0.0
    thresholds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    text: bool = True
    max_text_bytes: int = MAX_TEXT_BYTES


class Kind(NamedTuple):
    """A kind of model.

    Attributes:
        description: completes the sentence "An ALBERT that ...".
        parts: of `weight_names.parts`, which a checkpoint must have.
        compute_outputs: network, checked ids, options -> outputs.
        more_inputs: inputs beside the ids, int32 [B, ...].
        rank: of the ids: 2 for [B, S], 3 for [B, C, S].
    """

    description: str
    parts: Set[str]
    compute_outputs: Callable[[Any, Mapping[str, tf.Tensor], Options], Tensors]
    more_inputs: tuple[str, ...] = ()
    rank: int = 2


class ExportedModel(NamedTuple):
    """A trained model, ready to be exported.

    Attributes:
        source: path of the checkpoint, for messages.
        scores: its step and scores in training, if it is of a run.
        config: of the model.
        options: of the export.
        network: with the trained weights.
        loaded: names of the weights that the checkpoint has; parts that the kind does not need may
            keep their initial values.
        vocabulary: {file name: content}; may be empty.
        tokenizer: of that vocabulary, None without one.
    """

    source: str
    scores: str
    config: AlbertConfig
    options: Options
    network: keras.Model
    loaded: frozenset[str]
    vocabulary: Mapping[str, bytes]
    tokenizer: Tokenizer | None

    def __repr__(self) -> str:
        return show_fields(self)

    @property
    def kind(self) -> Kind:
        return KINDS[self.options.kind]

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs of the token-id signature."""
        return NAMES + self.kind.more_inputs

    def has_part(self, part: str) -> bool:
        """Whether the checkpoint has a part of `weight_names.parts`."""
        return weight_names.parts(self.config)[part].keys() <= self.loaded

    def shape_ids(self, batch_size: int, length: int) -> list[int]:
        """Returns the shape of the ids: [B, S], of multiple choice [B, C, S]."""
        choices = [len(self.options.labels)] if self.kind.rank == 3 else []
        return [batch_size, *choices, length]

    def compute_outputs(self, ids: Mapping[str, tf.Tensor]) -> Tensors:
        """Computes the outputs of checked token ids, by name."""
        return self.kind.compute_outputs(self.network, ids, self.options)


def make_network(config: AlbertConfig, options: Options) -> keras.Model:
    """Returns a new network with the weights that the kind needs, or more."""
    parts = KINDS[options.kind].parts
    if parts == _POOLED:
        return albert_model.Albert(config, dtype=options.dtype)
    if MASKED_LM in parts:
        return albert_model.AlbertForPretraining(config, dtype=options.dtype)
    run = options.run_config
    sizes = task_heads.HeadSizes(len(options.labels), run.start_n_top, run.end_n_top)
    return task_model.AlbertForTask(
        config, task_table.KINDS[options.kind].choose_head(run), sizes, dtype=options.dtype
    )


def _compute_vectors(network, ids, options) -> Tensors:
    outputs = network(ids, skips_padding=True)
    return {name: _to_float32(outputs[name]) for name in ("sequence_output", "pooled_output")}


def _compute_embedding(network, ids, options) -> Tensors:
    if options.pooling == "first":
        positions = albert_model.no_positions(ids)
        outputs = network(ids, positions=positions, skips_padding=True)
        vectors = _to_float32(outputs["pooled_output"])
    else:
        outputs = network(ids, skips_padding=True)
        vectors = task_heads.average_tokens(outputs["sequence_output"], ids[features.INPUT_MASK])
    return {"embedding": tf.math.l2_normalize(vectors, -1) if options.normalize else vectors}


def _guess_masked(network, ids, options) -> Tensors:
    positions = ids[features.MASKED_LM_POSITIONS]
    choices = {"positions": positions, "pooled": False, "skips_padding": True}
    outputs = network.albert(_select_ids(ids), **choices)
    logits = _to_float32(network.masked_lm(outputs["sequence_output"]))  # [B, P, V]
    best = tf.math.top_k(tf.nn.softmax(logits), min(options.top_k, logits.shape[-1]))
    return {"masked_lm_logits": logits, "top_ids": best.indices, "top_probabilities": best.values}


def _classify(network, ids, options) -> Tensors:
    logits = _apply_head(network, ids, options)["logits"]
    return _choose_label("label", logits, options.labels)


def _select_labels(network, ids, options) -> Tensors:
    logits = _apply_head(network, ids, options)["logits"]  # [B, C]
    probabilities = tf.sigmoid(logits)
    default = multi_label.DEFAULT_THRESHOLD
    limits = [options.thresholds.get(label, default) for label in options.labels]
    chosen = probabilities > tf.constant(limits, tf.float32)
    # Of a row of padding alone, with which a server fills up a batch, there are labels, too.
    labels = tf.ragged.boolean_mask(
        tf.broadcast_to(tf.constant(options.labels), tf.shape(logits)), chosen
    )
    counts = tf.reduce_sum(tf.cast(chosen, tf.int32), -1)
    outputs = {"labels": labels.to_tensor(), "num_labels": counts}
    return {**outputs, "probabilities": probabilities, "logits": logits}


def _tag_tokens(network, ids, options) -> Tensors:
    logits = _apply_head(network, ids, options)["logits"]  # [B, S, C]
    best = tf.gather(tf.constant(options.labels), tf.argmax(logits, -1, output_type=tf.int32))
    tags = tf.where(ids[features.INPUT_MASK] > 0, best, "")
    return {"tags": tags, "probabilities": tf.nn.softmax(logits), "logits": logits}


def _regress(network, ids, options) -> Tensors:
    return {"value": _apply_head(network, ids, options)["logits"][:, 0]}


def _choose_option(network, ids, options) -> Tensors:
    number = len(options.labels)
    shape = tf.shape(ids[features.INPUT_IDS])
    is_complete = tf.equal(shape[1], number)
    with require_all((is_complete, f"every question must have {number} choices.")):
        # [B, C, S] -> [B * C, S], of empty batches, too
        flat = [shape[0] * shape[1], shape[2]]
        rows = {name: tf.reshape(ids[name], flat) for name in NAMES}
    logits = _apply_head(network, rows, options)["logits"]  # [B, C]
    return _choose_label("choice", logits, options.labels)


def _choose_label(name: str, logits: tf.Tensor, labels: tuple[str, ...]) -> Tensors:
    best = tf.gather(tf.constant(labels), tf.argmax(logits, -1, output_type=tf.int32))
    return {name: best, "probabilities": tf.nn.softmax(logits), "logits": logits}


def _apply_head(network, ids, options) -> Tensors:
    """Returns the outputs of the task's head; ids [B, S], of choices [B * C, S]."""
    return dict(network.apply(_select_ids(ids), ids))


def _to_float32(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.float32)


def _select_ids(batch: Mapping[str, tf.Tensor]) -> Tensors:
    return {name: batch[name] for name in NAMES}


_POOLED = frozenset({ENCODER, POOLER})
_CLASSIFIED = _POOLED | {CLASSIFIER}
_TAGGED = frozenset({ENCODER, TOKEN_CLASSIFIER})
KINDS: dict[str, Kind] = {
    "encoder": Kind("gives a vector for each token of a text", _POOLED, _compute_vectors),
    "sentence_embedding": Kind("gives one vector for a text", _POOLED, _compute_embedding),
    "fill_mask": Kind(
        "guesses the words behind [MASK]",
        frozenset({ENCODER, MASKED_LM}),
        _guess_masked,
        (features.MASKED_LM_POSITIONS,),
    ),
    "classification": Kind(
        "tells the class of a text, or of a pair of texts", _CLASSIFIED, _classify
    ),
    "regression": Kind("gives a number for a text, or for a pair of texts", _CLASSIFIED, _regress),
    "multiple_choice": Kind(
        "chooses among the answers to a question about a text", _CLASSIFIED, _choose_option, rank=3
    ),
    "span": Kind(
        "finds the answer to a question in a text", frozenset({ENCODER, SQUAD1}), _apply_head
    ),
    "span_or_none": Kind(
        "finds the answer to a question in a text, or that there is none",
        frozenset({ENCODER, SQUAD2}),
        _apply_head,
        (features.P_MASK,),
    ),
    "token_classification": Kind("marks spans in a text, of any length", _TAGGED, _tag_tokens),
    "multi_label": Kind("tells which labels apply to a text", _CLASSIFIED, _select_labels),
}
