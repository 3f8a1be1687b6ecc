"""RACE from its official folders: `RACE/dev/high/123.txt` is a passage with its questions."""

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.errors import UserError
from albert_tf.records.task_table import Task
from data_prep.task_data import examples, table_files
from data_prep.task_data.examples import Example, Found

LEVELS = {"all": ("middle", "high"), "middle": ("middle",), "high": ("high",)}
SPLITS = ("train", "dev", "test")
# Some copies have all the passages of a folder in one file, a line each.
_JOINED = "all.txt"


def find(split: str, data_dir: str, level: str) -> list[str]:
    """The files of a split in `data_dir`, or in `data_dir`/RACE.

    Args:
        split: train, dev or test.
        data_dir: the folder.
        level: of the schools, middle or high, or all.

    Raises:
        UserError: no such split or level, or no such files.
    """
    for name, value, known in (("split", split, SPLITS), ("level", level, LEVELS)):
        if value not in known:
            raise UserError(f"race has no {name} {value!r}. It has {', '.join(known)}.")
    return [path for part in LEVELS[level] for path in _find_level(split, data_dir, part)]


def _find_level(split: str, data_dir: str, level: str) -> list[str]:
    for root in (os.path.join(data_dir, "RACE"), data_dir):
        folder = os.path.join(root, split, level)
        found = sorted(tf.io.gfile.glob(os.path.join(folder, "*.txt")))
        joined = os.path.join(folder, _JOINED)
        if found:
            return [path for path in found if path != joined] or [joined]
    raise UserError(
        f"--data_dir: {data_dir} holds no RACE/{split}/{level}/*.txt. "
        "Name the folder into which RACE was unpacked."
    )


def read(paths: Sequence[str], task: Task) -> Found:
    """The questions of these files: texts are the passage and its four endings.

    Raises:
        UserError: a passage is not as it should be.
    """
    return Found([example for path in paths for example in _read_file(path, task)], 0)


def level_of(path: str) -> str:
    """The level of a file, which is the name of its folder; none in a folder of another name."""
    folder = os.path.basename(os.path.dirname(os.path.abspath(path)))
    return folder if folder in LEVELS["all"] else ""


def ending(question: str, option: str) -> str:
    """The question with the option in its blank, else after it, as published.

    The published code puts the option in place of every underscore; a blank drawn with several
    would repeat it. None of the 46,000 questions that were counted has such a blank, so nothing is
    lost by filling each blank once.
    """
    if "_" in question:
        return re.sub("_+", lambda _: option, question)
    return f"{question} {option}"


def _read_file(path: str, task: Task) -> Iterator[Example]:
    level = level_of(path)
    parse_label = examples.make_parse_label(task)
    for line, passage in table_files.read_json_lines(path):
        where = f"{path}, line {line}"
        article, questions, options, answers = _fields(passage, where)
        base = os.path.basename(path)
        name = str(passage.get("id", base if line == 1 else f"{base}:{line}"))
        # Scores by level read it from the id.
        name = name if name.startswith(LEVELS["all"]) else level + name
        for i, (question, choices) in enumerate(zip(questions, options, strict=True)):
            here = f"{where}, question {i + 1}"
            if len(choices) != len(task.labels):
                raise UserError(
                    f"{here}: {len(choices)} options, but {task.name} has {len(task.labels)}."
                )
            endings = (ending(question, choice) for choice in choices)
            label = parse_label(answers[i], here) if answers else None
            yield Example(f"{name}-{i}", (article, *endings), label)


def _fields(passage: dict[str, Any], where: str) -> tuple[str, list, list, list]:
    for field in ("article", "questions", "options"):
        if field not in passage:
            raise UserError(f"{where}: there is no {field!r}, so this is no passage of RACE.")
    article, questions, options = passage["article"], passage["questions"], passage["options"]
    # Those of a leaderboard's test are kept secret.
    answers = passage.get("answers", [])
    if not (
        isinstance(article, str)
        and all(map(_is_texts, (questions, answers)))
        and isinstance(options, list)
        and all(map(_is_texts, options))
    ):
        raise UserError(
            f"{where}: this is not of the form of RACE: article is a text, questions and answers "
            "are lists of texts, options is a list of such lists."
        )
    if len(options) != len(questions) or (answers and len(answers) != len(questions)):
        raise UserError(
            f"{where}: {len(questions)} questions, but {len(options)} lists of options "
            f"and {len(answers)} answers."
        )
    return article, questions, options, answers


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)
