"""Predicts for files of any size, with an export or a checkpoint: a row for each row, in order.

Each input file is a source (see `data_prep.corpus.shards`). Its rows are read in blocks; a block
is ordered by length, and becomes a file of predictions. Where there are more processes than files,
several share a file: each reads all of it, and predicts every n-th block. One file for all is made
of these when they are complete.
"""

import contextlib
import csv
import functools
import gzip
import hashlib
import io
import itertools
import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf import files
from albert_tf.data_prep.corpus import corpus_files, documents, shards
from albert_tf.data_prep.corpus.shards import Driver, Made
from albert_tf.errors import UserError, find_sentence, require
from albert_tf.export import export_source, saved_model
from albert_tf.export.export_config import SourceConfig
from albert_tf.kinds import base, token_lengths
from albert_tf.kinds.tables import column_guess, table_files
from albert_tf.kinds.tables.task_rows import Columns as TaskColumns
from albert_tf.predict.predictor import Loaded, Predictor, find_version, load
from albert_tf.run_files import BEST
from albert_tf.workfolder import WorkFolder

_BLOCK_ROWS = 1024
_BLOCK = re.compile(r"predictions-(\d+)-(\d+)\.jsonl")
_TABLES = (".csv", ".tsv")
_READ_WHOLE = (*_TABLES, ".json")
# {input of a model, or the `id`: the flag that names the field of it}, as those of own data.
_FLAGS = {
    "id": "id_column",
    **dict.fromkeys(("text", "passage", "context"), "text_column"),
    **dict.fromkeys(("text_pair", "question"), "second_text_column"),
    "options": "choice_columns",
}

# What a row has of them; of other inputs a text.
_NOUNS = {"id": "id", "options": "list of texts"}
_EMBEDDING = "embedding"
# {name of a flag of `_FLAGS`: the field, of options the fields}
Columns = Mapping[str, str | Sequence[str]]


class Row(NamedTuple):
    """A row of a file: its number, its `id` or that number, and the inputs of the model."""

    number: int
    identity: dict[str, Any]
    inputs: dict[str, Any]


def predict_to_file(model: str, output: str, *, driver: Driver, **arguments: Any) -> None:
    """Writes the predictions of all files to one, in their order; other arguments as of `predict`.

    A table (.csv, .tsv) has the columns of the input, which is a table, too, or lines of text, and
    those of the predictions. Until it is complete, `OUTPUT.parts` holds what is done.

    Raises `UserError` as `predict` does, or if the file already exists.
    """
    is_table = output.endswith(_TABLES)
    require(
        is_table or output.endswith((".jsonl", ".jsonl.gz")),
        f"--output: {output} must end with .jsonl, .jsonl.gz, .csv or .tsv.",
    )
    require(
        driver.num_tasks == 1, "--output is for one machine: with --num_tasks name --output_dir."
    )
    require(not arguments["vectors"], "--vectors makes several files: name --output_dir.")
    paths = documents.expand_inputs(arguments["input_files"], _READ_WHOLE)
    if is_table:
        _check_table(output, paths)
    folder = f"{output}.parts"
    if tf.io.gfile.exists(output):
        require(
            tf.io.gfile.exists(folder),
            f"--output: {output} already exists. Remove it, or name another file.",
        )
        # Only a run that was killed after its last step leaves both.
        with files.locking_folder(folder):
            tf.io.gfile.rmtree(folder)
        print(f"{output} is complete.")
        return
    write = functools.partial(_write_table, paths) if is_table else _join_blocks

    def finish(work: WorkFolder) -> None:
        work.put("joined", lambda path: write(folder, output, path))
        files.rename_synced(work.join("joined"), output)
        files.sync(os.path.dirname(output))
        tf.io.gfile.rmtree(folder)

    rows = predict(model, output_dir=folder, driver=driver, finish=finish, **arguments)
    print(f"{output}: {rows:,} rows")


def _check_table(output: str, paths: Sequence[str]) -> None:
    """Raises `UserError` unless the rows of all files fit into one table."""
    # A cell of .tsv holds no tab or line break; others may.
    allowed = (".tsv",) if output.endswith(".tsv") else _READ_WHOLE
    headers = []
    for path in paths:
        kind = corpus_files.find_type(path)
        require(
            kind in allowed or (output.endswith(".csv") and not corpus_files.is_table(path)),
            f"--output: {output} has the columns of the input, and {path} is not a table of its "
            "kind. Name an output that ends with .csv, or with .jsonl for .jsonl and .parquet "
            "files.",
        )
        table = table_files.read_table(path) if kind in _READ_WHOLE else None
        headers.append(table.columns if table else ["text"])
        for number, row in table.rows if table and kind == ".json" else ():
            require(
                [*row] == headers[-1],
                f"--output: {path}, entry {number}: it has other fields than the first one, which "
                "no table can. Name an output that ends with .jsonl.",
            )
        require(
            headers[0] == headers[-1],
            f"--output: {paths[0]} and {path} have other columns. Predict each into its own file.",
        )


