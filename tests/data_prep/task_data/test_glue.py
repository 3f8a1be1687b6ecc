"""Tests the reader of GLUE: the columns of every task and the quirks of the official files."""

import pytest
from refusals import one_line

from albert_tf.data_prep.task_data import glue
from albert_tf.kinds import task_table
from albert_tf.kinds.base import TaskSplit

PARSES = "index|promptID|pairID|genre|sentence1_binary_parse|sentence1_parse"
PAIR = "index|sentence1|sentence2"
SCORED = "index|genre|filename|year|old_index|source1|source2|sentence1|sentence2|score"
QQP = "id|qid1|qid2|question1|question2|is_duplicate", "9|1|2|Who sails?|Who rows?|0"
MRPC, RTE_HEADER = "#1 ID|#2 ID|#1 String|#2 String", f"{PAIR}|label"
MEN, SAIL = "A man.|A sail.", "He sails.|He rows."
# Task, split, the first row, or none; a row; its texts; its label. For tabs there are bars.
CASES = [
    ("cola", "train", "", "gj04|0|*|The keeper slept.", "The keeper slept.", "0"),
    ("cola", "dev", "", "gj04|1||The keeper slept.", "The keeper slept.", "1"),
    ("cola", "test", "index|sentence", "5|The lamp went out.", "The lamp went out.", None),
    ("cola", "dev", "source|label|notes|sentence", "gj04|1||It went.", "It went.", "1"),
    ("cola", "train", "sentence|label", "It went.|1", "It went.", "1"),
    ("sst-2", "train", "sentence|label", "a bright lamp |1", "a bright lamp ", "1"),
    ("sst-2", "test", "index|sentence", "5|a dull lamp .", "a dull lamp .", None),
    ("mrpc", "dev", f"Quality|{MRPC}", "1|70|71|He .|Up .", "He .|Up .", "1"),
    ("mrpc", "test", f"index|{MRPC}", "5|70|71|He|Up", "He|Up", None),
    ("sts-b", "train", SCORED, f"0|captions|M|2012|1|n|n|{MEN}|3.800", MEN, 3.8),
    ("qqp", "train", *QQP, "Who sails?|Who rows?", "0"),
    ("qqp", "test", "id|question1|question2", "5|Who?|When?", "Who?|When?", None),
    (
        *("mnli", "train", f"{PARSES}|sentence1|sentence2|label1|gold_label"),
        *("0|1|1n|fiction|( a )|(R a)|It rained.|It was wet.|neutral|entailment",),
        *("It rained.|It was wet.", "entailment"),
    ),
    (
        *("mnli", "dev_mismatched", f"{PARSES}|sentence1|sentence2|label1|label2|gold_label"),
        *("0|1|1n|letters|( a )|(R a)|It rained.|It was dry.|x|y|contradiction",),
        *("It rained.|It was dry.", "contradiction"),
    ),
    (
        *("mnli", "test_mismatched", f"{PARSES}|sentence1|sentence2"),
        *("5|1|1n|letters|( a )|(R a)|It rained.|It was dark.", "It rained.|It was dark.", None),
    ),
    ("qnli", "dev", "index|question|sentence|label", f"0|{MEN}|entailment", MEN, "entailment"),
    ("rte", "dev", RTE_HEADER, f"0|{SAIL}|entailment", SAIL, "entailment"),
    ("wnli", "dev", RTE_HEADER, "0|It was wet.|It was.|0", "It was wet.|It was.", "0"),
    ("ax", "test", PAIR, "5|It is on.|It is not on.", "It is on.|It is not on.", None),
]


def write(tmp_path, name, split, *lines, end="\n"):
    """Writes a file of a task where GLUE has it; returns the folder of all tasks."""
    layout = glue.LAYOUTS[name]
    folder = tmp_path / layout.folder
    folder.mkdir(exist_ok=True)
    content = end.join(line.replace("|", "\t") for line in lines if line) + end
    (folder / layout.files[split]).write_bytes(content.encode(errors="surrogateescape"))
    return tmp_path


def find_file(folder, name, split):
    return glue.find_files(TaskSplit(task=task_table.get(name), name=split), str(folder))[0]


def read(tmp_path, name, split):
    path = find_file(tmp_path, name, split)
    examples, num_skipped = glue.read(TaskSplit(task=task_table.get(name), name=split), [path])
    return [tuple(example[:3]) for example in examples], num_skipped


