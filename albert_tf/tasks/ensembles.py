"""Averages predictions files of one task and split: an ensemble is a predictions file, too."""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.errors import UserError, refuse_output, require
from albert_tf.kinds import task_table
from albert_tf.kinds.base import check_ids
from albert_tf.tasks import predictions

_SAME = ("task", "kind", "labels", "split")


def average(contents: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Averages predictions files of one task and split (paper, section 4.9).

    How, the kind of task says. `contents` are {path: content}, as `predictions.read` returns it.
    Raises `UserError` if the files are of different tasks, splits or examples.
    """
    (first_path, first), *others = contents.items()
    for path, content in others:
        for field in _SAME:
            if content[field] != first[field]:
                raise UserError(
                    f"{path} has {field}={content[field]!r}, {first_path} has {first[field]!r}: "
                    "average predictions of one task and split."
                )
        check_ids(first["predictions"], content["predictions"], path)
    kind = task_table.KINDS[first["kind"]]
    members = [content["predictions"] for content in contents.values()]
    return {
        **{field: first[field] for field in _SAME},
        "checkpoint": [
            name for content in contents.values() for name in predictions.list_checkpoints(content)
        ],
        "predictions": {
            id_: kind.average([member[id_] for member in members], first["labels"])
            for id_ in first["predictions"]
        },
    }


def combine(
    paths: Sequence[str],
    output: str,
    *,
    examples: str | None = None,
    confidence: bool = False,
    null_threshold: float | None = None,
) -> None:
    """Averages predictions files into another one, and prints the scores of all.

    `examples` is the task dataset to score with, if any, or a pattern that it alone matches. With
    `confidence` there are also 95 % bootstrap intervals of the ensemble's scores. Of SQuAD 2.0,
    null odds above `null_threshold` mean that there is no answer; None is 0. Raises `UserError` if
    the files do not fit together, or an option has no effect.
    """
    options = {"confidence": confidence, "null_threshold": null_threshold}
    if not examples and (given := [name for name, value in options.items() if value]):
        raise UserError(f"--{given[0]} is for scores: give --examples to score with.")
    refuse_output(output, "--output", paths)
    contents = {path: predictions.read(path) for path in paths}
    ensemble = average(contents)
    task = task_table.from_header(ensemble)
    if null_threshold is not None and not task.kind.may_be_none:
        raise UserError(f"--null_threshold is for SQuAD 2.0: {task.name} has no null odds.")
    if examples:
        found = tf.io.gfile.glob(examples) or [examples]
        require(len(found) == 1, f"--examples: {examples!r} matches {len(found)}. Name one.")
        gold = predictions.read_gold(found[0], ensemble)
        threshold = null_threshold or 0.0
        for path, content in contents.items():
            alone = content["predictions"]
            _print_scores(path, predictions.score(task, gold, alone, null_threshold=threshold))
        scores = predictions.score(
            task, gold, ensemble["predictions"], null_threshold=threshold, confidence=confidence
        )
        _print_scores(f"ensemble of {len(contents)}", scores)
    source = {name: ensemble[name] for name in ("split", "checkpoint")}
    predictions.write(output, task, ensemble["predictions"], **source)
    print(f"written to {output}")


def _print_scores(source: str, scores: Mapping[str, float]) -> None:
    print(f"{source}: " + ", ".join(f"{name} {score:.4g}" for name, score in scores.items()))