def _list_blocks(folder: str) -> list[str]:
    """Returns the files of predictions in the order of the rows."""
    matches = filter(None, map(_BLOCK.fullmatch, tf.io.gfile.listdir(folder)))
    names = {tuple(map(int, match.groups())): match[0] for match in matches}
    return [os.path.join(folder, names[key]) for key in sorted(names)]


def _write_table(paths: Sequence[str], folder: str, output: str, temporary: str) -> None:
    """Writes the rows of the input, each followed by its prediction."""
    options: dict[str, Any] = {"lineterminator": "\n"}
    if output.endswith(".tsv"):  # a quotation mark is a character like any other
        options |= {"delimiter": "\t", "quoting": csv.QUOTE_NONE, "quotechar": None}
    with tf.io.gfile.GFile(temporary, "w") as file:
        try:
            csv.writer(file, **options).writerows(_join_tables(paths, folder))
        except csv.Error:  # only .tsv refuses a character
            raise UserError(
                f"--output: a prediction has a tab or a line break, which {output} cannot "
                "hold. Name an output that ends with .csv."
            ) from None


def _join_tables(paths: Sequence[str], folder: str) -> Iterator[list[str]]:
    """Yields the header and the rows, lists as JSON; without rows, the header of the input."""
    answers = (
        json.loads(line)
        for block in _list_blocks(folder)
        for line in files.read_bytes(block, "predictions").splitlines()  # of bytes: not at U+2028
    )
    is_empty = True
    for path in paths:
        for _, row in _read_rows(path, (), lambda _: None):
            answer = _flatten(next(answers), row)
            if is_empty:
                yield [*row, *answer]
            is_empty = False
            cells = [*row.values(), *answer.values()]
            yield [x if isinstance(x, str) else json.dumps(x) for x in cells]
    if is_empty:
        yield table_files.read_table(paths[0]).columns


def _flatten(answer: Mapping[str, Any], columns: Collection[str]) -> dict[str, Any]:
    """Returns the columns of an answer: one for the probability of each label.

    One whose name is among the `columns` of the input gets `predicted_` before it.
    """
    flat: dict[str, Any] = {}
    for name, value in answer.items():
        if isinstance(value, dict):
            flat |= {f"probability_{label}": x for label, x in value.items()}
        elif name not in ("id", "row"):
            flat[name] = value
    return {f"predicted_{x}" if x in columns else x: value for x, value in flat.items()}


def _join_blocks(folder: str, output: str, temporary: str) -> None:
    """Writes one file of those in a folder."""
    with tf.io.gfile.GFile(temporary, "wb") as file, contextlib.ExitStack() as stack:
        target = file
        file.write(b"")  # else there is no file if there are no rows
        if output.endswith(".gz"):
            # Without name and time: the same predictions are the same file.
            target = stack.enter_context(gzip.GzipFile("", "wb", 6, file, 0))
        for block in _list_blocks(folder):
            target.write(files.read_bytes(block, "predictions"))


def predict(
    model: str,
    *,
    input_files: Sequence[str],
    output_dir: str,
    batch_size: int,
    driver: Driver,
    options: Sequence[str] = (),
    vectors: bool = False,
    columns: Columns | None = None,
    kind: str | None = None,
    labels: Sequence[str] = (),
    which: str = BEST,
    finish: Callable[[WorkFolder], None] = lambda _: None,
) -> int | None:
    """Writes `predictions-FFFFF-BBBBB.jsonl` of each file and block, or completes them.

    Args:
        model: folder of an export, or of one of its versions, or a checkpoint of any format.
        input_files: patterns of .jsonl, .parquet, .csv, .tsv or .json files with the inputs of the
            model as fields and perhaps an `id`, or of files with a text in each line.
        batch_size: rows that the model takes at once.
        vectors: whether the embeddings of a block are a .npy file next to the file of its rows.
        columns: names of fields, by the flag that gives them. Of a table, those of the run that
            trained the model hold, else the text is the one column that has several words.
        kind, labels: of a checkpoint that does not say them.
        which: checkpoint of a run.
        finish: called with the folder when all files are done.

    Returns:
        The number of rows; None if other machines have not done their files yet.

    Raises `UserError` for bad input; a folder of other input, or of another model or form.
    """
    if kind is None and vectors:
        kind = "sentence_embedding"
    source = SourceConfig(checkpoint=model, which=which, kind=kind, labels=tuple(labels))
    paths = documents.expand_inputs(input_files, _READ_WHOLE)
    inputs = documents.identify_inputs(paths)
    columns = {flag: names for flag, names in (columns or {}).items() if names}
    version = find_version(model)
    loaded = None if version else export_source.read_source(source)
    identity = {
        "model": _identify(source, loaded),
        "inputs": inputs,
        "vectors": vectors,
        "columns": columns,
    }
    folder = WorkFolder(output_dir, identity)
    sizes = [size for _, size, _ in inputs]
    shares = driver.count_shares(len(paths), driver.num_processes)
    with folder.locked(driver.task_index, driver.num_tasks):
        is_alone = driver.num_processes == 1 and not driver.runner
        predictor = load(source, loaded) if is_alone else None
        config = loaded[2] if loaded else saved_model.read_config(version or "")
        del loaded  # the weights are in the model, or each process reads them itself
        arguments = (folder, source, paths, batch_size, vectors, columns, predictor)
        blocks = shards.run(folder, make_predict, arguments, sizes, driver, options, shares=shares)
        if blocks is None:
            return None
        finish(folder)
    names = ("rows", base.UNREADABLE, *token_lengths.CUTS)
    counts = {x: sum(numbers.get(x, 0) for numbers in blocks.values()) for x in names}
    if config:
        token_lengths.warn_of_losses(counts, counts["rows"], config)
    return counts["rows"]


