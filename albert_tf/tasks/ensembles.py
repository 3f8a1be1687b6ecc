"""Averages predictions files of one task and split; an ensemble is also a predictions file."""

from collections.abc import Mapping
from typing import Any

from albert_tf.errors import UserError
from albert_tf.kinds import task_table
from albert_tf.kinds.learn import check_ids
from albert_tf.tasks import predictions

_SAME = ("task", "kind", "labels", "split")


def average(contents: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Averages predictions files of one task and split (paper, section 4.9).

    The kind of task says how. `contents` is {path: content}, as `predictions.read` returns it. The
    result lists the data if all files have the same. Raises `UserError` if the files differ in
    task, split or examples.
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
    kind, members = task_table.KINDS[first["kind"]], [*contents.values()]
    data = first.get("data")
    has_same_data = data and all(content.get("data") == data for content in members)
    return {
        **{field: first[field] for field in _SAME},
        "checkpoint": [x for content in members for x in predictions.list_checkpoints(content)],
        **({"data": data} if has_same_data else {}),
        "predictions": {
            id_: kind.answer.average(
                [member["predictions"][id_] for member in members], first["labels"]
            )
            for id_ in first["predictions"]
        },
    }
