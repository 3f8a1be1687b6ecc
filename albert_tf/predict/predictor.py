"""A model that answers rows of texts: an export, or a checkpoint as an export of it answers.

    predictor = predictor.from_checkpoint(SourceConfig(checkpoint="reviews"))
    predictor([{"text": "The soup was cold."}])  # -> [{"label": "bad", "probabilities": {...}}]

A row is {input: text}, or of `options` a list of texts; an answer is {name: value} as in JSON. A
checkpoint is read by the tokenizer in Python and the Keras network; only an export has a tokenizer
in its graph.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.errors import UserError
from albert_tf.export import export_source, model_versions, saved_model, serving_api
from albert_tf.export.export_config import ExportConfig, SourceConfig
from albert_tf.export.model_kinds import ExportedModel, Options
from albert_tf.export.requests import token_ids
from albert_tf.kinds import task_table, text_data
from albert_tf.kinds.base import Kind, Task
from albert_tf.kinds.spans import span_decoding, tag_decoding
from albert_tf.kinds.spans.qa_windows import WINDOWS, WORDS, AnswerOptions
from albert_tf.kinds.text_data import TextData
from albert_tf.predict import text_network
from albert_tf.predict.text_network import Arrays, TextNetwork
from albert_tf.records import features
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train_config import FinetuneConfig

_IDS = (features.INPUT_IDS, features.INPUT_MASK)
# {output for the spans of a text: field of a span of `tag_decoding.predict`}
_SPAN_FIELDS = {
    "span_texts": "text",
    "span_types": "type",
    "span_starts": "start",
    "span_ends": "end",
    "span_scores": "score",
}

# What `export_source.read_source` returns.
Loaded = tuple[ModelCheckpoint, Task | None, FinetuneConfig]
Row = Mapping[str, Any]
Answer = dict[str, Any]
CountLosses = Callable[[Sequence[Row]], Mapping[str, int]]


@dataclass(frozen=True)
class Predictor:
    """Answers rows; see the module.

    Attributes:
        inputs: names of the texts of a row.
        gives_vectors: whether the answer is the embedding of a text.
        answer: rows -> their answers, in order; `tf.errors.InvalidArgumentError` for rows that the
            model does not take.
        count_losses: rows -> how many of them lose a part, or are unreadable.
        config: lengths of the model, for warnings of losses; None if an export does not tell them.
        columns: names of fields, by the flag that gives them, of the table that trained the model.
    """

    inputs: Sequence[str]
    gives_vectors: bool
    answer: Callable[[Sequence[Row]], list[Answer]]
    count_losses: CountLosses
    config: FinetuneConfig | None
    columns: Mapping[str, str | Sequence[str]] = field(default_factory=dict)

    def __call__(self, rows: Sequence[Row]) -> list[Answer]:
        """Returns the answers to rows, in their order; errors as of `answer`."""
        return self.answer(rows)


def find_version(model: str) -> str | None:
    """Returns the folder of the newest version of an export, or of the version named, if any."""
    versions = model_versions.list_versions(model)
    for folder in [model, *(os.path.join(model, str(number)) for number in versions[-1:])]:
        if tf.io.gfile.exists(os.path.join(folder, saved_model.GRAPH)):
            return folder
    return None


def load(source: SourceConfig, loaded: Loaded | None = None) -> Predictor:
    """Loads an export or a checkpoint, which may be `loaded` already."""
    if version := find_version(source.checkpoint):
        return from_export(version)
    return from_checkpoint(source, loaded)


def from_export(folder: str, names: Sequence[Sequence[str]] = ()) -> Predictor:
    """Loads an export: the signature of one of the inputs `names`, or else the default one.

    Raises `UserError` if it is damaged, takes token ids only, or has no such signature.
    """
    functions = saved_model.load(folder)
    function = functions.get(serving_api.DEFAULT)
    if names:
        taken = {frozenset(x.structured_input_signature[1]): x for x in functions.values()}
        function = next((taken[key] for key in map(frozenset, names) if key in taken), None)
    if function is None:
        wanted = "--text, or --text and --second_text" if names else "texts"
        raise UserError(
            f"--model: {folder} takes other inputs than {wanted}. "
            "Its MODEL.md lists them; give them in a file, as --input."
        )
    inputs = function.structured_input_signature[1]
    if any(spec.dtype != tf.string for spec in inputs.values()):
        raise UserError(f"{folder} takes token ids. Export it without --text=false.")

    def answer(rows: Sequence[Row]) -> list[Answer]:
        _check_options(rows)
        outputs = function(**{name: tf.constant([row[name] for row in rows]) for name in inputs})
        return to_answers({name: value.numpy() for name, value in outputs.items()})

    assets = saved_model.read_assets(folder)
    count_losses = _make_count_losses(*assets) if assets else _count_nothing
    gives_vectors = "embedding" in function.structured_outputs
    return Predictor([*inputs], gives_vectors, answer, count_losses, assets[-1] if assets else None)


def from_checkpoint(source: SourceConfig, loaded: Loaded | None = None) -> Predictor:
    """Loads a checkpoint of any format; one without a task guesses words.

    Raises `UserError` as `export_source.read` does, or if there is no vocabulary.
    """
    checkpoint, task, config = loaded or export_source.read_source(source)
    if task is None and source.kind is None:
        source = replace(source, kind="fill_mask")
    model = export_source.choose(ExportConfig(source=source), checkpoint, task, config)
    header = checkpoint.run.get("task", {}).get("columns", {})
    columns = {f"{name.removesuffix('s')}_column": value for name, value in header.items()}
    if choices := header.get("choices"):
        columns["choice_columns"] = choices
    return from_model(model, columns)


def from_model(
    model: ExportedModel, columns: Mapping[str, str | Sequence[str]] | None = None
) -> Predictor:
    """Returns the predictor of a model in memory; `UserError` if it has no vocabulary."""
    options = model.options
    if model.tokenizer is None:
        raise UserError(f"{model.source} has no vocabulary: put it there.")
    answer = _ANSWERS[model.answer.asked]

    def compute(ids: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        outputs = model.compute_outputs(ids)
        # They tell which token a vector is of.
        names = _IDS if model.answer.asked == "tokens" else ()
        return {**outputs, **{name: ids[name] for name in names}}

    network = TextNetwork(
        model.kind or task_table.KINDS[task_table.DEFAULT_KIND],
        model.tokenizer,
        options.labels,
        options.run_config,
        model.inputs,
        model.shape_ids(-1, options.run_config.max_seq_length),
        text_network.trace(compute, token_ids.make_specs(model.inputs, model.answer.rank)),
    )

    def answer_checked(rows: Sequence[Row]) -> list[Answer]:
        _check_options(rows, len(options.labels))
        _check_bytes(rows, options.max_text_bytes)
        return answer(network, options, rows)

    return Predictor(
        [*next(iter(model.list_requests().values()))],
        model.answer.gives_vectors,
        answer_checked,
        _make_count_losses(model.kind, model.tokenizer, options.run_config),
        options.run_config,
        columns or {},
    )


def _check_options(rows: Sequence[Row], number: int = 0) -> None:
    """Raises an error unless all rows have as many options, or this `number`."""
    sizes = {len(row["options"]) for row in rows if "options" in row}
    if len(sizes) > 1:
        raise tf.errors.InvalidArgumentError(None, None, "the numbers of options differ.")
    if number and sizes - {number}:
        message = f"every question must have {number} choices."
        raise tf.errors.InvalidArgumentError(None, None, message)


def _check_bytes(rows: Sequence[Row], most: int) -> None:
    for row in rows:
        for name, value in row.items():
            texts = [value] if isinstance(value, str) else value
            if any(len(text) * 4 > most and len(text.encode()) > most for text in texts):
                message = f"{name} must have at most {most} bytes: cut longer texts up."
                raise tf.errors.InvalidArgumentError(None, None, message)


def _make_count_losses(
    kind: Kind | None, tokenizer: Tokenizer, config: FinetuneConfig
) -> CountLosses:
    """Returns the function that counts as `Data.count_losses`; of a model without a task, masks."""

    def count_losses(rows: Sequence[Row]) -> Mapping[str, int]:
        if kind:
            texts = [kind.data.list_texts(row) for row in rows]
            return kind.data.count_losses(texts, tokenizer, config)
        tokens = [[tokenizer.encode_with_masks(row["text"])] for row in rows]
        cut = TextData("fill_mask").truncate(tokens, config)[1]
        return cut | text_data.count_unreadable(tokens, tokenizer)

    return count_losses


def _count_nothing(rows: Sequence[Row]) -> Mapping[str, int]:
    return {}


# A checkpoint: the tokenizer in Python, and the network.


def _list_texts(network: TextNetwork, rows: Sequence[Row]) -> list[list[str]]:
    return [network.kind.data.list_texts(row) for row in rows]


def _answer_texts(network: TextNetwork, options: Options, rows: Sequence[Row]) -> list[Answer]:
    return to_answers(network.run(_list_texts(network, rows), len(rows))[1])


def _guess_masks(network: TextNetwork, options: Options, rows: Sequence[Row]) -> list[Answer]:
    tokenizer, length = network.tokenizer, network.config.max_seq_length
    room = length - features.NUM_TEXT_TOKENS
    texts = [(tokenizer.encode_with_masks(row["text"])[:room],) for row in rows]
    arrays = text_data.make_arrays(texts, tokenizer, length)
    places = [np.flatnonzero(row == tokenizer.mask_id) for row in arrays[features.INPUT_IDS]]
    positions = np.zeros([len(rows), max(map(len, places))], np.int32)
    for row, found in zip(positions, places, strict=True):
        row[: len(found)] = found
    batch = {**network.make_batch(arrays), features.MASKED_LM_POSITIONS: tf.constant(positions)}
    outputs = network.compute(batch)
    ids, probabilities = (outputs[x].numpy() for x in ("top_ids", "top_probabilities"))
    rounded = _to_json(probabilities)
    return [
        {
            "probabilities": rounded[k][: len(found)],
            "tokens": [
                [tokenizer.id_to_piece(int(i)) for i in best] for best in ids[k][: len(found)]
            ],
        }
        for k, found in enumerate(places)
    ]


def _answer_questions(network: TextNetwork, options: Options, rows: Sequence[Row]) -> list[Answer]:
    """The best answer to each question; "" where the null odds are over the threshold."""
    records, outputs = network.run(_list_texts(network, rows))
    config, threshold, windows = network.config, options.null_threshold, records.arrays[WINDOWS]
    sizes = AnswerOptions(threshold is not None, config.n_best_size, config.max_answer_length)
    outputs[features.UNIQUE_IDS] = windows.unique_ids
    predictions = span_decoding.predict(outputs, windows, records.lines, sizes)
    best = [prediction["nbest"][0] for prediction in predictions.values()]
    answers = [{"answer": x.pop("text"), **x} for x in best]
    for answer, prediction in zip(answers, predictions.values(), strict=True):
        if threshold is not None:
            answer["null_odds"] = odds = prediction["null_odds"]
            answer.update({"answer": "", "start": 0, "end": 0} if odds > threshold else {})
    return [_round(dict(sorted(answer.items()))) for answer in answers]


def _mark_spans(network: TextNetwork, options: Options, rows: Sequence[Row]) -> list[Answer]:
    records, outputs = network.run(_list_texts(network, rows))
    windows, words = records.arrays[WINDOWS], records.arrays[WORDS]
    predictions = tag_decoding.predict(outputs, windows, words, records.lines, network.labels)
    answers = []
    for prediction in predictions.values():
        spans = prediction["prediction"]
        columns = {name: [span[x] for span in spans] for name, x in _SPAN_FIELDS.items()}
        answers.append(_round(dict(sorted({"num_spans": len(spans), **columns}.items()))))
    return answers


_ANSWERS: Mapping[str, Callable[[TextNetwork, Options, Sequence[Row]], list[Answer]]] = {
    "texts": _answer_texts,
    "choices": _answer_texts,
    "tokens": _answer_texts,
    "masks": _guess_masks,
    "questions": _answer_questions,
    "spans": _mark_spans,
}


# Named tensors as JSON.


def to_answers(outputs: Arrays) -> list[Answer]:
    """Returns {name: value} of each row of named arrays [N, ...], without what pads the row."""
    values = {name: _to_json(value) for name, value in sorted(outputs.items())}
    number = len(next(iter(values.values())))
    return [_tidy({name: value[k] for name, value in values.items()}) for k in range(number)]


def _tidy(output: Answer) -> Answer:
    """Returns the outputs of a row without what pads it, and probabilities under their labels."""
    if classes := output.pop("classes", None):
        values = output["probabilities"]
        output = {**output, "probabilities": dict(zip(classes, values, strict=True))}
    names: tuple[str, ...] = ()
    length = 0
    if "input_mask" in output:
        names, length = ("input_ids", "input_mask", "sequence_output"), sum(output["input_mask"])
    elif "num_labels" in output:
        names, length = ("labels",), output["num_labels"]
    elif "num_spans" in output:
        names, length = (*_SPAN_FIELDS,), output["num_spans"]
    elif "tokens" in output:
        names, length = ("tokens", "probabilities"), sum(map(any, output["tokens"]))
    return {name: x[:length] if name in names else x for name, x in output.items()}


def _to_json(array: np.ndarray) -> list:
    if array.dtype == object:
        return np.char.decode(array.astype(bytes), "utf-8").tolist()
    if np.issubdtype(array.dtype, np.floating):
        return array.astype(str).astype(float).tolist()  # 0.1, where float(x) has 17 digits
    return array.tolist()


def _round(answer: Answer) -> Answer:
    """Returns numbers as an export computes them, in float32."""
    rounded = dict(answer)
    for name, value in answer.items():
        first = value[0] if isinstance(value, list) and value else value
        if isinstance(first, float):
            rounded[name] = _to_json(np.array(value, np.float32))
    return rounded
