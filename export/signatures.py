"""Makes the signatures of a SavedModel.

All of a model's end in one and the same function of token ids, so that its graph is stored once.
"""

from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from albert_tf.records import features
from export import text_signatures
from export.model_kinds import ExportedModel
from export.requests import token_ids
from export.requests.token_ids import Tensors
from export.serving_api import (
    CLASSIFY,
    DEFAULT,
    EXAMPLES,
    PREDICT,
    REGRESS,
    TOKEN_IDS,
    Function,
    Signature,
)


def make(model: ExportedModel) -> dict[str, Signature]:
    """Returns all signatures of a model, by name; the default one first.

    Raises:
        UserError: see `text_signatures.make`.
    """
    specs = token_ids.make_specs(model.inputs, model.kind.rank)

    def compute(batch: Mapping[str, tf.Tensor]) -> Tensors:
        return model.compute_outputs({**batch, **token_ids.check(batch, model.config)})

    answer = tf.function(compute, input_signature=[specs], autograph=False)
    signatures = text_signatures.make(model, answer) if model.options.text else {}
    example = _make_example_ids(model)
    signatures[TOKEN_IDS] = Signature(specs, answer, example)
    name, method, _ = REPLIES.get(model.options.kind, (EXAMPLES, PREDICT, None))
    serialized = features.to_example(
        {name: tf.reshape(value, [-1]).numpy() for name, value in example.items()}
    )
    signatures[name] = Signature(
        {"inputs": tf.TensorSpec([None], tf.string, "inputs")},
        _make_examples_function(model, answer),
        {"inputs": tf.constant([serialized])},
        method,
    )
    return {DEFAULT: next(iter(signatures.values())), **signatures}


def _make_examples_function(model: ExportedModel, answer: Function) -> Function:
    """Returns the function of serialised examples; its outputs are those of the server's method."""
    choices = len(model.options.labels) if model.kind.rank == 3 else 1
    _, _, convert = REPLIES.get(model.options.kind, (EXAMPLES, PREDICT, None))

    def compute(batch: Mapping[str, tf.Tensor]) -> Tensors:
        outputs = answer(token_ids.parse_examples(batch["inputs"], model.inputs, choices))
        return convert(outputs, model) if convert else outputs

    return compute


def _to_classes(outputs: Tensors, model: ExportedModel) -> Tensors:
    scores = outputs["probabilities"]
    labels = tf.constant(model.options.labels)
    return {"classes": tf.broadcast_to(labels, tf.shape(scores)), "scores": scores}


def _to_value(outputs: Tensors, model: ExportedModel) -> Tensors:
    return {"outputs": outputs["value"]}


# {kind: (name of the signature of examples, method, conversion of the outputs)}
REPLIES: Mapping[str, tuple[str, str, Callable[[Tensors, ExportedModel], Tensors]]] = {
    "classification": ("classify", CLASSIFY, _to_classes),
    "multiple_choice": ("classify", CLASSIFY, _to_classes),
    "regression": ("regress", REGRESS, _to_value),
}


def _make_example_ids(model: ExportedModel) -> Tensors:
    """Returns the token ids of one request, of a usual length."""
    config = model.config
    length = min(model.options.run_config.max_seq_length, config.max_position_embeddings, 128)
    shape = model.shape_ids(1, length)
    segments = np.arange(length) * 2 // length * (config.type_vocab_size > 1)
    values = {
        features.INPUT_IDS: np.random.default_rng(0).integers(0, config.vocab_size, shape),
        features.INPUT_MASK: np.ones(shape),
        features.SEGMENT_IDS: np.broadcast_to(segments, shape),
        features.P_MASK: np.broadcast_to(1 - segments, shape),
        features.MASKED_LM_POSITIONS: np.zeros([1, 1]),
    }
    return {name: tf.constant(values[name], tf.int32) for name in model.inputs}
