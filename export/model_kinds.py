"""Defines what is exported: a network, how it answers, and the options of the export."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.errors import show_fields
from albert_tf.export.export_config import MAX_TEXT_BYTES
from albert_tf.export.requests.token_ids import NAMES, Tensors
from albert_tf.kinds import task_table
from albert_tf.kinds.answer import PAIR, TEXT, Answer
from albert_tf.kinds.base import Kind, ReplyOptions
from albert_tf.model import weight_names
from albert_tf.tokenizers.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(ReplyOptions):
    """How a checkpoint is exported, or answers texts in memory.

    Attributes:
        kind: a key of `task_table.MODELS`.
        has_pairs: whether the classified texts are pairs; None if unknown.
        dtype: of the matrices and their products. LayerNorm, softmax and outputs stay float32.
        text: whether there are signatures of raw text.
        signatures: `all`, or `one` of token ids with the outputs of the network.
        max_text_bytes: longest text of a request, in UTF-8; a longer one is refused.
    """

    kind: str
    has_pairs: bool | None = None
    dtype: str = "float32"
    text: bool = True
    signatures: str = "all"
    max_text_bytes: int = MAX_TEXT_BYTES


class ExportedModel(NamedTuple):
    """A trained model, ready to be exported.

    Attributes:
        source: path of the checkpoint, for messages.
        options: of the export.
        network: with the trained weights.
        tokenizer: None without a vocabulary.
        vocabulary: {file name: content}; may be empty.
        scores: its step and scores in training, if it is of a run.
        loaded: names of the weights that the checkpoint has; others, which the kind does not need,
            are zeros.
    """

    source: str
    options: Options
    network: keras.Model
    tokenizer: Tokenizer | None
    vocabulary: Mapping[str, bytes] = MappingProxyType({})
    scores: str = ""
    loaded: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return show_fields(self)

    @property
    def config(self) -> AlbertConfig:
        """The config of the model."""
        return self.options.run_config.albert

    @property
    def kind(self) -> Kind:
        return task_table.MODELS[self.options.kind]

    @property
    def answer(self) -> Answer:
        return self.kind.answer

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
        """Computes the answers to checked token ids, by name.

        `classes` are the labels of the probabilities in each row, [B, C], also in a row of padding
        alone, with which a server fills up a batch.
        """
        outputs = self.answer.apply(self.network, ids, self.options)
        answers = self.answer.respond(outputs, self.options)
        if "probabilities" in self.answer.fields:
            labels = tf.constant(self.options.labels)
            answers["classes"] = tf.broadcast_to(labels, tf.shape(answers["probabilities"]))
        return answers
