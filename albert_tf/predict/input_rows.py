"""Reads the rows of files for a model, and maps their fields to its inputs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from albert_tf.data_prep.corpus import corpus_files
from albert_tf.errors import UserError, require
from albert_tf.kinds.tables import column_guess, table_files
from albert_tf.kinds.tables.task_rows import Columns as TaskColumns

TABLES = (".csv", ".tsv")
READ_WHOLE = (*TABLES, ".json")
# {input of a model, or `id`: the flag that sets its field}, the same flags as for own data.
FLAGS = {
    "id": "id_column",
    **dict.fromkeys(("text", "passage", "context"), "text_column"),
    **dict.fromkeys(("text_pair", "question"), "second_text_column"),
    "options": "choice_columns",
}

# The type of these inputs in a row; other inputs are texts.
_NOUNS = {"id": "id", "options": "list of texts"}
# {flag from `FLAGS`: its field, or fields for options}
Columns = Mapping[str, str | Sequence[str]]


class Row(NamedTuple):
    """A row of a file: its number, its `id` (default: the number), and the model's inputs."""

    number: int
    identity: dict[str, Any]
    inputs: dict[str, Any]


def read_rows(
    path: str, fields: Sequence[str], on_progress: Callable[[int], Any]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (row or line number, {field: value}); see `corpus_files.read_objects`."""
    if corpus_files.find_type(path) not in READ_WHOLE:
        yield from corpus_files.read_objects(path, fields, on_progress)
        return
    yield from table_files.read_table(path).rows
    on_progress(corpus_files.get_size(path))


def list_parts(field: str | Sequence[str]) -> list[str]:
    """Returns the names of the fields that an input is read from."""
    return [field] if isinstance(field, str) else [*field]


def find_fields(
    path: str, names: Sequence[str], columns: Columns, trained: Columns
) -> dict[str, str | Sequence[str]]:
    """Returns {input of the model, or `id`: its field, or fields for options}.

    By default, the column that trained the model is used, if the rows have it. In a table without
    any of these names, the only text column is used.
    """
    fields = {name: columns.get(FLAGS[name], name) for name in ("id", *names)}
    own = {name: x for name in names if (x := trained.get(FLAGS[name]))}
    if is_whole := corpus_files.find_type(path) in READ_WHOLE:
        known = table_files.read_table(path).columns
    else:
        wanted = [part for field in own.values() for part in list_parts(field)]
        known = [*next(corpus_files.read_objects(path, wanted, lambda _: None), (0, {}))[1]]
    for name in names:
        if FLAGS[name] in columns:
            continue
        if name in own and {*list_parts(own[name])} <= {*known}:
            fields[name] = own[name]
        elif is_whole and name not in known and names == ["text"]:
            chosen = column_guess.complete(
                TaskColumns(), path, has_numbers=False, needs_label=False
            )
            fields[name] = chosen.text
    return fields


def read_row(
    path: str, number: int, row: Mapping[str, Any], fields: Mapping[str, str | Sequence[str]]
) -> Row:
    """Returns a row with its inputs under the model's names.

    Raises `UserError` unless each input is a text, or a list of texts for options. The `id` may be
    missing, unless the user sets a field for it.
    """
    where = f"{path}, row {number}"
    identity: dict[str, Any] = {"row": number}
    inputs: dict[str, Any] = {}
    for name, field in fields.items():
        noun, use = _NOUNS.get(name, "text"), "" if name == "id" else ", which the model needs"
        missing = [part for part in list_parts(field) if part not in row]
        if missing and field == "id":
            continue
        if missing:
            known = f" It has {', '.join(row)}." if row else ""
            raise UserError(
                f"{where} has no {noun} {missing[0]!r}{use}. Set its field with "
                f"--{FLAGS[name]}.{known}"
            )
        value = row[field] if isinstance(field, str) else [row[part] for part in field]
        if name == "id":
            identity = {"id": value}
            continue
        texts = value if isinstance(value, list) else [value]
        require(
            isinstance(value, list) == (name == "options")
            and all(isinstance(text, str) for text in texts),
            f"{where} has no {noun} {field!r}{use}.",
        )
        texts = [_replace_surrogates(text) for text in texts]
        inputs[name] = texts if name == "options" else texts[0]
    return Row(number, identity, inputs)


def _replace_surrogates(text: str) -> str:
    """Replaces lone surrogates, which JSON can hold but TensorFlow refuses."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
