"""Columns of texts and labels are taken where there is no doubt which they are."""

import csv

import pytest
from refusals import one_line

from albert_tf.data_prep.task_data import task_cache
from albert_tf.data_prep.task_data.task_source import DataArguments
from albert_tf.kinds.tables import column_guess, task_rows
from albert_tf.kinds.tables.task_rows import Columns, DataSource

TEXTS = [f"the soup number {k} was cold" for k in range(6)]
LABELS = ["bad", "good"] * 3
NUMBERS = ["0.5", "2", "3", "2", "1.5", "0"]
IDS = [str(k) for k in range(6)]


@pytest.fixture
def write(tmp_path):
    def write(**columns):
        with open(tmp_path / "a.csv", "w", newline="") as file:
            csv.writer(file).writerows([columns, *zip(*columns.values(), strict=True)])
        return str(tmp_path / "a.csv")

    return write


@pytest.mark.parametrize(
    ("columns", "has_numbers", "found"),
    [
        ({"id": IDS, "review": TEXTS, "mood": LABELS}, False, ("review", "mood")),
        ({"mood": LABELS, "wort": ["gut", "so", "na ja", "nie", "nein", "oh"]}, False, None),
        ({"stars": LABELS, "评论": ["今天的汤很好喝"] * 6}, False, ("评论", "stars")),
        ({"id": IDS, "review": TEXTS, "score": NUMBERS}, True, ("review", "score")),
        ({"text": TEXTS, "title": TEXTS, "mood": LABELS}, False, ("text", "mood")),
        ({"label": LABELS, "review": TEXTS, "mood": LABELS}, False, ("review", "label")),
    ],
)
def test_what_is_taken(write, columns, has_numbers, found, capsys):
    chosen = column_guess.complete(Columns(), write(**columns), has_numbers=has_numbers)
    assert (chosen.text, chosen.label) == (found or ("wort", "mood"))
    flags = [f"--{name}_column=" for name in ("text", "label") if getattr(chosen, name) != name]
    said = capsys.readouterr().err
    assert all(flag in said for flag in flags)
    assert bool(said) == bool(flags)


def test_a_column_that_is_named_is_taken_though_it_has_the_default_name(write):
    path = write(review=TEXTS, label=LABELS, mood=LABELS)
    chosen = column_guess.complete(Columns(text="text"), path, has_numbers=False)
    assert chosen.text == "text"  # which is not there: refused where the table is read
    for named, label in ((Columns(), "mood"), (Columns(label="label"), "label")):
        arguments = DataArguments(task="own", source=DataSource(columns=named))
        known = {"columns": {"text": "review", "label": "mood"}}
        found = task_cache.complete(arguments, None, known).source.columns
        assert (found.text, found.label) == ("review", label)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"title": TEXTS, "body": TEXTS, "mood": LABELS}, "the text? It has title, body, mood."),
        ({"body": TEXTS, "mood": LABELS, "sex": LABELS}, "the label? .* with --label_column."),
        ({"id": IDS, "name": IDS}, "which column is the text?"),
        ({"review;mood": TEXTS}, "'text'. It has review;mood. The fields .* separated by ';'. Sav"),
        (
            {"It was a good day": TEXTS, LABELS[1]: LABELS},
            "no header: its first line is an example",
        ),
        ({"It was a good day": TEXTS, "3.5": LABELS}, "no header: its first line is an example"),
        ({"id": [], "review": []}, "a.csv has a header but no rows."),
    ],
)
def test_doubt_is_one_line_that_lists_the_columns(write, columns, message):
    with one_line(message.replace("?", r"\?")):
        column_guess.complete(Columns(), write(**columns), has_numbers=False)


def test_numbers_are_classes_if_whole_and_few():
    for values in (["1.0", "0.0", "-1"] * 3, ["1.5", "x"] * 3):
        assert task_rows.are_quantities(values) is False
    for values in (["1.5", "0.0"] * 3, ["1", "2", "30", "2"]):
        assert task_rows.are_quantities(values) is True
