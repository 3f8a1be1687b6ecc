"""Tests the reader of users' own tables in tsv, csv and JSON lines."""

import json

import pytest
from refusals import one_line

from albert_tf.data_prep.task_data import task_cache
from albert_tf.data_prep.task_data.task_source import DataArguments
from albert_tf.kinds import task_table
from albert_tf.kinds.base import TaskSplit
from albert_tf.kinds.tables import table_files
from albert_tf.kinds.tables.task_rows import Columns, DataSource

TASK = task_table.make_own("classification", ["bad", "good"])
PLAIN = Columns(text="review", label="verdict", id="name")
FILES = {
    "tsv": '\ufeffname\treview\tverdict\na\tA "fine lamp\tgood\n\nb\tToo\u2028dark\tbad\n',
    "csv": '\ufeffname,review,verdict\r\na,"A ""fine lamp",good\r\n\r\nb,Too\u2028dark,bad\r\n',
    "jsonl": '{"name": "a", "review": "A \\"fine lamp", "verdict": "good"}\n\n'
    '{"name": "b", "review": "Too\u2028dark", "verdict": "bad", "more": [1]}\n',
}
EXAMPLES = [("a", ('A "fine lamp',), "good"), ("b", ("Too\u2028dark",), "bad")]


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(tmp_path / name)

    return write


def read(path, task=TASK, split="train", columns=PLAIN):
    task_split = TaskSplit(task=task, name=split, source=DataSource(columns=columns))
    return [tuple(example[:3]) for example in task.kind.data.read(task_split, path)]


def read_labels(path, task, split):
    return [label for *_, label in read(path, task, split, Columns())]


def make_task(kind, columns, *, labels=(), train_file=None):
    source = DataSource(columns=columns)
    arguments = DataArguments(task="own", source=source, kind=kind, labels=tuple(labels))
    return task_cache.make_task(arguments, train_file)


@pytest.mark.parametrize("suffix", FILES)
def test_every_format_has_the_same_examples(write, suffix):
    assert read(write(f"train.{suffix}", FILES[suffix])) == EXAMPLES


def test_a_text_of_csv_may_have_several_lines(write):
    long = "lamp " * 30_000
    path = write("dev.csv", f'text,label\n"one,\ntwo",good\n"{long}",bad\n')
    assert read(path, columns=Columns()) == [("0", ("one,\ntwo",), "good"), ("1", (long,), "bad")]


@pytest.mark.parametrize("name", ["dev.csv", "dev.tsv"])
def test_the_header_is_the_first_line_that_is_not_blank(write, name):
    comma = {"dev.csv": ",", "dev.tsv": "\t"}[name]
    path = write(name, f"\n\ntext{comma}label\nx{comma}good\n {comma} \n \r\n")
    assert read(path, columns=Columns()) == [("0", ("x",), "good")]


CHOICE = "text,question,x,y,z,label\nFog rose.,It was _ then.,wet,dry,hot,A\n"


@pytest.mark.parametrize(("question", "ending"), [("question", "It was {} then."), (None, "{}")])
def test_multiple_choice(write, question, ending):
    columns = Columns(second_text=question, choices=("x", "y", "z"))
    task = make_task("multiple_choice", columns)
    assert task.labels == ("A", "B", "C")
    expected = [("0", ("Fog rose.", *map(ending.format, ("wet", "dry", "hot"))), "A")]
    assert read(write("dev.csv", CHOICE), task, columns=columns) == expected


def test_labels_are_those_of_train_in_order_and_logged(write, capsys):
    path = write("train.csv", 'text,label\nx,"y, e"\ny,yes\nz,no\nx,yes\n')
    task = make_task("classification", Columns(), train_file=path)
    assert task.labels == ("no", "y, e", "yes")
    assert capsys.readouterr().err == f'3 labels in {path}: no, "y, e", yes\n'
    with one_line(r'is not a label of own, which has no, "y, e", yes\.'):
        task.parse_label("d", "dev.csv, line 2")
    make_task("classification", Columns(), labels=["no", "yes"], train_file=path)
    assert capsys.readouterr().err == ""


