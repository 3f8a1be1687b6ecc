"""The signatures of a SavedModel: what it can be asked.

All of a model's end in one and the same function of token ids, so that its graph is stored once.
"""

from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from albert_tf.records import features, task_table
from export import text_signatures
from export.export_source import Source
from export.requests import token_ids
from export.requests.serving_signature import CLASSIFY, PREDICT, REGRESS, Function, Signature
from export.requests.token_ids import Tensors

# Names of signatures. What needs no name is the first of text or, without text, the ids.
DEFAULT, TOKEN_IDS, EXAMPLES = "serving_default", "token_ids", "examples"


def make(source: Source) -> dict[str, Signature]:
    """All signatures of a model, by name."""
    answer = _answer(source)
    found = text_signatures.make(source, answer) if source.options.text else {}
    found[TOKEN_IDS] = Signature(_specs(source), answer, _ids(source))
    found |= _of_examples(source, answer)
    return {DEFAULT: next(iter(found.values())), **found}


def _specs(source: Source) -> dict[str, tf.TensorSpec]:
    return token_ids.specs(source.inputs, source.kind.rank)


def _answer(source: Source) -> Function:
    """Token ids -> outputs: one graph for all the signatures that call it."""

    def answer(batch: Mapping[str, tf.Tensor]) -> Tensors:
        checked = token_ids.checked(batch, source.config)
        return source.kind.answer(source.network, {**batch, **checked}, source.options)

    return tf.function(answer, input_signature=[_specs(source)], autograph=False)


def _of_examples(source: Source, answer: Function) -> dict[str, Signature]:
    """The signature of serialised examples, in the form that the method of the server asks for."""
    name, method, reply = REPLIES.get(source.options.kind, (EXAMPLES, PREDICT, None))
    choices = len(source.options.labels) if source.kind.rank == 3 else 1

    def of_examples(batch: Mapping[str, tf.Tensor]) -> Tensors:
        outputs = answer(token_ids.parsed(batch["inputs"], source.inputs, choices))
        return reply(outputs, source) if reply else outputs

    values = {name: tf.reshape(value, [-1]).numpy() for name, value in _ids(source).items()}
    return {
        name: Signature(
            {"inputs": tf.TensorSpec([None], tf.string, "inputs")},
            of_examples,
            {"inputs": tf.constant([features.to_example(values)])},
            method,
        )
    }


def _as_classes(outputs: Tensors, source: Source) -> Tensors:
    scores = outputs["probabilities"]
    labels = tf.constant(source.options.labels)
    return {"classes": tf.broadcast_to(labels, tf.shape(scores)), "scores": scores}


def _as_value(outputs: Tensors, source: Source) -> Tensors:
    return {"outputs": outputs["value"]}


REPLIES: Mapping[str, tuple[str, str, Callable[[Tensors, Source], Tensors]]] = {
    task_table.CLASSIFICATION: ("classify", CLASSIFY, _as_classes),
    task_table.MULTIPLE_CHOICE: ("classify", CLASSIFY, _as_classes),
    task_table.REGRESSION: ("regress", REGRESS, _as_value),
}


def _ids(source: Source) -> Tensors:
    """Token ids of one request, of a usual length."""
    config = source.config
    length = min(source.options.settings.max_seq_length, config.max_position_embeddings, 128)
    choices = [len(source.options.labels)] if source.kind.rank == 3 else []
    shape = [1, *choices, length]
    segments = np.arange(length) * 2 // length * (config.type_vocab_size > 1)
    found = {
        features.INPUT_IDS: np.random.default_rng(0).integers(0, config.vocab_size, shape),
        features.INPUT_MASK: np.ones(shape),
        features.SEGMENT_IDS: np.broadcast_to(segments, shape),
        features.P_MASK: np.broadcast_to(1 - segments, shape),
        features.MASKED_LM_POSITIONS: np.zeros([1, 1]),
    }
    return {name: tf.constant(found[name], tf.int32) for name in source.inputs}
