"""Tests the reader of RACE: its folders, the endings of choices, its errors."""

import json
import os

import pytest
from refusals import one_line

from albert_tf.data_prep.task_data import race
from albert_tf.kinds import task_table
from albert_tf.kinds.base import TaskSplit

RACE = task_table.get("race")
SPLIT = TaskSplit(task=RACE, name="dev")
PASSAGE = {
    "answers": ["B", "D"],
    "options": [["salt", "oil", "ice", "sand"], ["one", "two", "three", "four"]],
    "questions": ["The lamp burned _ .", "How many steps?"],
    "article": "The keeper filled\u2028the lamp.",
}


def write(folder, name, *passages):
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(passage, ensure_ascii=False) + "\n" for passage in passages)
    (folder / name).write_text(lines, encoding="utf-8")
    return str(folder / name)


def test_a_passage_becomes_an_example_for_each_question(tmp_path):
    path = write(tmp_path / "dev" / "high", "12.txt", {**PASSAGE, "id": "high12.txt"})
    first, second = race.read(SPLIT, [path])[0]
    assert (first.id, first.label) == ("high12.txt-0", "B")
    assert (second.id, second.label) == ("high12.txt-1", "D")
    article, endings = PASSAGE["article"], [f"The lamp burned {x} ." for x in PASSAGE["options"][0]]
    assert first.texts == (article, *endings)
    assert (second.texts[0], second.texts[4]) == (article, "How many steps? four")
    path = write(tmp_path / "high", "1.txt", {**PASSAGE, "answers": []})  # of a test file
    assert [example.label for example in race.read(SPLIT, [path])[0]] == [None, None]


def test_a_passage_without_an_id_has_that_of_its_place(tmp_path):
    path = write(tmp_path / "middle", "7.txt", PASSAGE)
    joined = write(tmp_path / "high", "all.txt", PASSAGE, PASSAGE)
    other = write(tmp_path / "mytest", "5.txt", PASSAGE)
    ids = [example.id for example in race.read(SPLIT, [path, joined, other])[0]]
    assert ids == [
        *("middle7.txt-0", "middle7.txt-1"),
        *("highall.txt-0", "highall.txt-1", "highall.txt:2-0", "highall.txt:2-1"),
        *("5.txt-0", "5.txt-1"),
    ]


def test_each_blank_is_filled_once():
    for question, text in (
        ("He _ it.", "He \\1 oil it."),
        ("He ____ it.", "He \\1 oil it."),
        ("_ and _", "\\1 oil and \\1 oil"),
        ("Who?", "Who? \\1 oil"),
    ):
        assert race.fill_blank(question, "\\1 oil") == text


def test_both_levels_are_read_and_a_joined_file_only_alone(tmp_path):
    def find_files(split, folder=tmp_path):
        return race.find_files(TaskSplit(task=RACE, name=split), str(folder))

    dev = tmp_path / "RACE" / "dev"
    names = ["middle/4.txt", "high/1.txt", "high/22.txt", "high/3.txt"]
    expected = [write(dev / os.path.dirname(x), os.path.basename(x), PASSAGE) for x in names]
    assert find_files("dev") == find_files("dev", tmp_path / "RACE") == expected
    joined = write(dev / "middle", "all.txt", PASSAGE)
    assert joined not in find_files("dev")
    (dev / "middle/4.txt").unlink()
    assert find_files("dev")[0] == joined
    with one_line("no split 'dev_mismatched'"):
        find_files("dev_mismatched")
    with one_line(r"holds no RACE/test/middle/\*.txt"):
        find_files("test")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"options": [["a", "b", "c", "d"], ["a", "b", "c"]]}, "question 2: 3 options, but race h"),
        ({"answers": ["A", "E"]}, "question 2: 'E' is not a label of race, which has A, B, C, D"),
        ({"answers": ["A"]}, "does not have RACE's form .ValueError"),
        ({"article": None}, "does not have RACE's form .TypeError"),
        ({"questions": 3}, "does not have RACE's form .TypeError"),
        ({"id": None}, "the id is 'None': it must be text or a number"),
    ],
)
def test_a_bad_passage_is_named_with_its_file(tmp_path, changes, message):
    path = write(tmp_path / "high", "9.txt", PASSAGE | changes)
    with one_line(f"9.txt, line 1.*{message}"):
        race.read(SPLIT, [path])


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "is empty"), ("{", "this is not JSON"), ('{"article": ""}', "KeyError: 'questions'")],
)
def test_a_file_of_other_content(tmp_path, content, message):
    (tmp_path / "9.txt").write_text(content)
    with one_line(f"9.txt.*{message}"):
        race.read(SPLIT, [str(tmp_path / "9.txt")])