def test_there_is_a_row_for_every_task():
    assert {case[0] for case in CASES} == glue.LAYOUTS.keys()


@pytest.mark.parametrize(("name", "split", "header", "row", "texts", "label"), CASES)
def test_columns(tmp_path, name, split, header, row, texts, label):
    blank = ("\r\n", " \n\n", "\t\t\n")  # none of these is an example
    write(tmp_path, name, split, header, row, *blank)
    id_ = "5" if split.startswith("test") else "0"
    assert read(tmp_path, name, split) == ([(id_, tuple(texts.split("|")), label)], 0)


def test_the_official_file_is_found_in_either_folder(tmp_path):
    root = write(tmp_path, "mrpc", "train", "x")
    (root / "MRPC" / "train.completed-3668.tsv").touch()
    expected = str(root / "MRPC" / "train.tsv")
    assert find_file(root, "mrpc", "train") == find_file(root / "MRPC", "mrpc", "train") == expected


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_quotes_marks_and_separators_are_text(tmp_path, end):
    rows = ['"Bright," he said\t1', 'a "dull lamp\t0', "two\u2028lines\x0b\x85\t1", "' \t0"]
    write(tmp_path, "sst-2", "train", "\ufeffsentence\tlabel", *rows, end=end)
    examples, _ = read(tmp_path, "sst-2", "train")
    assert [f"{text}\t{label}" for _, (text,), label in examples] == rows


def test_rows_short_of_fields_are_skipped_and_counted_but_of_a_test_file(tmp_path):
    short = ["1|2|3|Why is", "it?|Why?|0"]  # a row that a line feed cut in two
    write(tmp_path, "qqp", "train", *QQP, *short, QQP[1])
    examples, num_skipped = read(tmp_path, "qqp", "train")
    assert ([id_ for id_, *_ in examples], num_skipped) == (["0", "3"], 2)
    write(tmp_path, "qqp", "test", "id|question1|question2", "5|Who?|When?", "6|Who?")
    examples, num_skipped = read(tmp_path, "qqp", "test")
    assert [texts for _, texts, _ in examples] == [("Who?", "When?"), ("Who?", "")]
    assert num_skipped == 0


def test_quotes_around_every_field_are_warned_of(tmp_path, capsys):
    header, rows = "sentence\tlabel", ['"Bright," he said "so"\t1', '"dull"\t0']
    write(tmp_path, "sst-2", "dev", header, *rows)
    examples, _ = read(tmp_path, "sst-2", "dev")
    assert examples[1] == ("1", ('"dull"',), "0")
    assert "dev.tsv: every field of column 1 is in quotation marks" in capsys.readouterr().err
    write(tmp_path, "sst-2", "dev", header, *rows, "dull\t0")
    read(tmp_path, "sst-2", "dev")
    assert capsys.readouterr().err == ""


RTE = RTE_HEADER, f"0|{SAIL}|not_entailment"


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        ("cola", ("text,verdict", "It went.,1"), "all 2 rows have fewer than 4 fields, with ta"),
        ("sst-2", ("sentence|label|label", "x|1|0"), "2 columns are named 'label'"),
        ("sst-2", ("sentence|label", "x|1", "caf\udce9|1"), "line 3: this is not UTF-8"),
        ("rte", (*RTE, "1|a|b|perhaps"), "line 3: 'perhaps'.*entailment, not_entailment"),
        ("rte", ("index|premise|label", "0|a|x"), "no column 'sentence1'. It has index, pr"),
        ("sts-b", (SCORED, "0|a|b|1|1|n|n|He.|She.|high"), "line 2: the label 'high' is not a nu"),
    ],
)
def test_mistakes_in_a_file_are_named_with_their_place(tmp_path, name, lines, message):
    write(tmp_path, name, "dev", *lines)
    with one_line(rf"dev\.tsv.*{message}"):
        read(tmp_path, name, "dev")


def test_an_unknown_split_or_missing_file_is_named(tmp_path):
    with one_line("rte has no split 'dev_mismatched'. It has train, dev, test"):
        find_file(tmp_path, "rte", "dev_mismatched")
    with one_line(r"holds no MNLI/dev_matched.tsv"):
        find_file(tmp_path, "mnli", "dev")
