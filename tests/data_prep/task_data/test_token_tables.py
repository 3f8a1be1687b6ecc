"""Texts whose words have tags, read from columns and from JSON lines."""

import json

import pytest
from refusals import one_line

from albert_tf.kinds import task_table
from albert_tf.kinds.base import TaskSplit
from albert_tf.kinds.tables import token_tables
from albert_tf.kinds.tables.task_rows import Columns, DataSource

LABELS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
ANN = "Ann\tB-PER\nLee\tI-PER\nsaw\tO\nRome\tB-LOC\n"


@pytest.fixture
def write(tmp_path):
    def write(content, name="train.conll"):
        if isinstance(content, list):
            content = "".join(json.dumps(row) + "\n" for row in content)
        (tmp_path / name).write_text(content, encoding="utf-8")
        return str(tmp_path / name)

    return write


def read(path, split="train", labels=LABELS, **source):
    task = task_table.make_own("token_classification", labels)
    return task.kind.data.read(TaskSplit(task=task, name=split, source=DataSource(**source)), path)


def test_columns(write):
    path = write(f"-DOCSTART- O\n\n{ANN}\n\n\n北\tB-LOC\n京\tI-LOC\nis\tO\n\n")
    first, second = read(path)
    assert first.text == "Ann Lee saw Rome"
    assert first.words == ((0, 3), (4, 7), (8, 11), (12, 16))
    assert first.spans == ((0, 7, "PER"), (12, 16, "LOC"))
    assert (second.id, second.text, second.spans) == ("1", "北京 is", ((0, 2, "LOC"),))
    assert token_tables.read_labels(path, Columns()) == LABELS


def test_any_columns(write):
    path = write("1 Ann NNP B-PER\n2 saw VBD O\n", "train.txt")
    columns = Columns(text="2", label="3")
    assert token_tables.read_labels(path, columns) == ("NNP", "VBD")
    (example,) = read(path, labels=("NNP", "VBD"), columns=columns)
    assert example.spans == ((0, 3, "NNP"), (4, 7, "VBD"))


def test_universal_dependencies(write):
    rest = "\t_" * 6
    lines = [f"1\tdel\tde\tADP{rest}", f"1-2\tdel\t_\t_{rest}", f"2\t#\t#\tNOUN{rest}"]
    path = write("# sent_id = 1\n" + "\n".join(lines) + "\n", "train.conllu")
    (example,) = read(path, labels=("ADP", "NOUN"))
    assert example.text == "del #"


def test_json_lines_of_words_and_of_characters(write):
    rows = [
        {"words": [" Ann", "Lee\t\n"], "tags": ["B-PER", "I-PER"], "key": "a"},
        {"text": "In Rome.", "spans": [{"start": 3, "end": 7, "type": "LOC"}], "key": 7},
        {"text": "é Rome", "spans": [[2, 6, "LOC"]], "key": "c"},
    ]
    path = write(rows, "train.jsonl")
    examples = read(path, columns=Columns(id="key"))
    spans = {"a": (0, 7, "PER"), "7": (3, 7, "LOC"), "c": (2, 6, "LOC")}
    assert {example.id: example.spans[0] for example in examples} == spans
    assert examples[1].words == ((0, 2), (3, 7), (7, 8))
    assert token_tables.read_labels(path, Columns()) == LABELS


def test_a_test_file_needs_no_tags(write):
    for path in (write("Ann\nsaw\n"), write([{"text": "Ann"}], "test.jsonl")):
        [example] = read(path, split="test")
        assert example.spans is None


def test_tags_are_repaired_on_request(write):
    path = write("Ann\tI-PER\nLee\tI-PER\nRome\tI-LOC\n")
    with one_line(r"line 1: I-PER follows the beginning, .* is not BIO"):
        read(path)
    (example,) = read(path, repair_tags=True)
    assert example.spans == ((0, 7, "PER"), (8, 12, "LOC"))


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        ("", "a.conll", r"a\.conll is empty"),
        ("Ann\tB-PER\nLee\n", "a.conll", r"line 2: 1 columns, but 2 in the lines before"),
        ("Ann\t\n", "a.conll", r"line 1: the word or its tag is empty"),
        ("Ann\tB-ORG\n", "a.conll", r"line 1: 'B-ORG' is not a label of the task, which has B-LOC"),
        ("Ann\tO\nx\tB-PER\ny\tI-LOC\n", "a.conll", r"line 3: I-LOC follows B-PER"),
        ("Ann O", "a.csv", r"must end with one of \.conll"),
        ([{"words": [], "tags": []}], "a.jsonl", r"line 1: the words are \[\]\. Use texts"),
        ([{"words": ["a", 1], "tags": ["O", "O"]}], "a.jsonl", r"line 1: the words are \['a', 1\]"),
        ([{"words": ["a"], "tags": ["O", "O"]}], "a.jsonl", r"line 1: 1 words and 2 tags"),
        ([{"text": "", "spans": []}], "a.jsonl", r"line 1: the text is empty"),
        ([{"text": "a", "spans": [[0, 2, "PER"]]}], "a.jsonl", r"from 0 to 2 .* 1 characters"),
        ([{"text": "a", "spans": [[0, 1]]}], "a.jsonl", r"the span \[0, 1\] is not like"),
        ([{"text": "a", "spans": [[0, 1, "ORG"]]}], "a.jsonl", r"'ORG' is not a label .* LOC, PER"),
        ([{"text": "ab", "spans": [[0, 2, "PER"], [1, 2, "PER"]]}], "a.jsonl", r"overlap at char"),
        ([{"word": "a"}], "a.jsonl", r"no column 'text or words or tokens'\. It has word"),
    ],
)
def test_mistakes_are_told_with_file_and_line(write, content, name, message):
    with one_line(message):
        read(write(content, name))


def test_an_id_is_there_twice(write):
    row = {"text": "a", "spans": [], "id": 3}
    with one_line(r"line 2: the id '3' is also used in .*line 1,"):
        read(write([row, row], "a.jsonl"), columns=Columns(id="id"))
    with one_line(r"line 1: the id 'id' is 'None': it must be text or a number"):
        read(write([row | {"id": None}], "a.jsonl"), columns=Columns(id="id"))


def test_labels_that_cannot_be_are_refused(write):
    path = write("a\tB-PER\nb\tLOC\n")
    with one_line(r"conll: the tag 'LOC' is neither O nor like"):
        token_tables.read_labels(path, Columns())
    with one_line(r"conll has too few labels \(O\): use"):
        token_tables.read_labels(write("a\tO\n"), Columns())
    with one_line(r"--label_column: 'tag' is not a column number"):
        token_tables.read_labels(path, Columns(label="tag"))


def test_quoted_words_and_tags_are_warned_of(tmp_path, capsys):
    (tmp_path / "train.tsv").write_text('"Ann"\t"B-PER"\n"ran"\t"O"\n')
    token_tables.read_labels(str(tmp_path / "train.tsv"), Columns())
    assert "column 1 is in quotation marks" in capsys.readouterr().err
