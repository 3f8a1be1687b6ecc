"""Reads RACE's official folders: `RACE/dev/high/123.txt` is a passage with its questions."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.errors import UserError
from albert_tf.kinds.base import Example, Task, TaskSplit
from albert_tf.kinds.multiple_choice import fill_blank
from albert_tf.kinds.tables import table_files
from albert_tf.kinds.tables.task_rows import text_or_number

LEVELS = ("middle", "high")
SPLITS = ("train", "dev", "test")
# Some copies have all passages of a folder in one file, one per line.
_JOINED = "all.txt"


def find_files(split: TaskSplit, data_dir: str) -> list[str]:
    """Returns the paths of a split in `data_dir`/RACE, or in `data_dir` itself.

    Raises `UserError` if there is no such split, or a school level has no files.
    """
    if split.name not in SPLITS:
        raise UserError(f"race has no split {split.name!r}. It has {', '.join(SPLITS)}.")
    return [path for level in LEVELS for path in _find_level(split.name, data_dir, level)]


def _find_level(split: str, data_dir: str, level: str) -> list[str]:
    for root in (os.path.join(data_dir, "RACE"), data_dir):
        folder = os.path.join(root, split, level)
        paths = sorted(tf.io.gfile.glob(os.path.join(folder, "*.txt")))
        joined = os.path.join(folder, _JOINED)
        if paths:
            return [path for path in paths if path != joined] or [joined]
    raise UserError(
        f"--data_dir: {data_dir} holds no RACE/{split}/{level}/*.txt. "
        "Pass the folder with the unpacked RACE."
    )


def read(split: TaskSplit, paths: Sequence[str]) -> tuple[list[Example], int]:
    """Reads all questions of files.

    The texts are the passage and an ending for each choice.

    Raises `UserError` if a passage does not have RACE's form.
    """
    return [example for path in paths for example in _read_file(path, split.task)], 0


def level_from_path(path: str) -> str:
    """Returns the school level of a file: the name of its folder, or "" for other names."""
    folder = os.path.basename(os.path.dirname(os.path.abspath(path)))
    return folder if folder in LEVELS else ""


def _read_file(path: str, task: Task) -> Iterator[Example]:
    level, base = level_from_path(path), os.path.basename(path)
    for line, passage in table_files.read_json_lines(path):
        place = f"{path}, line {line}"
        name = passage.get("id", base if line == 1 else f"{base}:{line}")
        name = text_or_number(name, "id", place)
        # Scoring by level reads the level from the id.
        name = name if name.startswith(LEVELS) else level + name
        for i, (texts, answer) in enumerate(_read_questions(passage, place)):
            question = f"{place}, question {i + 1}"
            if len(texts) != 1 + len(task.labels):
                raise UserError(
                    f"{question}: {len(texts) - 1} options, but {task.name} has {len(task.labels)}."
                )
            label = None if answer is None else task.parse_label(answer, question)
            yield Example(f"{name}-{i}", texts, label)


def _read_questions(
    passage: dict[str, Any], place: str
) -> list[tuple[tuple[str, ...], str | None]]:
    """Returns (passage and endings, answer) of each question; test files may lack answers."""
    try:
        article, questions, options = (passage[x] for x in ("article", "questions", "options"))
        answers = passage.get("answers") or [None] * len(questions)
        return [
            (("" + article, *(fill_blank(question, choice) for choice in choices)), answer)
            for question, choices, answer in zip(questions, options, answers, strict=True)
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{place} does not have RACE's form ({type(error).__name__}: {error}): article is a "
            "text, questions and answers are lists of texts, and options is a list of such lists."
        ) from None
