"""Writes the files that leaderboards accept, from predictions files.

    GLUE    glue.zip, with a tsv file for each of its eleven test sets (gluebenchmark.com/faq)
    SQuAD   predictions.json, nbest_predictions.json and, for SQuAD 2.0, null_odds.json, in the
            form that the official script reads
    RACE    answers.json: the letters for each passage, in the order of its questions

Next to them, sources.txt lists the checkpoint of each file, and which files are only filler.
"""

import io
import os
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from albert_tf import files, folders
from albert_tf.errors import UserError, require
from albert_tf.kinds import span, task_table
from albert_tf.tasks import predictions

SOURCES = "sources.txt"
_GLUE = "glue.zip"
_ANSWERS, _NBEST, _ODDS = "predictions.json", "nbest_predictions.json", "null_odds.json"
_RACE = "answers.json"
_Contents = Mapping[str, Mapping[str, Any]]


class GlueFile(NamedTuple):
    """A GLUE test set: key of `task_table.TASKS`, rows of its file, split of the predictions."""

    task: str
    num_rows: int
    split: str = "test"


GLUE_FILES = {
    "AX.tsv": GlueFile("ax", 1104),
    "CoLA.tsv": GlueFile("cola", 1063),
    "MNLI-m.tsv": GlueFile("mnli", 9796),
    "MNLI-mm.tsv": GlueFile("mnli", 9847, "test_mismatched"),
    "MRPC.tsv": GlueFile("mrpc", 1725),
    "QNLI.tsv": GlueFile("qnli", 5463),
    "QQP.tsv": GlueFile("qqp", 390965),
    "RTE.tsv": GlueFile("rte", 3000),
    "SST-2.tsv": GlueFile("sst-2", 1821),
    "STS-B.tsv": GlueFile("sts-b", 1379),
    "WNLI.tsv": GlueFile("wnli", 146),
}


def write(contents: _Contents, output_dir: str, *, null_threshold: float = 0.0) -> list[str]:
    """Writes the submission to one leaderboard; nothing if a predictions file does not fit.

    `contents` is {path: content}, as `predictions.read` returns it: any number of files for GLUE,
    one for SQuAD or RACE. For SQuAD 2.0, null odds above `null_threshold` mean "no answer". Returns
    the lines of sources.txt.

    Raises `UserError` if no leaderboard accepts the predictions, or does not accept them together.
    """
    for path, content in contents.items():
        known = ", ".join(_MAKERS)
        message = f"{path}: no leaderboard accepts {content['task']!r}. Use one of {known}."
        require(content["task"] in _MAKERS, message)
    makers = {_MAKERS[content["task"]] for content in contents.values()}
    if len(makers) > 1 or (len(contents) > 1 and _make_glue not in makers):
        raise UserError(
            f"{' and '.join(contents)} are not one submission. Pass one file, or average files of "
            "one task with bin/score ensemble."
        )
    [make] = makers
    submission, lines = make(contents, null_threshold)
    folders.make(output_dir)
    submission[SOURCES] = "".join(f"{line}\n" for line in lines).encode()
    for name, file_content in submission.items():
        files.write_bytes(os.path.join(output_dir, name), file_content)
    return lines


_Submission = tuple[dict[str, bytes], list[str]]


def _make_glue(contents: _Contents, _: float) -> _Submission:
    """All files are required: missing predictions become filler, which the lines mention."""
    paths = _match_glue_files(contents)
    archive = io.BytesIO()
    lines = []
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, file in GLUE_FILES.items():
            if name in paths:
                content = contents[paths[name]]
                rows = _make_rows(content, file, paths[name])
                lines.append(f"{name}: {_describe_source(paths[name], content)}")
            else:
                labels = task_table.get(file.task).labels
                rows = [labels[0] if labels else _format_score(0.0)] * file.num_rows
                lines.append(
                    f"{name}: FILLER, {file.num_rows:,} times {rows[0]} "
                    f"(no predictions of task {file.task}, split {file.split})"
                )
            table = "".join(f"{index}\t{row}\n" for index, row in enumerate(rows))
            # A ZipInfo has a fixed date, so the same predictions give the same archive.
            entry = zipfile.ZipInfo(name)
            entry.external_attr = 0o644 << 16  # otherwise nobody can read the unpacked files
            zipped.writestr(entry, f"index\tprediction\n{table}", zipfile.ZIP_DEFLATED)
    return {_GLUE: archive.getvalue()}, lines


