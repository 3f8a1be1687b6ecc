"""What a model answers: its network, what an export of it serves, and predictions."""

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
    Task,
    Tensors,
)
from albert_tf.records import features
from albert_tf.train_config import FinetuneConfig

# Names of signatures and of their inputs.
TEXT, PAIR = "text", "text_pair"
# The texts of an example of a request.
SENTENCE = "The museum opens at nine and closes at five."
QUESTION = "When does the museum open?"
# The values of `Answer.truncation_note`.
CUT = "; of a longer text the end is not read, and no reply says so"
WINDOWS = "; a longer text is read in windows that overlap"
# {method of TensorFlow Serving: {its output: ours}}
_REPLIES = {
    "classify": {"classes": "classes", "scores": "probabilities"},
    "regress": {"outputs": "value"},
}


@dataclass(frozen=True)
class Answer:
    """The network of a kind, and what its outputs say; by default the encoder.

    `options` are `export.model_kinds.Options`.

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
        asked: how texts are packed and answered, a key of `export.signatures.ANSWERS`.
        reply: the method of TensorFlow Serving for serialised examples, if it is not predict.
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
    reply: ClassVar[str] = ""
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

    def apply(self, network: Any, ids: Tensors) -> dict[str, Any]:
        """Returns the outputs of the head; ids [B, S], of choices [B * C, S]."""
        outputs = dict(network.apply({name: ids[name] for name in TOKENS}, ids))
        outputs.pop("exit_logits", None)  # of all heads, where nothing says when to leave
        return outputs

    def serve(self, network: Any, ids: Tensors, options: Any) -> dict[str, Any]:
        """Returns the outputs, by name, for checked token ids: by default those of the head."""
        return self.apply(network, ids)

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

    def to_reply(self, outputs: Tensors) -> dict[str, Any]:
        """Returns the outputs as `reply` has them."""
        names = _REPLIES.get(self.reply) or {name: name for name in outputs}
        return {theirs: outputs[ours] for theirs, ours in names.items()}

    def list_requests(self) -> dict[str, dict[str, list[Any]]]:
        """Returns {signature: {input of text: those of an example}}, the most usual first."""
        return {TEXT: {TEXT: [SENTENCE]}}

    def complete_labels(self, labels: tuple[str, ...], size: int, source: str) -> tuple[str, ...]:
        """Returns the labels of a head of `size` outputs: classes without labels are numbered."""
        return labels or tuple(map(str, range(0 if self.num_outputs else size)))

    # Predictions of examples.

    def decode(
        self, outputs: Outputs, gold: Gold, task: Task, config: FinetuneConfig, arrays: Arrays
    ) -> Predictions:
        """Decodes the model's outputs of all records; `arrays` are those of `Data.files`."""
        raise NotImplementedError

    def is_sound(self, prediction: Prediction, labels: Sequence[str]) -> bool:
        """Whether a prediction is as `decode` returns it, and finite."""
        raise NotImplementedError

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


class Encoder(Answer):
    """A vector for each token of a text."""

    description = "gives a vector for each token of a text"
    asked = "tokens"

    def serve(self, network: Any, ids: Tensors, options: Any) -> dict[str, Any]:
        outputs = network(ids, skips_padding=True)
        return {
            name: tf.cast(outputs[name], tf.float32)
            for name in ("sequence_output", "pooled_output")
        }


class FillMask(Answer):
    """Guesses for each [MASK]."""

    description = "guesses the words behind [MASK]"
    view = "guesses"
    asked = "masks"
    parts = frozenset({"encoder", "masked_lm"})
    more_inputs = (features.MASKED_LM_POSITIONS,)
    choices = ("top_k",)
    truncation_note = f"{CUT}: a [MASK] in it has no guesses"

    def make_network(self, config: Any, options: Any) -> Any:
        from albert_tf.model import albert_model

        return albert_model.AlbertForPretraining(config, seed=None, dtype=options.dtype)

    def serve(self, network: Any, ids: Tensors, options: Any) -> dict[str, Any]:
        positions = ids[features.MASKED_LM_POSITIONS]
        choices = {"positions": positions, "pooled": False, "skips_padding": True}
        outputs = network.albert({name: ids[name] for name in TOKENS}, **choices)
        logits = tf.cast(network.masked_lm(outputs["sequence_output"]), tf.float32)  # [B, P, V]
        best = tf.math.top_k(tf.nn.softmax(logits), min(options.top_k, logits.shape[-1]))
        guesses = {"top_ids": best.indices, "top_probabilities": best.values}
        return {"masked_lm_logits": logits, **guesses}

    def list_requests(self) -> dict[str, dict[str, list[Any]]]:
        return {TEXT: {TEXT: ["The museum [MASK] at nine and [MASK] at five."]}}


def average_field(members: Sequence[Prediction], name: str) -> dict[str, float]:
    return {name: float(np.mean([member[name] for member in members]))}


def is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value)


def is_probability(value: Any) -> bool:
    return is_number(value) and 0 <= value <= 1


def are_probabilities(values: Any, labels: Sequence[str]) -> bool:
    """Whether there is a probability for each label."""
    return (
        isinstance(values, list) and len(values) == len(labels) and all(map(is_probability, values))
    )
