"""What an exported model of a kind is: its weights, inputs, outputs, and requests of text."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

Tensors = Mapping[str, Any]
# Names of signatures and of their inputs.
TEXT, PAIR = "text", "text_pair"
# The texts of an example of a request.
SENTENCE = "The museum opens at nine and closes at five."
QUESTION = "When does the museum open?"
# {method of TensorFlow Serving: {its output: ours}}
_REPLIES = {
    "classify": {"classes": "classes", "scores": "probabilities"},
    "regress": {"outputs": "value"},
}
# The value of `Served.cut` where texts are read in windows.
WINDOWS = "; a longer text is read in windows that overlap"


@dataclasses.dataclass(frozen=True)
class Served:
    """A kind of exported model. `options` are `export.model_kinds.Options`.

    Attributes:
        name: in files and on the command line.
        description: completes the sentence "An ALBERT that ...".
        parts: of `weight_names.parts`, which a checkpoint must have.
        labels_weight: the weight with a number for each output of the head, if outputs are labels.
        more_inputs: inputs beside the ids, int32 [B, ...].
        rank: of the ids: 2 for [B, S], 3 for [B, C, S].
        choices: the flags of an export that mean something, of those that not all kinds have.
        cut: what becomes of a text that is too long, for the card of the model.
        view: how bin/demo shows its answers, a key of `demo.VIEWS`.
        asked: how texts are packed and answered, a key of `export.signatures.ANSWERS`.
        reply: the method of TensorFlow Serving for serialised examples, if it is not predict.
        has_label_thresholds: whether labels are predicted by thresholds, tuned on dev.
        may_be_none: whether a question may have no answer in the text.
    """

    name: str

    description: ClassVar[str] = ""
    parts: ClassVar[frozenset[str]] = frozenset({"encoder", "pooler"})
    labels_weight: ClassVar[str | None] = None
    more_inputs: ClassVar[tuple[str, ...]] = ()
    rank: ClassVar[int] = 2
    choices: ClassVar[tuple[str, ...]] = ()
    cut: ClassVar[str] = "; of a longer text the end is not read, and no reply says so"
    view: ClassVar[str] = "nearest"
    asked: ClassVar[str] = "texts"
    reply: ClassVar[str] = ""
    has_label_thresholds = False
    may_be_none = False

    def __str__(self) -> str:
        return self.name

    def make_network(self, config: Any, options: Any) -> Any:
        """Returns the network that the kind needs, the encoder, with weights of zeros."""
        from albert_tf.model import albert_model

        return albert_model.Albert(config, seed=None, dtype=options.dtype)

    def serve(self, network: Any, ids: Tensors, options: Any) -> dict[str, Any]:
        """Returns the outputs, by name, for checked token ids."""
        raise NotImplementedError

    def to_reply(self, outputs: Tensors) -> dict[str, Any]:
        """Returns the outputs as `reply` has them."""
        names = _REPLIES.get(self.reply) or {name: name for name in outputs}
        return {theirs: outputs[ours] for theirs, ours in names.items()}

    def list_requests(self) -> dict[str, dict[str, list[Any]]]:
        """Returns {signature: {input of text: those of an example}}, the most usual first."""
        return {TEXT: {TEXT: [SENTENCE]}}
