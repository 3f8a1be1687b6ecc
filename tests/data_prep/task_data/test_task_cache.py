"""Tests task datasets: their names, and that they are complete or absent."""

import dataclasses
import json
import os

import input_files
import pytest
from refusals import one_line
from tiny_task_data import CHOICES, PAIR, QUESTION, ROWS, TASK, S, read_examples

from albert_tf.data_prep.task_data import task_cache, task_dataset
from albert_tf.kinds import task_table
from albert_tf.kinds.base import TaskSplit
from albert_tf.kinds.tables.task_rows import Columns, DataSource
from albert_tf.records import manifest
from albert_tf.train_config import Lengths


def test_manifest_and_the_line_that_is_logged(write_rows, prepare, tokenizer, capsys):
    folder = prepare(write_rows(ROWS), dataclasses.replace(TASK, has_pairs=True))
    contents = manifest.read(folder)
    columns = {"text": "text", "second_text": "second", "label": "label", "id": None}
    columns |= {"choices": [], "teacher": [], "negatives": [], "simcse": False}
    task = {"task": "own", "kind": "classification", "labels": ["no", "yes"], "has_pairs": True}
    settings = {"split": "train", "max_seq_length": S, "columns": columns}
    assert contents["settings"] == task | settings
    assert contents["vocabulary"] == {"size": tokenizer.size, "sha256": tokenizer.sha256}
    assert manifest.count_examples([os.path.join(folder, task_dataset.RECORDS)]) == [3]
    assert contents["statistics"] == {"examples": 3, "skipped_rows": 0, "truncated": 1}
    line = f"own train: 3 examples, 0 skipped rows, 1 truncated -> {folder}"
    assert capsys.readouterr().err.splitlines()[-1] == line


def test_a_complete_dataset_is_not_made_again_and_one_without_records_refused(
    write_rows, prepare, capsys
):
    path = write_rows(ROWS)
    folder = prepare(path)
    time = os.stat(os.path.join(folder, task_dataset.RECORDS)).st_mtime_ns
    capsys.readouterr()
    assert prepare(path) == folder
    assert os.stat(os.path.join(folder, task_dataset.RECORDS)).st_mtime_ns == time
    assert capsys.readouterr().err == f"own train: {folder} already exists.\n"
    os.remove(os.path.join(folder, task_dataset.RECORDS))
    with one_line(rf"no file .*{task_dataset.RECORDS}\. Remove {folder}: it"):
        task_dataset.read(folder)


def read_held_out(path, name="dev"):
    split = TaskSplit(task=TASK, name=name, input_file=path, holds_out=True)
    return task_cache.read_examples(split)


def test_a_tenth_is_held_out_by_label_and_texts_stay_together(write_rows):
    numbers = [*range(35), *range(35)]
    path = write_rows([{"text": f"text {k}", "label": "yes" if k < 14 else "no"} for k in numbers])
    read = {name: read_held_out(path, name) for name in ("train", "dev")}
    texts = {name: {x.texts for x in examples} for name, examples in read.items()}
    assert not texts["train"] & texts["dev"]
    assert len(texts["train"] | texts["dev"]) == 35
    assert sum(map(len, read.values())) == 70
    labels = [x.label for x in read["dev"]]
    assert 2 <= labels.count("yes") <= 4 <= labels.count("no") <= 6
    rare = write_rows([{"text": f"{k}", "label": "no" if k < 15 else "yes"} for k in range(16)])
    assert [x.label for x in read_held_out(rare)] == ["no"]
    alike = write_rows([{"text": x, "label": "yes"} for x in ("a  Day", "A day")])
    with one_line("too few different texts to hold some out"):
        read_held_out(alike)


def test_answers_in_no_window_are_warned_of_each_time(prepare, tmp_path, capsys):
    path = input_files.write_squad(tmp_path / "questions.json", "a " * 40, "a " * 30 + "a")
    lengths = {"max_seq_length": 20, "max_query_length": 3, "doc_stride": 5}
    for _ in range(2):
        prepare(str(path), task_table.get("squad1"), **lengths)
        lines = capsys.readouterr().err.splitlines()
        assert "1 of 1 questions have an answer that no window" in lines[-1]


def test_the_name_depends_on_all_that_records_do(write_rows, prepare, tokenizer, tmp_path):
    path = write_rows(ROWS)
    other = task_table.make_own("classification", ["yes", "no"])
    recased = dataclasses.replace(tokenizer, sha256="of another vocabulary")
    split = TaskSplit(task=TASK, name="train", input_file=path, source=DataSource(columns=PAIR))
    folders = [
        prepare(path),
        prepare(path, other),
        prepare(path, split="dev"),
        prepare(path, columns=Columns()),
        prepare(path, max_seq_length=S + 1),
        prepare(write_rows(ROWS[:2], "other.jsonl")),
        task_cache.prepare(split, recased, f"{tmp_path}/cache", Lengths(max_seq_length=S)),
    ]
    assert len(set(folders)) == len(folders)
    # A length of another kind of task changes nothing.
    assert prepare(path, doc_stride=7, max_qa_length=3) == folders[0]
    write_rows(ROWS[1:])
    assert prepare(path) not in folders


