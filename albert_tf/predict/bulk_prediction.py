"""Predicts for files of any size, with an export or a checkpoint: one row per row, in order.

Each input file is a source (see `data_prep.corpus.shards`). Its rows are read in blocks; a block is
computed in order of length, and becomes a file of predictions. With more processes than files,
several share a file: each reads the whole file, and predicts every n-th block. A single output file
is joined from these once they are complete.
"""

import functools
import hashlib
import io
import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf import files, folders
from albert_tf.data_prep.corpus import documents, shards
from albert_tf.data_prep.corpus.shards import Shard, Workers
from albert_tf.errors import UserError, assertion_message, require
from albert_tf.export import export_source, saved_model
from albert_tf.export.export_config import SourceConfig
from albert_tf.kinds import text_data, token_lengths
from albert_tf.predict import input_rows, output_files
from albert_tf.predict.input_rows import Columns, Row
from albert_tf.predict.predictor import Loaded, Predictor, find_version, load
from albert_tf.run_files import BEST
from albert_tf.workfolder import WorkFolder

_BLOCK_ROWS = 1024
_EMBEDDING = "embedding"


def predict_to_file(model: str, output: str, *, workers: Workers, **arguments: Any) -> None:
    """Writes the predictions for all files to one file, in order; arguments as in `predict`.

    A table (.csv, .tsv) has the columns of the input, which must be a table or lines of text, and
    the columns of the predictions. Until it is complete, `OUTPUT.parts` holds the finished parts.

    Raises `UserError` as `predict` does, or if the file already exists.
    """
    is_table = output.endswith(input_rows.TABLES)
    require(
        is_table or output.endswith((".jsonl", ".jsonl.gz")),
        f"--output: {output} must end with .jsonl, .jsonl.gz, .csv or .tsv.",
    )
    require(
        workers.num_tasks == 1, "--output is for one machine: with --num_tasks, use --output_dir."
    )
    require(not arguments["vectors"], "--vectors writes several files: use --output_dir.")
    paths = documents.expand_inputs(arguments["input_files"], input_rows.READ_WHOLE)
    if is_table:
        output_files.check_table(output, paths)
    folder = f"{output}.parts"
    if tf.io.gfile.exists(output):
        require(
            tf.io.gfile.exists(folder),
            f"--output: {output} already exists. Remove it, or use another file.",
        )
        # Both exist only if a run was killed after its last step.
        with folders.locking(folder):
            tf.io.gfile.rmtree(folder)
        print(f"{output} is complete.")
        return
    write = (
        functools.partial(output_files.write_table, paths) if is_table else output_files.join_blocks
    )

    def finish(work: WorkFolder) -> None:
        work.put("joined", lambda path: write(folder, output, path))
        files.rename_synced(work.join("joined"), output)
        files.sync(os.path.dirname(output))
        tf.io.gfile.rmtree(folder)

    rows = predict(model, output_dir=folder, workers=workers, finish=finish, **arguments)
    print(f"{output}: {rows:,} rows")


def predict(
    model: str,
    *,
    input_files: Sequence[str],
    output_dir: str,
    batch_size: int,
    workers: Workers,
    options: Sequence[str] = (),
    vectors: bool = False,
    columns: Columns | None = None,
    kind: str | None = None,
    labels: Sequence[str] = (),
    which: str = BEST,
    finish: Callable[[WorkFolder], None] = lambda _: None,
) -> int | None:
    """Writes `predictions-FFFFF-BBBBB.jsonl` for each file and block, or completes them.

    Args:
        model: the folder of an export or of one of its versions, or a checkpoint in any format.
        input_files: patterns of .jsonl, .parquet, .csv, .tsv or .json files with the model's inputs
            as fields and optionally an `id`, or of files with one text per line.
        batch_size: rows per batch.
        vectors: whether the embeddings of a block go to a .npy file next to the file of its rows.
        columns: names of fields, by the flag that sets them. For a table, the default is the
            columns of the training run, otherwise the only column with several words.
        kind, labels: for a checkpoint that does not say them.
        which: the checkpoint of a run.
        finish: called with the folder when all files are done.

    Returns:
        The number of rows; None if other machines are not done.

    Raises `UserError` for bad input, or a folder with other input, another model or format.
    """
    if kind is None and vectors:
        kind = "sentence_embedding"
    source = SourceConfig(checkpoint=model, which=which, kind=kind, labels=tuple(labels))
    paths = documents.expand_inputs(input_files, input_rows.READ_WHOLE)
    inputs = documents.identify_inputs(paths)
    columns = {flag: names for flag, names in (columns or {}).items() if names}
    version = find_version(model)
    loaded = None if version else export_source.read_source(source)
    identity = {
        "model": identify(source, loaded),
        "inputs": inputs,
        "vectors": vectors,
        "columns": columns,
    }
    folder = WorkFolder(output_dir, identity)
    sizes = [size for _, size, _ in inputs]
    shares = workers.count_shares(len(paths), workers.num_processes)
    with folder.locked(workers.task_index, workers.num_tasks):
        is_alone = workers.num_processes == 1 and not workers.runner
        predictor = load(source, loaded) if is_alone else None
        _, _, config = loaded or saved_model.read_assets(version or "") or (None, None, None)
        del loaded  # the model has the weights, or each process reads them itself
        arguments = (folder, source, paths, batch_size, vectors, columns, predictor)
        blocks = shards.run(folder, make_predict, arguments, sizes, workers, options, shares=shares)
        if blocks is None:
            return None
        finish(folder)
    names = ("rows", text_data.UNREADABLE, *token_lengths.CUTS)
    counts = {x: sum(numbers.get(x, 0) for numbers in blocks.values()) for x in names}
    if config:
        token_lengths.warn_of_losses(counts, counts["rows"], config)
    return counts["rows"]


