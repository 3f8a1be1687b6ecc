"""Makes the signatures of a SavedModel: of raw text, token ids and serialised examples.

All of a model's end in one and the same function of token ids, so that its graph is stored once.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.errors import UserError
from albert_tf.export import serving_api
from albert_tf.export.graph_tokenizer.graph_tokenizer import GraphTokenizer, make_tokenizer
from albert_tf.export.model_kinds import ExportedModel
from albert_tf.export.requests import answer_ops, packing, tag_ops, text_requests, token_ids
from albert_tf.export.requests.token_ids import Tensors
from albert_tf.export.serving_api import Function, Signature
from albert_tf.kinds.answer import PAIR, TEXT
from albert_tf.kinds.spans.qa_windows import AnswerOptions
from albert_tf.model import xla
from albert_tf.records import features
from albert_tf.train_config import FinetuneConfig


def make_signatures(model: ExportedModel) -> dict[str, Signature]:
    """Returns all signatures of a model, by name; the default one first.

    Raises `UserError` as `make_text_signatures` does.
    """
    specs = token_ids.make_specs(model.inputs, model.answer.rank)

    def compute(batch: Mapping[str, tf.Tensor]) -> Tensors:
        checked = {**batch, **token_ids.check(batch, model.config)}
        with xla.trace_options(checks_values=False):
            return model.compute_outputs(checked)

    answer = tf.function(compute, input_signature=[specs], autograph=False)
    signatures = make_text_signatures(model, answer) if model.options.text else {}
    ids = _make_example_ids(model)
    signatures[serving_api.TOKEN_IDS] = Signature(specs, answer, ids)
    reply = model.answer.reply
    name = reply or serving_api.EXAMPLES
    method = f"tensorflow/serving/{reply or 'predict'}"
    choices = len(model.options.labels) if model.answer.rank == 3 else 1

    def parse_and_compute(batch: Mapping[str, tf.Tensor]) -> Tensors:
        outputs = answer(token_ids.parse_examples(batch["inputs"], model.inputs, choices))
        return model.answer.to_reply(outputs)

    example = features.to_example({key: np.ravel(value) for key, value in ids.items()})
    signatures[name] = _make_signature(parse_and_compute, {"inputs": [example]}, method)
    return {serving_api.DEFAULT: next(iter(signatures.values())), **signatures}


def _make_signature(
    function: Function, example: Mapping[str, list], method: str = serving_api.PREDICT
) -> Signature:
    """Returns a signature of strings; all its axes are open."""
    constants = {name: tf.constant(value) for name, value in example.items()}
    inputs = {
        name: tf.TensorSpec([None] * value.shape.rank, tf.string, name)
        for name, value in constants.items()
    }
    return Signature(inputs, function, constants, method)


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


class _TextModel(NamedTuple):
    """A model, its tokenizer, and its function of token ids."""

    model: ExportedModel
    tokenizer: GraphTokenizer
    answer: Function

    @property
    def config(self) -> FinetuneConfig:
        return self.model.options.run_config

    def _answer_windows(self, batch: packing.Batch) -> Any:
        """Returns the outputs for any number of windows, a batch after the other."""
        return answer_ops.run_in_batches(self.answer, batch)

    def _pack(self, inputs: Mapping[str, tf.Tensor]) -> packing.Batch:
        """Packs a text, or a pair of texts."""
        ids = {name: self.tokenizer.tokenize(texts) for name, texts in inputs.items()}
        vocabulary, length = self.tokenizer.vocabulary, self.config.max_seq_length
        return packing.pack(ids[TEXT], ids.get(PAIR), vocabulary, length)

    def answer_texts(self, inputs: Mapping[str, tf.Tensor]) -> Tensors:
        return self.answer(self._pack(inputs))

    def answer_tokens(self, inputs: Mapping[str, tf.Tensor]) -> Tensors:
        """Returns the outputs and the ids, which tell the tokens."""
        batch = self._pack(inputs)
        names = (features.INPUT_IDS, features.INPUT_MASK)
        return {**self.answer(batch), **{name: batch[name] for name in names}}

    def guess_masks(self, inputs: Mapping[str, tf.Tensor]) -> Tensors:
        length, vocabulary = self.config.max_seq_length, self.tokenizer.vocabulary
        batch = text_requests.pack_masked(inputs[TEXT], self.tokenizer, length)
        positions = batch[features.MASKED_LM_POSITIONS]
        return text_requests.decode_guesses(self.answer(batch), positions, vocabulary)

    def answer_choices(self, inputs: Mapping[str, tf.Tensor]) -> Tensors:
        return self.answer(text_requests.pack_choices(inputs, self.tokenizer, self.config))

    def answer_questions(self, inputs: Mapping[str, tf.Tensor]) -> Tensors:
        config, names = self.config, self.model.inputs
        threshold = self.model.options.null_threshold
        read = answer_ops.make_reader(
            lambda batch: self._answer_windows({name: batch[name] for name in names}),
            self.tokenizer,
            config,
            AnswerOptions(threshold is not None, config.n_best_size, config.max_answer_length),
            null_threshold=threshold or 0.0,
        )
        return read(inputs["question"], inputs["context"])

    def mark_spans(self, inputs: Mapping[str, tf.Tensor]) -> Tensors:
        labels = self.model.options.labels
        tag = tag_ops.make_tagger(self._answer_windows, self.tokenizer, self.config, labels)
        return tag(inputs[TEXT])


ANSWERS: Mapping[str, Callable[[_TextModel, Tensors], Tensors]] = {
    "texts": _TextModel.answer_texts,
    "tokens": _TextModel.answer_tokens,
    "masks": _TextModel.guess_masks,
    "choices": _TextModel.answer_choices,
    "questions": _TextModel.answer_questions,
    "spans": _TextModel.mark_spans,
}


def make_text_signatures(model: ExportedModel, answer: Function) -> dict[str, Signature]:
    """Returns the signatures of raw text by name, the most usual first.

    `answer` is the model's function of token ids.

    Raises `UserError` if the model has no vocabulary, or one that a graph cannot follow.
    """
    if model.tokenizer is None:
        raise UserError(f"{model.source} has no vocabulary: put it there, or take --text=false.")
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
    return ANSWERS[model.answer.asked](text_model, texts)