def _identify(source: SourceConfig, loaded: Loaded | None) -> str:
    """Returns a hash: of an export of its graph and of the index of its variables."""
    digest = hashlib.sha256()
    if loaded is None:
        for name in ("saved_model.pb", "variables/variables.index"):
            path = os.path.join(find_version(source.checkpoint) or "", name)
            digest.update(files.read_bytes(path, "--model"))
        return digest.hexdigest()
    checkpoint, task, config = loaded
    digest.update(repr((replace(source, checkpoint=""), task, config)).encode())
    for name, array in sorted(checkpoint.weights.items()):
        digest.update(name.encode())
        digest.update(array.tobytes())
    digest.update(repr(sorted(checkpoint.vocabulary.items())).encode())
    return digest.hexdigest()


def make_predict(
    folder: WorkFolder,
    source: SourceConfig,
    paths: Sequence[str],
    batch_size: int,
    vectors: bool,
    columns: Columns,
    predictor: Predictor | None = None,
) -> shards.Work:
    """Returns `predict_share(source, share, shares)`, which writes the predictions of a file.

    Of `shares` of a file, share k predicts the blocks k, k + shares and so on. Without the model it
    is loaded of the source.
    """
    loaded = predictor or load(source)
    require(
        loaded.gives_vectors or not vectors,
        "--vectors is for models of sentence_embedding, which give one vector for a text: "
        f"{source.checkpoint} gives none. Leave it out.",
    )
    for flag in columns:
        require(
            flag in [_FLAGS[name] for name in ("id", *loaded.inputs)],
            f"--{flag}: the model takes {', '.join(loaded.inputs)} alone. Leave it out.",
        )

    def predict_share(source: int, share: int, shares: int) -> Iterator[Made]:
        path = paths[source]
        fields = _find_fields(path, loaded.inputs, columns, loaded.columns)
        named = [part for field in fields.values() for part in _list_parts(field)]
        progress: list[int] = []
        rows = _read_rows(path, named, progress.append)
        for block in itertools.count():
            chosen = list(itertools.islice(rows, _BLOCK_ROWS))
            if not chosen:
                break
            if block % shares == share:
                name = f"predictions-{source:05d}-{block:05d}.jsonl"
                arrays = [name.removesuffix("jsonl") + "npy"] if vectors else []
                read = [_read_row(path, number, row, fields) for number, row in chosen]
                if not all(map(folder.done, [name, *arrays])):
                    answers = _predict_block(loaded, path, read, batch_size)
                    _write_block(folder.join(name), answers, vectors)
                yield from (Made(x, {}, 0) for x in arrays)
                counts = loaded.count_losses([row.inputs for row in read])
                yield Made(name, {"rows": len(chosen), **counts}, sum(progress))
            progress.clear()

    return predict_share