def test_labels_that_are_numbers_are_in_numerical_order(write):
    rows = "".join(json.dumps({"text": "x", "label": n}) + "\n" for n in (10, 2, 1, 10))
    task = make_task("classification", Columns(), train_file=write("train.jsonl", rows))
    assert task.labels == ("1", "2", "10")
    assert read_labels(write("dev.jsonl", rows), task, "dev") == ["10", "2", "1", "10"]


@pytest.mark.parametrize(("one", "other"), [("1", "1.0"), ("2", "02")])
def test_two_labels_for_one_are_refused(write, one, other):
    path = write("train.csv", f"text,label\nx,{one}\ny,{other}\nz,b\n")
    numbers = rf"the numbers ({one} and {other}|{other} and {one}) are equal\. Write"
    with one_line(rf"'label' has one label in two forms: {numbers}"):
        make_task("classification", Columns(), train_file=path)
    assert make_task("classification", Columns(), labels=[one, other]).labels == (one, other)


@pytest.mark.parametrize(
    "task", [TASK, task_table.make_own("regression")], ids=lambda task: task.kind
)
def test_labels_of_a_test_file_may_be_empty(write, task):
    for split, name, content in (
        ("test_mismatched", "test.csv", "text,other\nx,good\ny,bad\n"),
        ("test", "test.csv", "text,label\nx,\ny,\n"),
        ("test", "test.jsonl", '{"text": "x", "label": null}\n{"text": "y"}\n'),
    ):
        assert read_labels(write(name, content), task, split) == [None, None]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("dev.tsv", "text\tclass\nx\tgood\n", "no column 'label'. It has text, cl"),
        ("dev.csv", "text,label\nx,good\ny,fair\n", "dev.csv, line 3: 'fair' is not a label of"),
        ("dev.csv", "text,label\nx,good\ny,z,bad\n", "line 3: 3 fields, but the header has 2"),
        ("dev.csv", 'text,label\n"x,good\n', "line 2: this is not csv: unexpected end"),
        ("dev.csv", '"text";"label"\n"x";"good"\n', "line 1: .* Put commas between the fields"),
        ("dev.jsonl", '{"text": "x", "label": "good"}\n{"label": 1}\n', "line 2.*no column 'text'"),
        ("dev.tsv", "text\tlabel\nx\tgood\ny\t\n", "line 3: the label 'label' is empty: add one"),
        ("dev.jsonl", '{"text": "x", "text": "y"}\n', "line 1: .* the key 'text' appears twice"),
        ("dev.csv", " \n", "dev.csv is empty"),
        ("dev.json", '[{"text": "x"', "dev.json' is not JSON"),
        ("dev.csv", "text,label,text\nx,good,y\n", "dev.csv: 2 columns are named 'text'"),
        ("dev.csv", "text,label\n ,good\n", "line 2: the column 'text' is ' ', not text"),
        ("dev.csv", b"\xff\xfet\0", "dev.csv is UTF-16: convert it"),
        ("dev.csv", "text;label\nx;good\n", "text;label. The fields seem to be separated by ';'"),
        ("dev.tsv", "text,label\nx,good\n", "It has text,label. .* or with tabs as .tsv"),
        ("dev.tsv", "text\tlabel\rx\tgood\r", "dev.tsv: its lines end with carriage returns"),
        (
            "dev.jsonl",
            '{"text": "x", "label": {"a": 1}}\n',
            "the label 'label' is .* must be text or",
        ),
        ("dev.csv", 'text,label\nx,"a\nb"\n', r"the label 'label' has several lines: 'a\\nb'"),
        ("dev.tsv", '"text"\t"label"\n"x"\t"good"\n', "there is no column 'text'. It has \"text\""),
        ("dev.txt", "text\nx\n", "one of .tsv, .csv, .jsonl, .json. Save a spreadsheet as .csv."),
    ],
)
def test_bad_input_is_one_line_with_its_place(write, name, content, message):
    with one_line(message):
        read(write(name, content), split="dev", columns=Columns())


@pytest.mark.parametrize(
    ("kind", "columns", "labels", "message"),
    [
        ("multiple_choice", Columns(), [], "multiple_choice needs --choice_columns"),
        ("regression", Columns(choices=("a", "b")), [], "choice_columns is not for regression"),
        ("classification", Columns(), [], "pass --labels"),
        ("multiple_choice", Columns(choices=("a", "b")), ["1", "2", "3"], "has 2 columns, but"),
    ],
)
def test_arguments_that_disagree_are_refused(kind, columns, labels, message):
    with one_line(message):
        make_task(kind, columns, labels=labels)


