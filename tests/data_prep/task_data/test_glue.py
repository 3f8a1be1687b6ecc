"""Tests the reader of GLUE: the columns of every task and the quirks of the official files."""

import pytest

from albert_tf.data_prep.task_data import glue
from albert_tf.errors import UserError
from albert_tf.kinds import task_table
from albert_tf.kinds.base import TaskSplit

PARSES = "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence1_parse"
# Task -> split -> (the first row, or none; a row; its texts; its label).
ROWS = {
    "cola": {
        "train": (
            "",
            "gj04\t0\t*\tThe keeper slept the lamp.",
            ["The keeper slept the lamp."],
            "0",
        ),
        "dev": ("", "gj04\t1\t\tThe keeper slept.", ["The keeper slept."], "1"),
        "test": ("index\tsentence", "5\tThe lamp went out.", ["The lamp went out."], None),
    },
    "sst-2": {
        "train": ("sentence\tlabel", "a bright lamp \t1", ["a bright lamp "], "1"),
        "test": ("index\tsentence", "5\ta dull lamp .", ["a dull lamp ."], None),
    },
    "mrpc": {
        "dev": (
            "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
            "1\t70\t71\tHe climbed .\tHe went up .",
            ["He climbed .", "He went up ."],
            "1",
        ),
        "test": (
            "index\t#1 ID\t#2 ID\t#1 String\t#2 String",
            "5\t70\t71\tHe climbed .\tHe slept .",
            ["He climbed .", "He slept ."],
            None,
        ),
    },
    "sts-b": {
        "train": (
            "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
            "0\tcaptions\tM\t2012\t1\tnone\tnone\tA man sails.\tA man rows.\t3.800",
            ["A man sails.", "A man rows."],
            3.8,
        ),
    },
    "qqp": {
        "train": (
            "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
            "9\t1\t2\tWho sails?\tWho rows?\t0",
            ["Who sails?", "Who rows?"],
            "0",
        ),
        "test": ("id\tquestion1\tquestion2", "5\tWho?\tWhen?", ["Who?", "When?"], None),
    },
    "mnli": {
        "train": (
            f"{PARSES}\tsentence1\tsentence2\tlabel1\tgold_label",
            "0\t1\t1n\tfiction\t( a )\t(R a)\tIt rained.\tIt was wet.\tneutral\tentailment",
            ["It rained.", "It was wet."],
            "entailment",
        ),
        "dev_mismatched": (
            f"{PARSES}\tsentence1\tsentence2\tlabel1\tlabel2\tlabel3\tgold_label",
            "0\t1\t1n\tletters\t( a )\t(R a)\tIt rained.\tIt was dry.\tx\ty\tz\tcontradiction",
            ["It rained.", "It was dry."],
            "contradiction",
        ),
        "test_mismatched": (
            f"{PARSES}\tsentence1\tsentence2",
            "5\t1\t1n\tletters\t( a )\t(R a)\tIt rained.\tIt was dark.",
            ["It rained.", "It was dark."],
            None,
        ),
    },
    "qnli": {
        "dev": (
            "index\tquestion\tsentence\tlabel",
            "0\tWho sails?\tA man sails.\tentailment",
            ["Who sails?", "A man sails."],
            "entailment",
        ),
    },
    "rte": {
        "dev": (
            "index\tsentence1\tsentence2\tlabel",
            "0\tHe sails.\tHe rows.\tnot_entailment",
            ["He sails.", "He rows."],
            "not_entailment",
        ),
    },
    "wnli": {
        "dev": (
            "index\tsentence1\tsentence2\tlabel",
            "0\tIt was wet.\tThe lamp was wet.\t0",
            ["It was wet.", "The lamp was wet."],
            "0",
        ),
    },
    "ax": {
        "test": (
            "index\tsentence1\tsentence2",
            "5\tIt is on.\tIt is not on.",
            ["It is on.", "It is not on."],
            None,
        ),
    },
}
CASES = [(name, split, *row) for name, splits in ROWS.items() for split, row in splits.items()]


def write(tmp_path, name, split, *lines, end="\n"):
    """Writes a file of a task where GLUE has it; returns the folder of all tasks."""
    layout = glue.LAYOUTS[name]
    folder = tmp_path / layout.folder
    folder.mkdir(exist_ok=True)
    content = end.join(line for line in lines if line) + end
    (folder / layout.files[split]).write_bytes(content.encode(errors="surrogateescape"))
    return tmp_path


def find_file(folder, name, split):
    return glue.find_files(TaskSplit(task=task_table.get(name), name=split), str(folder))[0]


def read(tmp_path, name, split):
    path = find_file(tmp_path, name, split)
    return glue.read(TaskSplit(task=task_table.get(name), name=split), [path])


def test_there_is_a_row_for_every_task():
    assert ROWS.keys() == glue.LAYOUTS.keys()


@pytest.mark.parametrize(("name", "split", "header", "row", "texts", "label"), CASES)
def test_columns(tmp_path, name, split, header, row, texts, label):
    write(tmp_path, name, split, header, row)
    [example], _ = read(tmp_path, name, split)
    assert example.texts == tuple(texts)
    assert example.label == label
    assert example.id == ("5" if split.startswith("test") else "0")


def test_the_folder_of_the_task_may_be_named_itself(tmp_path):
    root = write(tmp_path, "sst-2", "dev", "sentence\tlabel", "bright\t1")
    path = find_file(root / "SST-2", "sst-2", "dev")
    assert path == find_file(root, "sst-2", "dev")


