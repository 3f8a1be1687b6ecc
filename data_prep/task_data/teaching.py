"""A teacher's answers to examples: computed once, kept in the cache, added to the records."""

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

_PIECE = 1024  # examples that are answered and stored at once


def check(teacher: Teacher, task: Task) -> None:
    """Raises `UserError` unless the teacher can answer a task's examples."""
    name, kind, own = f"--teacher: {teacher.source}", task.kind, teacher.task
    require(
        kind.learn.has_teacher,
        f"--teacher is not for {kind}: a model's outputs are for its own tokens, which may differ "
        "between the two models. Leave it out.",
    )
    require(own.kind == kind, f"{name} is for {own.kind}, but the task is {kind}. Use another one.")
    require(
        {*own.labels} == {*task.labels},
        f"{name} has the labels {task_rows.list_labels(own.labels)}, but the task has "
        f"{task_rows.list_labels(task.labels)}. They must be the same.",
    )


def ask(
    teacher: Teacher, examples: Sequence[Example], labels: Sequence[str], cache_dir: str
) -> list[Example]:
    """Returns the examples with a teacher's answers, in the order of the labels.

    The cache stores answers in files whose names depend on the teacher and the texts, so they are
    computed only once.
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
        parts.append(np.load(io.BytesIO(files.read_bytes(path, "a teacher's answers"))))
    answers = np.concatenate(parts)
    values: Any = answers  # embeddings stay arrays, to save memory
    if not teacher.task.kind.answer.gives_vectors:
        own = teacher.task.labels
        order = [own.index(label) for label in labels] or [0]
        values = [*map(tuple, answers[:, order].tolist())]
    return [x._replace(teacher=value) for x, value in zip(examples, values, strict=True)]


def add(records: Records, examples: Sequence[Example]) -> Records:
    """Returns the records with the examples' answers, if any example has one."""
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