def _read_rows(
    path: str, fields: Sequence[str], on_progress: Callable[[int], Any]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (number of the row or line, {field: value}); see `corpus_files.read_objects`."""
    if corpus_files.find_type(path) not in _READ_WHOLE:
        yield from corpus_files.read_objects(path, fields, on_progress)
        return
    yield from table_files.read_table(path).rows
    on_progress(corpus_files.get_size(path))


def _list_parts(field: str | Sequence[str]) -> list[str]:
    """Returns the names of the fields that an input is read from."""
    return [field] if isinstance(field, str) else [*field]


def _find_fields(
    path: str, names: Sequence[str], columns: Columns, trained: Columns
) -> dict[str, str | Sequence[str]]:
    """Returns {input of the model, or `id`: its field}, or the fields of the options.

    Where the user names no column, the column that trained the model is used, if the rows have it.
    In a table without any of these names the only column of texts is used.
    """
    fields = {name: columns.get(_FLAGS[name], name) for name in ("id", *names)}
    own = {name: x for name in names if (x := trained.get(_FLAGS[name]))}
    if is_whole := corpus_files.find_type(path) in _READ_WHOLE:
        known = table_files.read_table(path).columns
    else:
        wanted = [part for field in own.values() for part in _list_parts(field)]
        known = [*next(corpus_files.read_objects(path, wanted, lambda _: None), (0, {}))[1]]
    for name in names:
        if _FLAGS[name] in columns:
            continue
        if name in own and {*_list_parts(own[name])} <= {*known}:
            fields[name] = own[name]
        elif is_whole and name not in known and names == ["text"]:
            chosen = column_guess.complete(
                TaskColumns(), path, has_numbers=False, needs_label=False
            )
            fields[name] = chosen.text
    return fields


def _read_row(
    path: str, number: int, row: Mapping[str, Any], fields: Mapping[str, str | Sequence[str]]
) -> Row:
    """Returns a row whose inputs have the names that they have in the model.

    Raises `UserError` unless each is a text, or the options a list of texts. An `id` may be
    missing, but not a field that the user names for it.
    """
    where = f"{path}, row {number}"
    identity: dict[str, Any] = {"row": number}
    inputs: dict[str, Any] = {}
    for name, field in fields.items():
        noun, use = _NOUNS.get(name, "text"), "" if name == "id" else ", which the model takes"
        missing = [part for part in _list_parts(field) if part not in row]
        if missing and field == "id":
            continue
        if missing:
            known = f" It has {', '.join(row)}." if row else ""
            raise UserError(
                f"{where}: it has no {noun} {missing[0]!r}{use}. Name the field of it with "
                f"--{_FLAGS[name]}.{known}"
            )
        value = row[field] if isinstance(field, str) else [row[part] for part in field]
        if name == "id":
            identity = {"id": value}
            continue
        texts = value if isinstance(value, list) else [value]
        require(
            isinstance(value, list) == (name == "options")
            and all(isinstance(text, str) for text in texts),
            f"{where}: it has no {noun} {field!r}{use}.",
        )
        texts = [_replace_surrogates(text) for text in texts]
        inputs[name] = texts if name == "options" else texts[0]
    return Row(number, identity, inputs)


def _replace_surrogates(text: str) -> str:
    """JSON can write half of a character, which TensorFlow does not take."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _write_block(target: str, answers: Sequence[dict[str, Any]], vectors: bool) -> None:
    """Writes the rows of a block, after their vectors: where the rows are, it is complete."""
    if vectors:
        rows = np.array([answer.pop(_EMBEDDING) for answer in answers], np.float32)
        content = io.BytesIO()
        np.save(content, rows)
        files.write_bytes(target.removesuffix("jsonl") + "npy", content.getvalue())
    # The id of a row may be a date of .parquet, say.
    lines = "".join(json.dumps(x, ensure_ascii=False, default=str) + "\n" for x in answers)
    # Halves of characters become what JSON has for them.
    files.write_bytes(target, lines.encode(errors="backslashreplace"))


def _predict_block(
    predictor: Predictor, path: str, rows: Sequence[Row], batch_size: int
) -> list[dict[str, Any]]:
    """Returns the answers to rows, in their order; alike lengths are computed together."""
    order = sorted(range(len(rows)), key=lambda k: len(str(rows[k].inputs)))
    answers: list[dict[str, Any]] = [{}] * len(rows)
    for begin in range(0, len(order), batch_size):
        chosen = order[begin : begin + batch_size]
        try:
            outputs = predictor([rows[k].inputs for k in chosen])
        except tf.errors.InvalidArgumentError:
            raise _explain(predictor, path, [rows[k] for k in chosen]) from None
        for k, output in zip(chosen, outputs, strict=True):
            answers[k] = {**rows[k].identity, **output}
    return answers


def _explain(predictor: Predictor, path: str, rows: Sequence[Row]) -> UserError:
    """Returns the error of the first row of a batch that the model refuses."""
    for row in rows:
        try:
            predictor([row.inputs])
        except tf.errors.InvalidArgumentError as error:
            return UserError(f"{path}, row {row.number}: {find_sentence(error)}")
    return UserError(f"{path}, rows {rows[0].number} to {rows[-1].number} do not go together.")
