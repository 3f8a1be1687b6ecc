"""What a teacher says of examples: asked once, kept in the cache, and added to the records."""

import hashlib
import io
import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import logging

from albert_tf import files
from albert_tf import lazy_tensorflow as tf
from albert_tf.errors import require
from albert_tf.kinds.base import Example, Records, Task, Teacher
from albert_tf.kinds.tables import task_rows
from albert_tf.records import features

_PIECE = 1024  # examples that are answered, and kept, at once


def check(teacher: Teacher, task: Task) -> None:
    """Raises `UserError` unless the teacher can answer examples of a task."""
    name, kind, own = f"--teacher: {teacher.source}", task.kind, teacher.task
    require(
        kind.learn.has_teacher,
        f"--teacher is not for {kind}: the outputs of a model are of its own tokens, and there the "
        "tokens of the two may differ. Leave it out.",
    )
    require(own.kind == kind, f"{name} is of {own.kind}, but the task of {kind}. Name another.")
    require(
        {*own.labels} == {*task.labels},
        f"{name} has the labels {task_rows.list_labels(own.labels)}, but the task has "
        f"{task_rows.list_labels(task.labels)}. They must be the same.",
    )


def ask(
    teacher: Teacher, examples: Sequence[Example], labels: Sequence[str], cache_dir: str
) -> list[Example]:
    """Returns the examples with the answers of a teacher, in the order of the labels.

    The answers to some examples are a file of the cache, whose name depends on the teacher and on
    the texts: what is there is not asked again.
    """
    folder = os.path.join(cache_dir, f"teacher-{teacher.identity[:16]}")
    parts = []
    for begin in range(0, len(examples), _PIECE):
        rows = [example.texts for example in examples[begin : begin + _PIECE]]
        digest = hashlib.sha256(json.dumps(rows).encode()).hexdigest()
        path = os.path.join(folder, f"{digest[:32]}.npy")
        if not tf.io.gfile.exists(path):
            content = io.BytesIO()
            np.save(content, teacher.answer(rows).astype(np.float32))
            tf.io.gfile.makedirs(folder)
            files.write_bytes(path, content.getvalue())
            done = min(begin + _PIECE, len(examples))
            logging.info(f"{teacher.source}: {done:,} of {len(examples):,} examples answered")
        parts.append(np.load(io.BytesIO(files.read_bytes(path, "answers of a teacher"))))
    answers = np.concatenate(parts)
    values: Any = answers  # vectors stay arrays, for the memory
    if not teacher.task.kind.answer.gives_vectors:
        own = teacher.task.labels
        order = [own.index(label) for label in labels] or [0]
        values = [*map(tuple, answers[:, order].tolist())]
    return [x._replace(teacher=value) for x, value in zip(examples, values, strict=True)]


def add(records: Records, examples: Sequence[Example]) -> Records:
    """Returns the records with the answers that the examples have, if any of them has one."""
    answered = [example.teacher is not None for example in examples]
    if not any(answered):
        return records
    size = next(len(example.teacher) for example in examples if example.teacher is not None)
    answers = np.array([example.teacher or [0.0] * size for example in examples], np.float32)
    known = [example.label is not None for example in examples]
    weights = np.array([known, answered], np.float32).T

    def make_batch(rows: Any) -> dict[str, np.ndarray]:
        more = {features.TEACHER_OUTPUTS: answers[rows], features.TARGET_WEIGHTS: weights[rows]}
        return {**records.make_batch(rows), **more}

    pairs = zip(records.lines, examples, strict=True)
    lines = [{**line, "teacher": example.teacher} for line, example in pairs]
    return records._replace(make_batch=make_batch, lines=lines)
