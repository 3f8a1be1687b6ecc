"""A model that answers rows of texts: an export, or a checkpoint with the same answers.

    predictor = predictor.from_checkpoint(SourceConfig(checkpoint="reviews"))
    predictor([{"text": "The soup was cold."}])  # -> [{"label": "bad", "probabilities": {...}}]

A row is {input: text}, or a list of texts for `options`; an answer is {name: value} as in JSON. A
checkpoint uses the Python tokenizer and the Keras network; only an export has a tokenizer in its
graph.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tensorflow as tf

from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.errors import UserError
from albert_tf.export import export_source, model_versions, saved_model, serving_api
from albert_tf.export.export_config import ExportConfig, SourceConfig
from albert_tf.export.model_kinds import ExportedModel
from albert_tf.kinds.base import Kind, Task
from albert_tf.kinds.spans import replies
from albert_tf.predict import text_network
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train_config import FinetuneConfig

# The result of `export_source.read_source`.
Loaded = tuple[ModelCheckpoint, Task | None, FinetuneConfig]
Row = Mapping[str, Any]
Answer = dict[str, Any]
# The result of `saved_model.read_assets`.
Assets = tuple[Kind, Tokenizer, FinetuneConfig]


@dataclass(frozen=True)
class Predictor:
    """Answers rows; see the module.

    Attributes:
        inputs: the names of the texts in a row.
        gives_vectors: whether the answer is the embedding of a text.
        answer: rows -> their answers, in order; `tf.errors.InvalidArgumentError` for invalid rows.
        assets: kind, tokenizer and lengths, to count truncated rows; None if an export lacks them.
        columns: names of fields in the training table, by the flag that sets them.
    """

    inputs: Sequence[str]
    gives_vectors: bool
    answer: Callable[[Sequence[Row]], list[Answer]]
    assets: Assets | None
    columns: Mapping[str, str | Sequence[str]] = field(default_factory=dict)

    def __call__(self, rows: Sequence[Row]) -> list[Answer]:
        """Returns the answers to rows, in order; errors as in `answer`."""
        return self.answer(rows)

    def count_losses(self, rows: Sequence[Row]) -> Mapping[str, int]:
        """Counts rows that are truncated or unreadable."""
        if self.assets is None:
            return {}
        kind, tokenizer, config = self.assets
        return kind.data.count_losses([kind.data.list_texts(x) for x in rows], tokenizer, config)

    @property
    def config(self) -> FinetuneConfig | None:
        """The lengths of the model, for warnings about truncation, if the export has them."""
        return self.assets[-1] if self.assets else None


def find_version(model: str) -> str | None:
    """Returns the folder of an export's newest version, or of the given version, if any."""
    versions = model_versions.list_versions(model)
    for folder in [model, *(os.path.join(model, str(number)) for number in versions[-1:])]:
        if tf.io.gfile.exists(os.path.join(folder, saved_model.GRAPH)):
            return folder
    return None


def load(source: SourceConfig, loaded: Loaded | None = None) -> Predictor:
    """Loads an export or a checkpoint, which may already be `loaded`."""
    if version := find_version(source.checkpoint):
        return from_export(version)
    return from_checkpoint(source, loaded)


def from_export(folder: str, names: Sequence[Sequence[str]] = ()) -> Predictor:
    """Loads an export: the signature for one of the inputs `names`, or the default one.

    Raises `UserError` if it is damaged, has only token ids, or has no such signature.
    """
    functions = saved_model.load(folder)
    function = functions.get(serving_api.DEFAULT)
    if names:
        taken = {frozenset(x.structured_input_signature[1]): x for x in functions.values()}
        function = next((taken[key] for key in map(frozenset, names) if key in taken), None)
    if function is None:
        wanted = "--text, or --text and --second_text" if names else "texts"
        raise UserError(
            f"--model: {folder} has other inputs than {wanted}. "
            "Its MODEL.md lists them; pass them in a file with --input."
        )
    inputs = function.structured_input_signature[1]
    if any(spec.dtype != tf.string for spec in inputs.values()):
        raise UserError(f"{folder} only accepts token ids. Export it without --text=false.")

    def answer(rows: Sequence[Row]) -> list[Answer]:
        _check_options(rows)
        outputs = function(**{name: tf.constant([row[name] for row in rows]) for name in inputs})
        answers = replies.to_rows({name: value.numpy() for name, value in outputs.items()})
        return [replies.name_probabilities(row) for row in answers]

    gives_vectors = "embedding" in function.structured_outputs
    return Predictor([*inputs], gives_vectors, answer, saved_model.read_assets(folder))


def from_checkpoint(source: SourceConfig, loaded: Loaded | None = None) -> Predictor:
    """Loads a checkpoint in any format; without a task, it guesses words.

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
    """Returns the predictor for a model in memory; `UserError` if it has no vocabulary."""
    options = model.options
    network, data = text_network.make(model), model.kind.data

    def answer(rows: Sequence[Row]) -> list[Answer]:
        _check_options(rows, len(options.labels))
        _check_bytes(rows, options.max_text_bytes)
        return network.reply([data.list_texts(row) for row in rows], len(rows))

    inputs, assets = [*next(iter(model.list_requests().values()))], (model.kind, network.tokenizer)
    gives_vectors = model.answer.gives_vectors
    return Predictor(inputs, gives_vectors, answer, (*assets, options.run_config), columns or {})


def _check_options(rows: Sequence[Row], number: int = 0) -> None:
    """Raises an error unless all rows have equally many options, or `number` options."""
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
                message = f"{name} must have at most {most} bytes: split longer texts."
                raise tf.errors.InvalidArgumentError(None, None, message)
