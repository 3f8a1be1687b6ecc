"""What a model answers: its network, and what the outputs of the network say.

Only `Answer.respond` turns outputs into answers. Evaluation calls it eagerly; a model in Python
and an export trace it.
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
# The texts of an example request.
SENTENCE = "The museum opens at nine and closes at five."
QUESTION = "When does the museum open?"
# The values of `Answer.truncation_note`.
CUT = "Longer texts are truncated silently."
WINDOWS = "Longer texts are read in overlapping windows."


@dataclass(frozen=True)
class Answer:
    """The network of a kind, and how its outputs become answers.

    Attributes:
        kind: its name, for messages.
        head: the name of the class of `task_heads` of an exported model; "" if it has no head.
        description: completes the sentence "An ALBERT that ...".
        parts: the names in `weight_names.parts` that a checkpoint must have.
        labels_weight: the weight with one value for each label, if the outputs are labels.
        num_outputs: the number of outputs of an exported head; 0 means one for each label.
        more_inputs: inputs in addition to the ids, int32 [B, ...].
        rank: the rank of the ids: 2 for [B, S], 3 for [B, C, S].
        choices: the optional export flags that apply to the kind.
        truncation_note: what happens to a text that is too long, for the model card.
        view: how bin/demo shows the answers, a key of `demo.VIEWS`.
        asked: how a graph packs texts, a key of `export.signatures.ASKED`.
        method: TensorFlow Serving's method for serialized examples, if it is not predict.
        fields: {field of a prediction: the output of `respond` that fills it}.
        gives_vectors: whether the output for a text is its embedding, and predictions compare them.
        has_exits: whether each layer can have a head.
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
        """Returns the class of the head, from `task_heads`."""
        from albert_tf.model import task_heads

        return getattr(task_heads, self.head)

    def make_network(self, config: Any, options: Any) -> Any:
        """Returns the network of an export, with all weights zero."""
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
        """Returns the shapes of the checkpoint weights that an export needs."""
        from albert_tf.model import early_exit, weight_names

        shapes = weight_names.list_shapes(config.albert, *self.parts)
        if config.early_exit and self.has_exits:
            return shapes | early_exit.list_weights(config.albert, weights, source)
        if config.early_exit:
            logging.info(f"--kind={self.kind} always runs all layers: early_exit has no effect.")
        return shapes

    def describe_settings(self, config: FinetuneConfig) -> str:
        """Returns what the card of an export says about the settings that affect answers."""
        if not config.exit_patience or not self.has_exits:
            return ""
        return (
            f"Patience is {config.exit_patience}: inference stops when that many heads in a "
            "row agree with\nthe one before. An answer does not depend on the other rows of a "
            "request."
        )

    def list_requests(self) -> dict[str, dict[str, list[Any]]]:
        """Returns {signature: {text input: example texts}}, the most common first."""
        return {TEXT: {TEXT: [SENTENCE]}}

    def complete_labels(self, labels: tuple[str, ...], size: int, source: str) -> tuple[str, ...]:
        """Returns the labels of a head with `size` outputs; classes without labels get numbers."""
        return labels or tuple(map(str, range(0 if self.num_outputs else size)))

    # Tensors: from token ids to answers.

    def apply(self, network: Any, ids: Tensors, options: ReplyOptions) -> dict[str, Any]:
        """Returns the outputs of the head; ids are [B, S], or [B, C, S] for choices."""
        outputs = dict(network.apply({name: ids[name] for name in TOKENS}, ids))
        outputs.pop("exit_logits", None)  # of all heads, if no exit rule is set
        return outputs

    def respond(self, outputs: Tensors, options: ReplyOptions) -> dict[str, Any]:
        """Returns the answers by name: by default the outputs. Keeps their dtype."""
        return dict(outputs)

    def respond_to_texts(self, answers: Tensors, ids: Tensors, tokenizer: Any) -> dict[str, Any]:
        """Turns the answers for ids into the answers for texts: by default the same."""
        return dict(answers)

    # Predictions of examples, and replies to texts; `arrays` are the arrays in `Data.files`.

    def decode(
        self, outputs: Outputs, gold: Gold, options: ReplyOptions, arrays: Arrays
    ) -> Predictions:
        """Decodes the outputs of the head for all records into predictions by id."""
        predictions = self.predict(outputs, gold, options, arrays)
        return dict(zip((row["id"] for row in gold), predictions, strict=True))

    def predict(
        self, answers: Outputs, gold: Gold, options: ReplyOptions, arrays: Arrays
    ) -> list[Prediction]:
        """Returns the prediction for each example: by default the answers listed in `fields`.

        With early exit, `num_layers` says how many layers ran.
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
        """Returns the server's reply to each text: by default all answers."""
        return [replies.name_probabilities(row) for row in replies.to_rows(answers)]

    def is_sound(self, prediction: Prediction, labels: Sequence[str]) -> bool:
        """Returns whether a prediction looks like the output of `decode` and is finite."""
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
        """Returns whether a value from another program looks like `prediction` of `decode`."""
        return isinstance(value, str) and value in labels

    def average(self, members: Sequence[Prediction], labels: Sequence[str]) -> Prediction:
        """Returns an ensemble's prediction for one example."""
        raise UserError(f"predictions of {self.kind} cannot be averaged.")

    def describe(self, prediction: Prediction, labels: Sequence[str]) -> list[str]:
        """Returns a prediction as lines for a terminal."""
        values = prediction.get("probabilities")
        return [f"{prediction['prediction']}{f' ({max(values):.3f})' if values else ''}"]


class LabelAnswer(Answer):
    """The answer of a classifier or regressor: labels or a number for a text or a pair."""

    parts = frozenset({"encoder", "pooler", "classifier"})
    labels_weight = "output_bias"
    has_exits = True

    def list_requests(self) -> dict[str, dict[str, list[Any]]]:
        return {TEXT: {TEXT: [SENTENCE]}, PAIR: {TEXT: [QUESTION], PAIR: [SENTENCE]}}

    def decode(
        self, outputs: Outputs, gold: Gold, options: ReplyOptions, arrays: Arrays
    ) -> Predictions:
        """Responds in float64: scores are computed from it."""
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