def test_a_split_is_one_file(write, tmp_path):
    path, where = write("dev.csv", "x"), (TASK.kind.data.suffixes, str(tmp_path))
    assert table_files.find_file("dev", *where) == path
    write("dev.jsonl", "x")
    with one_line(r"must hold one file dev.tsv or dev.csv.*, not 2"):
        table_files.find_file("dev", *where)
    with one_line(r"not 0. Pass the file itself"):
        table_files.find_file("train", *where)


def test_the_second_column_decides_whether_there_are_pairs(write):
    pairs, single = Columns(second_text="second"), Columns()
    path = write("dev.csv", "text,second,label\nx,y,1.5\n")
    for columns, other, remedy in (
        (pairs, single, "of pairs of texts, so pass the column"),
        (single, pairs, "of one text, so leave it out"),
    ):
        task = make_task("regression", columns)
        assert task.has_pairs == (columns is pairs)
        assert len(read(path, task, columns=columns)[0][1]) == 1 + task.has_pairs
        with one_line(f"--second_text_column: the task is {remedy}"):
            read(path, task, columns=other)
        assert read(path, task_table.make_own("regression"), columns=other)
    choices = Columns(second_text="question", choices=("x", "y", "z"))
    assert make_task("multiple_choice", choices).has_pairs is None


def test_labels_of_regression_are_numbers():
    regression = task_table.make_own("regression")
    for label in ("1", " -2.5", "+.5e-3 ", "3.", "1E5"):
        assert regression.parse_label(label, "dev.csv") == float(label)
    for label in ("1_000", "１２", "1e39", "-4e38", "0x1", "infinity", "1 2", ""):
        with one_line("is not a number, but regression needs one"):
            regression.parse_label(label, "dev.csv, line 2")


@pytest.mark.parametrize(
    ("kind", "value"), [("regression", None), ("regression", True), ("sentence_embedding", " ")]
)
def test_what_is_no_id(write, kind, value):
    row = {"text": "x", "second": "y", "label": 1, "id": value}
    columns, path = Columns(second_text="second", id="id"), write("dev.jsonl", json.dumps(row))
    with one_line(r"dev\.jsonl, line 1: the id 'id' is .*: (it must|give)"):
        read(path, make_task(kind, columns), "dev", columns)


def test_spaces_around_a_label_are_none_of_its_own(write):
    path = write("train.csv", "text,label\nx,a\ny,a \nz, b\n")
    task = make_task("classification", Columns(), train_file=path)
    assert task.labels == ("a", "b")
    assert read_labels(path, task, "train") == ["a", "a", "b"]
    assert read_labels(write("test.csv", "text,label\nx, a\ny, \n"), task, "test") == ["a", None]


MANY = [f"x,a{i}\n" for i in range(101)]


@pytest.mark.parametrize(
    ("kind", "rows", "message"),
    [
        ("classification", "x,a\ny,a\n", r"has too few labels \(a\): use .* at least 2, or"),
        ("multi_label", "x,\n", r"'label' has too few labels \(none\): use .* at least 1, or"),
        ("classification", "x,a\ny, \n", "line 3: the label 'label' is empty: add one"),
        ("classification", "", "has a header but no rows"),
        ("classification", "".join(MANY), "'label' has 101 different labels: is --label_column ri"),
    ],
    ids=["one", "none", "empty", "no row", "many"],
)
def test_a_train_file_without_labels_to_learn(write, kind, rows, message):
    path = write("train.csv", f"text,label\n{rows}")
    with one_line(rf"train\.csv.* {message}"):
        make_task(kind, Columns(), train_file=path)


@pytest.mark.parametrize(
    "content",
    [
        '[{"text": "x", "label": "good"},\n {"text": "y\\nz", "label": "bad"}]',
        '{"text": "x", "label": "good"}\n\n{"text": "y\\nz", "label": "bad"}\n',
    ],
)
def test_json_is_a_list_of_objects_or_lines(write, content):
    examples = read(write("DEV.JSON", "\ufeff" + content), split="dev", columns=Columns())
    assert [(*texts, label) for _, texts, label in examples] == [("x", "good"), ("y\nz", "bad")]
