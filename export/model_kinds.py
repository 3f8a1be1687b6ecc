"""Defines an exported model: its network, how it answers, and the export options."""

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
        dtype: of matrices and their products. LayerNorm, softmax and outputs stay float32.
        text: whether there are signatures for raw text.
        signatures: `all`, or `one`: token ids to the network's outputs.
        max_text_bytes: the longest text in a request, in UTF-8; longer texts are refused.
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
        source: the path of the checkpoint, for messages.
        options: the export options.
        network: has the trained weights.
        tokenizer: None without a vocabulary.
        vocabulary: {file name: content}; may be empty.
        scores: its step and scores in training, if it comes from a run.
        loaded: the names of the weights in the checkpoint; others, which the kind does not need,
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
        """The names of the inputs of the token-id signature."""
        return NAMES + self.answer.more_inputs

    def list_requests(self) -> dict[str, dict[str, list[Any]]]:
        """Returns {text signature: {input: example values}}, the most common first."""
        entries, has_pairs = self.answer.list_requests(), self.options.has_pairs
        if PAIR in entries and has_pairs is not None:
            # The model was trained on one of them; its answers to the other would be meaningless.
            name = PAIR if has_pairs else TEXT
            entries = {name: entries[name]}
        return entries

    def has_part(self, part: str) -> bool:
        """Whether the checkpoint has a part of `weight_names.parts`."""
        return weight_names.parts(self.config)[part].keys() <= self.loaded

    def shape_ids(self, batch_size: int, length: int) -> list[int]:
        """Returns the shape of the ids: [B, S], or [B, C, S] for multiple choice."""
        choices = [len(self.options.labels)] if self.answer.rank == 3 else []
        return [batch_size, *choices, length]

    def compute_outputs(self, ids: Mapping[str, tf.Tensor]) -> Tensors:
        """Computes the answers to checked token ids, by name.

        `classes` are the labels of the probabilities in each row, [B, C], even in rows of only
        padding, with which a server fills up a batch.
        """
        outputs = self.answer.apply(self.network, ids, self.options)
        answers = self.answer.respond(outputs, self.options)
        if "probabilities" in self.answer.fields:
            labels = tf.constant(self.options.labels)
            answers["classes"] = tf.broadcast_to(labels, tf.shape(answers["probabilities"]))
        return answers