def test_the_official_file_is_taken_whatever_lies_beside_it(tmp_path):
    root = write(tmp_path, "mrpc", "train", "x")
    (root / "MRPC" / "train.completed-3668.tsv").touch()
    assert find_file(root, "mrpc", "train") == str(root / "MRPC" / "train.tsv")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_quotes_marks_and_separators_are_text(tmp_path, end):
    rows = ['"Bright," he said\t1', 'a "dull lamp\t0', "two\u2028lines\x0b\x85\t1", "' \t0"]
    write(tmp_path, "sst-2", "train", "\ufeffsentence\tlabel", *rows, end=end)
    examples, _ = read(tmp_path, "sst-2", "train")
    assert [(*example.texts, example.label) for example in examples] == [
        ('"Bright," he said', "1"),
        ('a "dull lamp', "0"),
        ("two\u2028lines\x0b\x85", "1"),
        ("' ", "0"),
    ]


def test_rows_short_of_fields_are_skipped_and_counted(tmp_path):
    header, row = ROWS["qqp"]["train"][:2]
    short = ["1\t2\t3\tWhy is", "it?\tWhy?\t0"]  # a row that a line feed cut in two
    write(tmp_path, "qqp", "train", header, row, *short, row)
    examples, num_skipped = read(tmp_path, "qqp", "train")
    assert num_skipped == 2
    assert [example.id for example in examples] == ["0", "3"]


def test_no_row_of_a_test_file_is_skipped(tmp_path):
    header, row = ROWS["qqp"]["test"][:2]
    write(tmp_path, "qqp", "test", header, row, "6\tWho?")
    examples, num_skipped = read(tmp_path, "qqp", "test")
    assert num_skipped == 0
    assert [(example.id, example.texts) for example in examples] == [
        ("5", ("Who?", "When?")),
        ("6", ("Who?", "")),
    ]


@pytest.mark.parametrize(("name", "split", "header", "row", "texts", "label"), CASES[::5])
@pytest.mark.parametrize("blank", ["\n", "\r\n", " \n\n", "\t\t\n"])
def test_a_blank_line_is_no_example(tmp_path, name, split, header, row, texts, label, blank):
    write(tmp_path, name, split, header, row, blank, end="\n")
    examples, num_skipped = read(tmp_path, name, split)
    assert [example.texts for example in examples] == [tuple(texts)]
    assert num_skipped == 0


@pytest.mark.parametrize("split", ["train", "dev"])
@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("sentence\tlabel", "It went.\t1"),
        ("source\tlabel\tnotes\tsentence", "gj04\t1\t\tIt went."),
    ],
)
def test_cola_with_a_header(tmp_path, split, header, row):
    write(tmp_path, "cola", split, header, row)
    examples, num_skipped = read(tmp_path, "cola", split)
    assert [tuple(example) for example in examples] == [("0", ("It went.",), "1")]
    assert num_skipped == 0


def test_quotes_around_every_field_are_warned_of(tmp_path, capsys):
    header, rows = "sentence\tlabel", ['"Bright," he said "so"\t1', '"dull"\t0']
    write(tmp_path, "sst-2", "dev", header, *rows)
    examples, _ = read(tmp_path, "sst-2", "dev")
    assert examples[1].texts == ('"dull"',)
    assert "dev.tsv: every field of column 1 is in quotation marks" in capsys.readouterr().err
    write(tmp_path, "sst-2", "dev", header, *rows, "dull\t0")
    read(tmp_path, "sst-2", "dev")
    assert capsys.readouterr().err == ""


RTE = ROWS["rte"]["dev"][:2]
SCORED = (ROWS["sts-b"]["train"][0], "0\ta\tb\t1\t1\tn\tn\tHe.\tShe.\t")


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        ("cola", ("text,verdict", "It went.,1"), "all 2 rows have fewer than 4 fields, with ta"),
        ("sst-2", ("sentence\tlabel\tlabel", "x\t1\t0"), "2 columns are called 'label'"),
        ("sst-2", ("sentence\tlabel", "x\t1", "caf\udce9\t1"), "line 3: this is not UTF-8"),
        ("rte", (*RTE, "1\ta\tb\tperhaps"), "line 3: 'perhaps'.*entailment, not_entailment"),
        ("rte", ("index\tpremise\tlabel", "0\ta\tx"), "no column 'sentence1'. It has index, pr"),
        ("rte", (), "is empty"),
        *(
            ("sts-b", (SCORED[0], SCORED[1] + x), f"line 2: the label '{x}' is not a number")
            for x in ("", "high", "nan", "inf")
        ),
    ],
)
def test_mistakes_in_a_file_are_named_with_their_place(tmp_path, name, lines, message):
    write(tmp_path, name, "dev", *lines)
    with pytest.raises(UserError, match=rf"dev\.tsv.*{message}"):
        read(tmp_path, name, "dev")


def test_an_unknown_split_or_missing_file_is_named(tmp_path):
    with pytest.raises(
        UserError, match=r"rte has no split 'dev_mismatched'. It has train, dev, test"
    ):
        find_file(tmp_path, "rte", "dev_mismatched")
    with pytest.raises(UserError, match=r"holds no MNLI/dev_matched.tsv"):
        find_file(tmp_path, "mnli", "dev")