def test_the_name_depends_on_the_level_of_race_and_no_other_folder(prepare, tmp_path, monkeypatch):
    passage = {"article": "A", "questions": ["B"], "options": [["a", "b", "c", "d"]]}
    for level in ("middle", "high", "a", "b"):
        (tmp_path / level).mkdir()
        (tmp_path / level / "1.txt").write_text(json.dumps(passage))

    def name(path):
        return prepare(str(path), task_table.get("race"), "test", max_qa_length=5)

    middle = name(tmp_path / "middle/1.txt")
    assert name(tmp_path / "a/1.txt") == name(tmp_path / "b/1.txt") != middle
    assert name(tmp_path / "high/1.txt") != middle
    monkeypatch.chdir(tmp_path / "middle")
    assert name("1.txt") == middle


def test_a_folder_that_another_program_finished_meanwhile_is_kept(
    write_rows, prepare, tmp_path, monkeypatch
):
    path, write_records, folders = write_rows(ROWS), task_cache.write, []

    def write_slowly(*arguments, **options):
        if not folders:
            folders.append(None)
            folders.append(prepare(path))
        return write_records(*arguments, **options)

    monkeypatch.setattr(task_cache, "write", write_slowly)
    assert prepare(path) == folders[1]
    assert os.listdir(tmp_path / "cache") == [os.path.basename(folders[1])]
    assert len(read_examples(folders[1])) == 3


def test_a_folder_without_its_manifest_is_made_again(write_rows, prepare, tmp_path):
    path = write_rows(ROWS)
    folder = prepare(path)
    for name in (manifest.NAME, task_dataset.EXAMPLES):
        os.remove(os.path.join(folder, name))
    assert prepare(path) == folder
    assert manifest.count_examples([os.path.join(folder, task_dataset.RECORDS)]) == [3]
    assert len(read_examples(folder)) == 3
    assert os.listdir(tmp_path / "cache") == [os.path.basename(folder)]


@pytest.mark.parametrize(
    ("rows", "id_column", "message"),
    [
        ("a,maybe\n", None, "line 2: 'maybe' is not a label of own, .* no, yes"),
        ("a,yes\na,yes\n", "text", "line 3: the id 'a' is also used in .*line 2,"),
        ("", None, r"dev\.csv has no examples"),
    ],
)
def test_bad_input_leaves_nothing(prepare, tmp_path, rows, id_column, message):
    (tmp_path / "dev.csv").write_text(f"text,label\n{rows}")
    with one_line(message):
        prepare(str(tmp_path / "dev.csv"), columns=Columns(id=id_column))
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ({"max_seq_length": 4}, "max_seq_length must be at least 5, not 4"),
        ({"max_qa_length": 0}, "max_qa_length must be at least 1, not 0"),
        ({"max_qa_length": S - 3}, "max_qa_length=10 leaves no room for the passage"),
    ],
)
def test_lengths_that_do_not_fit_are_refused(write_rows, prepare, lengths, message):
    task = task_table.make_own("multiple_choice", ["A", "B", "C"])
    with one_line(message):
        prepare(write_rows([{**QUESTION, "label": "C"}]), task, columns=CHOICES, **lengths)


@pytest.mark.parametrize(
    ("name", "source", "message"),
    [
        ("train", {}, "there is no train file: pass --train_file or --data_dir"),
        ("dev", {}, r"pass --dev_file, --train_file \(a tenth of it is held out\) or --data_dir"),
        ("valid", {"data_dir": "."}, r"no split 'valid'. Use one of train, dev, dev_mismatched"),
        ("dev", {"input_file": "*.csv"}, r"the file of dev: \*.csv matches 2 files: pass only one"),
        ("dev", {"input_file": "none.csv"}, r"the file of dev: no file matches 'none.csv'"),
    ],
)
def test_sources_without_one_file_are_refused(tmp_path, monkeypatch, name, source, message):
    monkeypatch.chdir(tmp_path)
    for file in ("a.csv", "b.csv"):
        (tmp_path / file).touch()
    folder, file = DataSource(data_dir=source.get("data_dir")), source.get("input_file")
    with one_line(message):
        task_cache.read_examples(TaskSplit(task=TASK, name=name, input_file=file, source=folder))
