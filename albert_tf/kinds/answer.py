"""What a model answers: its network, and what the outputs of the network say.

`Answer.respond` is the one function from outputs to answers. Evaluation calls it eagerly, a model
in Python and an export trace it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from absl import logging

from albert_tf import lazy_tensorflow as tf
from albert_tf.errors import UserError
from albert_tf.kinds.base import (
    TOKENS,
    Arrays,
    Gold,
    Outputs,
    Prediction,
    Predictions,
    ReplyOptions,
    Tensors,
)
from albert_tf.kinds.spans import replies
from albert_tf.kinds.spans.replies import Row
from albert_tf.train_config import FinetuneConfig

# Names of signatures and of their inputs.
TEXT, PAIR = "text", "text_pair"
# The texts of an example of a request.
SENTENCE = "The museum opens at nine and closes at five."
QUESTION = "When does the museum open?"
# The values of `Answer.truncation_note`.
CUT = "Longer texts are truncated silently."
WINDOWS = "Longer texts are read in overlapping windows."


@dataclass(frozen=True)
class Answer:
    """The network of a kind, and what its outputs say.

    Attributes:
        kind: its name, for messages.
        head: the name of the class of `task_heads` of an exported model; "" if it has no head.
        description: completes the sentence "An ALBERT that ...".
        parts: of `weight_names.parts`, which a checkpoint must have.
        labels_weight: the weight with a number for each output of the head, if outputs are labels.
        num_outputs: of an exported head; 0 if it has one for each label.
        more_inputs: inputs besides the ids, int32 [B, ...].
        rank: of the ids: 2 for [B, S], 3 for [B, C, S].
        choices: the flags of an export that mean something, of those that not all kinds have.
        truncation_note: what becomes of a text that is too long, for the card of the model.
        view: how bin/demo shows its answers, a key of `demo.VIEWS`.
        asked: how a graph packs texts, a key of `export.signatures.ASKED`.
        method: of TensorFlow Serving for serialised examples, if it is not predict.
        fields: {field of a prediction: the output of `respond` that it is}.
        gives_vectors: whether the outputs for a text are its vector, and predictions compare them.
        has_exits: whether there can be a head after each layer.
    """

    kind: str

    head: ClassVar[str] = ""
    description: ClassVar[str] = ""
    parts: ClassVar[frozenset[str]] = frozenset({"encoder", "pooler"})
    labels_weight: ClassVar[str | None] = None
    num_outputs: ClassVar[int] = 0
    more_inputs: ClassVar[tuple[str, ...]] = ()
    rank: ClassVar[int] = 2
    choices: ClassVar[tuple[str, ...]] = ()
    truncation_note: ClassVar[str] = CUT
    view: ClassVar[str] = "nearest"
    asked: ClassVar[str] = "texts"
    method: ClassVar[str] = ""
    fields: ClassVar[Mapping[str, str]] = {}
    gives_vectors: ClassVar[bool] = False
    has_exits: ClassVar[bool] = False

    # The network, and an export of it.

    def choose_head(self, config: FinetuneConfig) -> Any:
        """Returns the class of `task_heads` that is the head."""
        from albert_tf.model import task_heads

        return getattr(task_heads, self.head)

    def make_network(self, config: Any, options: Any) -> Any:
        """Returns the network of an export, with weights of zeros."""
        from albert_tf.model import albert_model, task_heads, task_model

        if not self.head:
            return albert_model.Albert(config, seed=None, dtype=options.dtype)
        run = options.run_config
        sizes = task_heads.HeadSizes.from_config(len(options.labels), run)
        head = self.choose_head(run)
        return task_model.AlbertForTask(config, head, sizes, seed=None, dtype=options.dtype)

    def list_weights(
        self, weights: Mapping[str, Any], config: FinetuneConfig, source: str
    ) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of all that an export needs of the weights of a checkpoint."""
        from albert_tf.model import early_exit, weight_names

        shapes = weight_names.list_shapes(config.albert, *self.parts)
        if config.early_exit and self.has_exits:
            return shapes | early_exit.list_weights(config.albert, weights, source)
        if config.early_exit:
            logging.info(f"--kind={self.kind} runs all layers: early_exit changes nothing.")
        return shapes

    def describe_settings(self, config: FinetuneConfig) -> str:
        """Returns what the card of an export says of the settings on which answers depend."""
        if not config.exit_patience or not self.has_exits:
            return ""
        return (
            f"Patience is {config.exit_patience}: the layers are left when that many heads in a "
            "row agree with\nthe one before. An answer does not depend on the other rows of a "
            "request."
        )

    def list_requests(self) -> dict[str, dict[str, list[Any]]]:
        """Returns {signature: {input of text: those of an example}}, the most usual first."""
        return {TEXT: {TEXT: [SENTENCE]}}

    def complete_labels(self, labels: tuple[str, ...], size: int, source: str) -> tuple[str, ...]:
        """Returns the labels of a head of `size` outputs: classes without labels are numbered."""
        return labels or tuple(map(str, range(0 if self.num_outputs else size)))

    # Tensors: from token ids to answers.

    def apply(self, network: Any, ids: Tensors, options: ReplyOptions) -> dict[str, Any]:
        """Returns the outputs of the head; ids [B, S], of choices [B, C, S]."""
        outputs = dict(network.apply({name: ids[name] for name in TOKENS}, ids))
        outputs.pop("exit_logits", None)  # of all heads, where nothing says when to leave
        return outputs

    def respond(self, outputs: Tensors, options: ReplyOptions) -> dict[str, Any]:
        """Returns the answers, by name: by default the outputs. It computes in their dtype."""
        return dict(outputs)

    def respond_to_texts(self, answers: Tensors, ids: Tensors, tokenizer: Any) -> dict[str, Any]:
        """Returns what texts are answered, of the answers to their ids: by default the same."""
        return dict(answers)

    # Predictions of examples, and replies to texts; `arrays` are those of `Data.files`.

    def decode(
        self, outputs: Outputs, gold: Gold, options: ReplyOptions, arrays: Arrays
    ) -> Predictions:
        """Decodes the outputs of the head, of all records, to predictions by id."""
        predictions = self.predict(outputs, gold, options, arrays)
        return dict(zip((row["id"] for row in gold), predictions, strict=True))

    def predict(
        self, answers: Outputs, gold: Gold, options: ReplyOptions, arrays: Arrays
    ) -> list[Prediction]:
        """Returns the prediction of each example: by default the answers that `fields` names.

        And `num_layers`, how many layers ran, where a model leaves them early.
        """
        layers = {name: name for name in ("num_layers",) if name in answers}
        needed = {*self.fields.values(), *layers, "num_labels"} & answers.keys()
        return [
            {name: row[x] for name, x in {**self.fields, **layers}.items()}
            for row in replies.to_rows({name: answers[name] for name in needed})
        ]

    def reply(
        self, answers: Outputs, gold: Gold, options: ReplyOptions, arrays: Arrays
    ) -> list[Row]:
        """Returns what a server replies to each text: by default all answers."""
        return [replies.name_probabilities(row) for row in replies.to_rows(answers)]

    def is_sound(self, prediction: Prediction, labels: Sequence[str]) -> bool:
        """Whether a prediction is as `decode` returns it, and finite."""
        values = prediction.get("probabilities")
        return self.is_plain(prediction.get("prediction"), labels) and (
            "probabilities" not in self.fields
            or (
                isinstance(values, list)
                and len(values) == len(labels)
                and all(map(is_probability, values))
            )
        )

    def is_plain(self, value: Any, labels: Sequence[str]) -> bool:
        """Whether a value is what `decode` puts under `prediction`, for files of other programs."""
        return isinstance(value, str) and value in labels

    def average(self, members: Sequence[Prediction], labels: Sequence[str]) -> Prediction:
        """Returns the prediction of an ensemble for one example."""
        raise UserError(f"predictions of {self.kind} have no average.")

    def describe(self, prediction: Prediction, labels: Sequence[str]) -> list[str]:
        """Returns the lines in which a terminal shows a prediction."""
        values = prediction.get("probabilities")
        return [f"{prediction['prediction']}{f' ({max(values):.3f})' if values else ''}"]


class LabelAnswer(Answer):
    """The answer of a classifier: labels, or a number, for a text or for a pair of texts."""

    parts = frozenset({"encoder", "pooler", "classifier"})
    labels_weight = "output_bias"
    has_exits = True

    def list_requests(self) -> dict[str, dict[str, list[Any]]]:
        return {TEXT: {TEXT: [SENTENCE]}, PAIR: {TEXT: [QUESTION], PAIR: [SENTENCE]}}

    def decode(
        self, outputs: Outputs, gold: Gold, options: ReplyOptions, arrays: Arrays
    ) -> Predictions:
        """Responds in float64, which scores are computed from."""
        with tf.device("CPU:0"):
            answers = self.respond({"logits": outputs["logits"].astype(np.float64)}, options)
        arrays_by_name = {name: np.asarray(x) for name, x in answers.items()}
        return super().decode(arrays_by_name, gold, options, arrays)


def average_field(members: Sequence[Prediction], name: str) -> dict[str, float]:
    return {name: float(np.mean([member[name] for member in members]))}


def is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value)


def is_probability(value: Any) -> bool:
    return is_number(value) and 0 <= value <= 1