def _match_glue_files(contents: _Contents) -> dict[str, str]:
    names = {(file.task, file.split): name for name, file in GLUE_FILES.items()}
    paths: dict[str, str] = {}
    for path, content in contents.items():
        key = content["task"], content["split"]
        if key not in names:
            raise UserError(f"{path}: the leaderboard rejects split {key[1]!r} of {key[0]}.")
        if names[key] in paths:
            raise UserError(
                f"{paths[names[key]]} and {path} are both for {key[0]}, split {key[1]}: "
                "use one, or average them with bin/score ensemble."
            )
        paths[names[key]] = path
    return paths


def _make_rows(content: Mapping[str, Any], file: GlueFile, path: str) -> list[str]:
    rows = content["predictions"]
    ids = [str(index) for index in range(file.num_rows)]
    if len(rows) != len(ids) or any(id_ not in rows for id_ in ids):
        raise UserError(
            f"{path} has {len(rows)} predictions, not one for each of the {file.num_rows} rows of "
            f"the test file of {file.task}: predict that file."
        )
    is_number = not content["labels"]  # STS-B
    to_text = _format_score if is_number else str
    return [to_text(rows[id_]["prediction"]) for id_ in ids]


def _format_score(value: float) -> str:
    """STS-B's scores are between 0 and 5; a network's may be slightly outside."""
    return f"{min(max(value, 0.0), 5.0):.3f}"


def _make_squad(contents: _Contents, null_threshold: float) -> _Submission:
    [(path, content)] = contents.items()
    answers = content["predictions"]
    source = _describe_source(path, content)
    texts = {id_: answer["prediction"] for id_, answer in answers.items()}
    submission = {_ANSWERS: texts, _NBEST: {id_: x["nbest"] for id_, x in answers.items()}}
    if span.may_be_none(task_table.KINDS[content["kind"]]):
        odds = {id_: answer["null_odds"] for id_, answer in answers.items()}
        texts |= {id_: "" for id_, value in odds.items() if value > null_threshold}
        submission[_ODDS] = odds
        source += f", no answer where the null odds are above {null_threshold:g}"
    lines = [f"{name}: {source}" for name in submission]
    return {name: files.to_json(value) for name, value in submission.items()}, lines


def _make_race(contents: _Contents, _: float) -> _Submission:
    [(path, content)] = contents.items()
    passages: dict[str, dict[str, str]] = {}
    for id_, prediction in content["predictions"].items():
        passage, _, number = id_.rpartition("-")
        passages.setdefault(passage, {})[number] = prediction["prediction"]
    answers = {}
    for passage, letters in passages.items():
        numbers = [str(number) for number in range(len(letters))]
        if not passage or letters.keys() != set(numbers):
            raise UserError(
                f"{path}: predictions for {passage!r} are missing. Predict whole files of RACE, "
                "whose ids are like 'high123.txt-0'."
            )
        answers[passage] = [letters[number] for number in numbers]
    return {_RACE: files.to_json(answers)}, [f"{_RACE}: {_describe_source(path, content)}"]


def _describe_source(path: str, content: Mapping[str, Any]) -> str:
    checkpoints = " + ".join(predictions.list_checkpoints(content))
    return f"{path}, split {content['split']}, checkpoint {checkpoints}"


_MAKERS: dict[str, Callable[[_Contents, float], _Submission]] = {
    **{file.task: _make_glue for file in GLUE_FILES.values()},
    "squad1": _make_squad,
    "squad2": _make_squad,
    "race": _make_race,
}
