"""Makes the signatures of a SavedModel: raw text, token ids and serialized examples.

All of them call the same function of token ids, so that its graph is stored once.
"""

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.errors import UserError
from albert_tf.export import serving_api
from albert_tf.export.graph_tokenizer.graph_tokenizer import GraphTokenizer, make_tokenizer
from albert_tf.export.model_kinds import ExportedModel
from albert_tf.export.requests import (
    answer_ops,
    packing,
    tag_ops,
    text_requests,
    token_ids,
    window_ops,
)
from albert_tf.export.requests.token_ids import Tensors
from albert_tf.export.serving_api import Function, Signature
from albert_tf.kinds.answer import PAIR, TEXT
from albert_tf.kinds.spans.qa_windows import AnswerOptions
from albert_tf.model import xla
from albert_tf.records import features
from albert_tf.train_config import FinetuneConfig

# {`Answer.method` with its own output names: {its output: ours}}
_METHODS = {
    "classify": {"classes": "classes", "scores": "probabilities"},
    "regress": {"outputs": "value"},
}


def make_signatures(model: ExportedModel) -> dict[str, Signature]:
    """Returns all signatures of a model, by name; the default one first.

    Raises `UserError` as `make_text_signatures` does.
    """
    specs, ids = token_ids.make_specs(model.inputs, model.answer.rank), _make_example_ids(model)
    is_raw = model.options.signatures == "one"

    def compute(batch: Mapping[str, tf.Tensor]) -> Tensors:
        checked = {**batch, **token_ids.check(batch, model.config)}
        with xla.trace_options(checks_values=False):
            if is_raw:
                outputs = model.answer.apply(model.network, checked, model.options)
                return {name: x for name, x in outputs.items() if name not in specs}
            return model.compute_outputs(checked)

    if is_raw:
        return {serving_api.DEFAULT: Signature(specs, compute, ids)}
    answer = tf.function(compute, input_signature=[specs], autograph=False)
    signatures = make_text_signatures(model, answer) if model.options.text else {}
    signatures[serving_api.TOKEN_IDS] = Signature(specs, answer, ids)
    method = model.answer.method
    name, path = method or serving_api.EXAMPLES, f"tensorflow/serving/{method or 'predict'}"
    choices = len(model.options.labels) if model.answer.rank == 3 else 1

    def parse_and_compute(batch: Mapping[str, tf.Tensor]) -> Tensors:
        outputs = answer(token_ids.parse_examples(batch["inputs"], model.inputs, choices))
        names = _METHODS.get(method) or {name: name for name in outputs}
        return {theirs: outputs[ours] for theirs, ours in names.items()}

    example = features.to_example({key: np.ravel(value) for key, value in ids.items()})
    signatures[name] = _make_signature(parse_and_compute, {"inputs": [example]}, path)
    return {serving_api.DEFAULT: next(iter(signatures.values())), **signatures}


def _make_signature(
    function: Function, example: Mapping[str, list], method: str = serving_api.PREDICT
) -> Signature:
    """Returns a signature for strings, with axes of any size."""
    constants = {name: tf.constant(value) for name, value in example.items()}
    inputs = {
        name: tf.TensorSpec([None] * value.shape.rank, tf.string, name)
        for name, value in constants.items()
    }
    return Signature(inputs, function, constants, method)


def _make_example_ids(model: ExportedModel) -> Tensors:
    """Returns the token ids of one request of a usual length."""
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


class _TextModel(NamedTuple):
    """A model, its tokenizer, and its function of token ids."""

    model: ExportedModel
    tokenizer: GraphTokenizer
    answer: Function

    @property
    def config(self) -> FinetuneConfig:
        return self.model.options.run_config

    def _answer_packed(self, batch: packing.Batch) -> Tensors:
        vocabulary = self.tokenizer.vocabulary
        return self.model.answer.respond_to_texts(self.answer(batch), batch, vocabulary)

    def answer_texts(self, inputs: Mapping[str, tf.Tensor]) -> Tensors:
        """Answers a text, or a pair of texts."""
        ids = {name: self.tokenizer.tokenize(texts) for name, texts in inputs.items()}
        vocabulary, length = self.tokenizer.vocabulary, self.config.max_seq_length
        return self._answer_packed(packing.pack(ids[TEXT], ids.get(PAIR), vocabulary, length))

    def guess_masks(self, inputs: Mapping[str, tf.Tensor]) -> Tensors:
        length = self.config.max_seq_length
        batch = text_requests.pack_masked(inputs[TEXT], self.tokenizer, length)
        return self._answer_packed(batch)

    def answer_choices(self, inputs: Mapping[str, tf.Tensor]) -> Tensors:
        batch = text_requests.pack_choices(inputs, self.tokenizer, self.config)
        return self._answer_packed(batch)

    def answer_questions(self, inputs: Mapping[str, tf.Tensor]) -> Tensors:
        texts, names = (inputs["question"], inputs["context"]), self.model.inputs
        windows, batch = window_ops.pack(*texts, self.tokenizer, self.config)
        outputs = window_ops.run_in_batches(self.answer, {name: batch[name] for name in names})
        config, threshold = self.config, self.model.options.null_threshold
        sizes = config.n_best_size, config.max_answer_length
        options = AnswerOptions(threshold is not None, *sizes)
        return answer_ops.answer(outputs, windows, inputs["context"], options, threshold or 0.0)

    def mark_spans(self, inputs: Mapping[str, tf.Tensor]) -> Tensors:
        windows, rows, batch = window_ops.pack_texts(inputs[TEXT], self.tokenizer, self.config)
        logits = window_ops.run_in_batches(self.answer, batch)["logits"]
        return tag_ops.tag(logits, windows, rows, inputs[TEXT], self.model.options.labels)


# {`Answer.asked`: function from texts, by input name, to the reply}
ASKED: Mapping[str, Callable[[_TextModel, Tensors], Tensors]] = {
    "texts": _TextModel.answer_texts,
    "masks": _TextModel.guess_masks,
    "choices": _TextModel.answer_choices,
    "questions": _TextModel.answer_questions,
    "spans": _TextModel.mark_spans,
}


def make_text_signatures(model: ExportedModel, answer: Function) -> dict[str, Signature]:
    """Returns the raw-text signatures by name, the most common first.

    `answer` is the model's function of token ids.

    Raises `UserError` if the model has no vocabulary, or one that graphs do not support.
    """
    if model.tokenizer is None:
        raise UserError(f"{model.source} has no vocabulary: put it there, or use --text=false.")
    text_model = _TextModel(model, make_tokenizer(model.tokenizer), answer)
    signatures = {}
    for name, example in model.list_requests().items():
        if "options" in example:
            options = [f"At {hour}." for hour in range(8, 8 + len(model.options.labels))]
            example = {**example, "options": [options]}
        signatures[name] = _make_signature(functools.partial(_answer_checked, text_model), example)
    return signatures


def _answer_checked(text_model: _TextModel, inputs: Mapping[str, tf.Tensor]) -> Tensors:
    model = text_model.model
    texts = token_ids.check_texts(inputs, model.options.max_text_bytes)
    return ASKED[model.answer.asked](text_model, texts)