def identify(source: SourceConfig, loaded: Loaded | None) -> str:
    """Returns a hash; for an export, of its graph and the index of its variables."""
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
    """Returns `predict_share(source, share, shares)`, which writes the predictions for a file.

    Share k of `shares` predicts the blocks k, k + shares and so on. Without a model, it is loaded
    from the source.
    """
    loaded = predictor or load(source)
    require(
        loaded.gives_vectors or not vectors,
        "--vectors is for sentence_embedding models, which give one embedding per text: "
        f"{source.checkpoint} does not. Leave it out.",
    )
    for flag in columns:
        require(
            flag in [input_rows.FLAGS[name] for name in ("id", *loaded.inputs)],
            f"--{flag}: the model only has the inputs {', '.join(loaded.inputs)}. Leave it out.",
        )

    def predict_share(source: int, share: int, shares: int) -> Iterator[Shard]:
        path = paths[source]
        fields = input_rows.find_fields(path, loaded.inputs, columns, loaded.columns)
        named = [part for field in fields.values() for part in input_rows.list_parts(field)]
        progress: list[int] = []
        rows = input_rows.read_rows(path, named, progress.append)
        for block in itertools.count():
            chosen = list(itertools.islice(rows, _BLOCK_ROWS))
            if not chosen:
                break
            if block % shares == share:
                name = f"predictions-{source:05d}-{block:05d}.jsonl"
                arrays = [name.removesuffix("jsonl") + "npy"] if vectors else []
                read = [input_rows.read_row(path, number, row, fields) for number, row in chosen]
                if not all(map(folder.done, [name, *arrays])):
                    answers = _predict_block(loaded, path, read, batch_size)
                    _write_block(folder.join(name), answers, vectors)
                yield from (Shard(x, {}, 0) for x in arrays)
                counts = loaded.count_losses([row.inputs for row in read])
                yield Shard(name, {"rows": len(chosen), **counts}, sum(progress))
            progress.clear()

    return predict_share


def _write_block(target: str, answers: Sequence[dict[str, Any]], vectors: bool) -> None:
    """Writes the rows of a block after their embeddings: if the rows exist, it is complete."""
    if vectors:
        rows = np.array([answer.pop(_EMBEDDING) for answer in answers], np.float32)
        content = io.BytesIO()
        np.save(content, rows)
        files.write_bytes(target.removesuffix("jsonl") + "npy", content.getvalue())
    # The id of a row may be, for example, a date from .parquet.
    lines = "".join(json.dumps(x, ensure_ascii=False, default=str) + "\n" for x in answers)
    # Lone surrogates become JSON escapes.
    files.write_bytes(target, lines.encode(errors="backslashreplace"))


def _predict_block(
    predictor: Predictor, path: str, rows: Sequence[Row], batch_size: int
) -> list[dict[str, Any]]:
    """Returns the answers to rows, in order; batches have similar lengths."""
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
    """Returns the error for the first row in a batch that the model refuses."""
    for row in rows:
        try:
            predictor([row.inputs])
        except tf.errors.InvalidArgumentError as error:
            return UserError(f"{path}, row {row.number}: {assertion_message(error)}")
    return UserError(f"{path}, rows {rows[0].number} to {rows[-1].number} do not go together.")
