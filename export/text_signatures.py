"""The signatures that take raw text: cleaning, cutting into pieces and answers are in the graph."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import tensorflow as tf

from albert_tf.errors import UserError
from albert_tf.records import features
from albert_tf.tasks.span_decoding import AnswerOptions
from albert_tf.tokenizers import tokenization
from export.graph_tokenizer.graph_tokenizer import GraphTokenizer, make_tokenizer
from export.model_kinds import ExportedModel
from export.requests import answer_ops, choice_requests, mask_requests, packing
from export.requests.packing import SpecialIds
from export.requests.token_ids import Tensors
from export.serving_api import Function, Signature

TEXT, PAIR = "text", "text_pair"
_SENTENCE = "The museum opens at nine and closes at five."
_QUESTION = "When does the museum open?"


class _Tools(NamedTuple):
    """What turns texts into ids, and ids into answers."""

    model: ExportedModel
    vocabulary: tokenization.Tokenizer
    tokenizer: GraphTokenizer
    special: SpecialIds
    answer: Function


def make(model: ExportedModel, answer: Function) -> dict[str, Signature]:
    """The signatures by name, the most usual first.

    Args:
        model: the model.
        answer: token ids -> outputs.

    Raises:
        UserError: the model has no vocabulary, or one that a graph cannot follow.
    """
    if model.tokenizer is None:
        raise UserError(f"{model.source} has no vocabulary: put it there, or take --text=false.")
    tools = _Tools(
        model,
        model.tokenizer,
        make_tokenizer(model.tokenizer),
        packing.get_special_ids(model.tokenizer),
        answer,
    )
    return {name: make(tools) for name, make in _signatures(model).items()}


def _signatures(model: ExportedModel) -> Mapping[str, Callable[[_Tools], Signature]]:
    found, has_pairs = _SIGNATURES[model.options.kind], model.options.has_pairs
    if PAIR not in found or has_pairs is None:
        return found
    # What it was not trained on, it would answer with nonsense.
    name = PAIR if has_pairs else TEXT
    return {name: found[name]}


def _signature(function: Function, **example: list) -> Signature:
    constants = {name: tf.constant(value) for name, value in example.items()}
    inputs = {
        name: tf.TensorSpec([None] * value.shape.rank, tf.string, name)
        for name, value in constants.items()
    }
    return Signature(inputs, function, constants)


def _of_text(tools: _Tools) -> Signature:
    def function(inputs: Mapping[str, tf.Tensor]) -> Tensors:
        ids = tools.tokenizer.tokenize(inputs[TEXT])
        return tools.answer(packing.pack(ids, None, tools.special, _length(tools)))

    return _signature(function, text=[_SENTENCE])


def _of_pair(tools: _Tools) -> Signature:
    def function(inputs: Mapping[str, tf.Tensor]) -> Tensors:
        first, second = (tools.tokenizer.tokenize(inputs[name]) for name in (TEXT, PAIR))
        return tools.answer(packing.pack(first, second, tools.special, _length(tools)))

    return _signature(function, text=[_QUESTION], text_pair=[_SENTENCE])


def _of_tokens(tools: _Tools) -> Signature:
    """Of each token also which one it is."""

    def function(inputs: Mapping[str, tf.Tensor]) -> Tensors:
        ids = tools.tokenizer.tokenize(inputs[TEXT])
        batch = packing.pack(ids, None, tools.special, _length(tools))
        shown = {name: batch[name] for name in (features.INPUT_IDS, features.INPUT_MASK)}
        return {**tools.answer(batch), **shown}

    return _signature(function, text=[_SENTENCE])


def _of_masks(tools: _Tools) -> Signature:
    def function(inputs: Mapping[str, tf.Tensor]) -> Tensors:
        batch = mask_requests.pack(inputs[TEXT], tools.tokenizer, tools.vocabulary, _length(tools))
        outputs = tools.answer(batch)
        positions = batch[features.MASKED_LM_POSITIONS]
        best = outputs["top_ids"], outputs["top_probabilities"]
        return dict(mask_requests.guesses(*best, positions, tools.vocabulary))

    return _signature(function, text=["The museum [MASK] at nine and [MASK] at five."])


def _of_choices(tools: _Tools) -> Signature:
    settings = tools.model.options.run_config

    def function(inputs: Mapping[str, tf.Tensor]) -> Tensors:
        batch = choice_requests.pack(
            inputs["passage"],
            inputs["question"],
            inputs["options"],
            tools.tokenizer,
            tools.special,
            max_seq_length=_length(tools),
            max_qa_length=settings.max_qa_length,
        )
        return tools.answer(batch)

    labels = tools.model.options.labels
    options = [f"At {number}." for number in range(8, 8 + len(labels))]
    return _signature(function, passage=[_SENTENCE], question=[_QUESTION], options=[options])


def _of_question(tools: _Tools) -> Signature:
    options, settings = tools.model.options, tools.model.options.run_config
    names = tools.model.inputs
    read = answer_ops.make_reader(
        lambda batch: tools.answer({name: batch[name] for name in names}),
        tools.tokenizer,
        tools.special,
        settings,
        AnswerOptions(options.may_be_none, settings.n_best_size, settings.max_answer_length),
        null_threshold=options.null_threshold,
    )
    return _signature(
        lambda inputs: read(inputs["question"], inputs["context"]),
        question=[_QUESTION],
        context=[_SENTENCE],
    )


def _length(tools: _Tools) -> int:
    return tools.model.options.run_config.max_seq_length


_OF_TEXTS = {TEXT: _of_text, PAIR: _of_pair}
_SIGNATURES: Mapping[str, Mapping[str, Callable[[_Tools], Signature]]] = {
    "encoder": {TEXT: _of_tokens},
    "sentence_embedding": {TEXT: _of_text},
    "fill_mask": {TEXT: _of_masks},
    "classification": _OF_TEXTS,
    "regression": _OF_TEXTS,
    "multiple_choice": {"question": _of_choices},
    "span": {"question": _of_question},
    "span_or_none": {"question": _of_question},
}
