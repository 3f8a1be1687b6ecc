"""Defines what is exported: a network, how it answers, and the options of the export."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.errors import show_fields
from albert_tf.export.export_config import MAX_TEXT_BYTES
from albert_tf.export.requests.token_ids import NAMES, Tensors
from albert_tf.kinds import task_table
from albert_tf.kinds.answer import PAIR, TEXT, Answer
from albert_tf.kinds.base import Kind
from albert_tf.model import weight_names
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train_config import FinetuneConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How a checkpoint is exported.

    Attributes:
        kind: a key of `task_table.ANSWERS`.
        run_config: config of the fine-tuning run: lengths, windows, answers.
        labels: of classes or choices, in the order of their ids.
        has_pairs: whether the classified texts are pairs; None if unknown.
        dtype: of the matrices and their products. LayerNorm, softmax and outputs stay float32.
        pooling: the embedding of a text is the `mean` over its tokens, or the pooled `first` one.
        normalize: whether embeddings have length 1.
        top_k: guesses for each [MASK].
        null_threshold: null odds above it mean that there is no answer; None: there always is one.
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
    null_threshold: float | None = None
    thresholds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    text: bool = True
    max_text_bytes: int = MAX_TEXT_BYTES


class ExportedModel(NamedTuple):
    """A trained model, ready to be exported.

    Attributes:
        source: path of the checkpoint, for messages.
        scores: its step and scores in training, if it is of a run.
        config: of the model.
        options: of the export.
        network: with the trained weights.
        loaded: names of the weights that the checkpoint has; others, which the kind does not need,
            are zeros.
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
    def answer(self) -> Answer:
        return task_table.ANSWERS[self.options.kind]

    @property
    def kind(self) -> Kind | None:
        """The kind of task; None of a model without one."""
        return task_table.KINDS.get(self.options.kind)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs of the token-id signature."""
        return NAMES + self.answer.more_inputs

    def list_requests(self) -> dict[str, dict[str, list[Any]]]:
        """Returns {signature of text: {input: those of an example}}, the most usual first."""
        entries, has_pairs = self.answer.list_requests(), self.options.has_pairs
        if PAIR in entries and has_pairs is not None:
            # The model was trained on one of them, and would answer the other with nonsense.
            name = PAIR if has_pairs else TEXT
            entries = {name: entries[name]}
        return entries

    def has_part(self, part: str) -> bool:
        """Whether the checkpoint has a part of `weight_names.parts`."""
        return weight_names.parts(self.config)[part].keys() <= self.loaded

    def shape_ids(self, batch_size: int, length: int) -> list[int]:
        """Returns the shape of the ids: [B, S], of multiple choice [B, C, S]."""
        choices = [len(self.options.labels)] if self.answer.rank == 3 else []
        return [batch_size, *choices, length]

    def compute_outputs(self, ids: Mapping[str, tf.Tensor]) -> Tensors:
        """Computes the outputs of checked token ids, by name."""
        return self.answer.serve(self.network, ids, self.options)
