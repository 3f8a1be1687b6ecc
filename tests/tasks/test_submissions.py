"""The leaderboards' files, and bin/score submission."""

import json
import os
import zipfile

import pytest
from refusals import one_line
from repository import ROOT
from tiny_tasks import OWN, OWN_PREDICTIONS, answer, choice, content, write_predictions

from albert_tf.kinds import task_table
from albert_tf.tasks import submissions

PROGRAM = ROOT / "bin/score submission"
RTE, STS_B, WNLI, RACE = (task_table.get(name) for name in ("rte", "sts-b", "wnli", "race"))
SQUAD1, SQUAD2 = task_table.get("squad1"), task_table.get("squad2")
# The rows of the test files of the leaderboard.
NUM_ROWS = {
    "AX.tsv": 1104,
    "CoLA.tsv": 1063,
    "MNLI-m.tsv": 9796,
    "MNLI-mm.tsv": 9847,
    "MRPC.tsv": 1725,
    "QNLI.tsv": 5463,
    "QQP.tsv": 390965,
    "RTE.tsv": 3000,
    "SST-2.tsv": 1821,
    "STS-B.tsv": 1379,
    "WNLI.tsv": 146,
}


@pytest.fixture
def small(monkeypatch):
    """Test sets of three rows."""
    assert {x: file.num_rows for x, file in submissions.GLUE_FILES.items()} == NUM_ROWS
    files = {name: file._replace(num_rows=3) for name, file in submissions.GLUE_FILES.items()}
    monkeypatch.setattr(submissions, "GLUE_FILES", files)


def wnli(number=3):
    return {str(i): choice(str(i % 2), [0.5, 0.5]) for i in reversed(range(number))}


def read_tables(folder):
    """The predictions of every file of the archive."""
    with zipfile.ZipFile(folder / "glue.zip") as archive:
        assert archive.testzip() is None
        assert {entry.external_attr >> 16 for entry in archive.infolist()} == {0o644}
        tables = {x: archive.read(x).decode().split("\n")[:-1] for x in archive.namelist()}
    for header, *rows in tables.values():
        assert header == "index\tprediction"
        assert [row.split("\t")[0] for row in rows] == ["0", "1", "2"]
    return {name: [row.split("\t")[1] for row in rows] for name, (_, *rows) in tables.items()}


@pytest.mark.usefixtures("small")
def test_glue_has_every_file_in_the_order_of_its_rows(tmp_path):
    numbers = {str(i): {"prediction": value} for i, value in enumerate((-0.5, 1.505, 6.39))}
    contents = {
        "w.json": content(WNLI, wnli(), split="test", checkpoint="w/ckpt-1"),
        "s.json": content(STS_B, numbers, split="test", checkpoint=["s/ckpt-1", "s/ckpt-2"]),
    }
    lines = submissions.write(contents, str(tmp_path / "made/here"))
    tables = read_tables(tmp_path / "made/here")
    assert list(tables) == list(NUM_ROWS)
    assert tables["WNLI.tsv"] == ["0", "1", "0"]
    assert tables["STS-B.tsv"] == ["0.000", "1.505", "5.000"]  # from 0 to 5
    assert (tables["QQP.tsv"], tables["MNLI-mm.tsv"]) == (["0"] * 3, ["contradiction"] * 3)
    by_name = dict(line.split(": ", 1) for line in lines)
    assert by_name["WNLI.tsv"] == "w.json, split test, checkpoint w/ckpt-1"
    assert by_name["STS-B.tsv"] == "s.json, split test, checkpoint s/ckpt-1 + s/ckpt-2"
    assert by_name["MNLI-mm.tsv"] == (
        "FILLER, 3 times contradiction (no predictions of task mnli, split test_mismatched)"
    )
    assert sum("FILLER" in line for line in lines) == 9
    assert (tmp_path / "made/here/sources.txt").read_text().splitlines() == lines
    archive = (tmp_path / "made/here/glue.zip").read_bytes()
    submissions.write(contents, str(tmp_path))  # the same predictions give the same archive
    assert (tmp_path / "glue.zip").read_bytes() == archive


def test_squad_1_1_in_the_official_shapes(tmp_path):
    predictions = {"q1": answer(("Zürich", 0.75), ("a", 0.25)), "q2": answer()}
    lines = submissions.write({"s.json": content(SQUAD1, predictions)}, str(tmp_path))
    assert json.loads((tmp_path / "predictions.json").read_text()) == {"q1": "Zürich", "q2": ""}
    nbest = json.loads((tmp_path / "nbest_predictions.json").read_text())
    assert [(a["text"], a["probability"]) for a in nbest["q1"]] == [("Zürich", 0.75), ("a", 0.25)]
    assert nbest["q2"] == []
    names = ["nbest_predictions.json", "predictions.json", "sources.txt"]
    assert sorted(os.listdir(tmp_path)) == names
    assert lines[0] == "predictions.json: s.json, split dev, checkpoint run/best/ckpt-7"


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [(0.0, {"q1": "a", "q2": "", "q3": "c"}), (-1.5, {"q1": "", "q2": "", "q3": "c"})],
)
def test_squad_2_0_answers_nothing_above_the_threshold(threshold, expected, tmp_path):
    odds = {"q1": -1.0, "q2": 2.5, "q3": -1.5}
    rows = zip(odds.items(), "abc", strict=True)
    predictions = {id_: answer((text, 1.0), null_odds=value) for (id_, value), text in rows}
    contents = {"s.json": content(SQUAD2, predictions)}
    lines = submissions.write(contents, str(tmp_path), null_threshold=threshold)
    assert json.loads((tmp_path / "predictions.json").read_text()) == expected
    assert json.loads((tmp_path / "null_odds.json").read_text()) == odds
    assert lines[0].endswith(f"no answer where the null odds are above {threshold:g}")


def test_race_answers_are_by_passage_in_the_order_of_the_questions(tmp_path, run_program, capsys):
    letters = {"high12.txt-1": "B", "middle-3.txt-0": "D", "high12.txt-0": "C"}
    letters |= {f"high2.txt-{i}": "ABCD"[i % 4] for i in range(11)}
    predicted = {id_: choice(letter, [0.25] * 4) for id_, letter in letters.items()}
    path = write_predictions(tmp_path / "race.json", RACE, predicted, split="test")
    made = tmp_path / "made"
    assert not run_program(PROGRAM, f"--predictions={path}", f"--output_dir={made}")
    assert capsys.readouterr().out.splitlines() == [
        f"answers.json: {path}, split test, checkpoint run/best/ckpt-7",
        f"written to {made}",
    ]
    assert json.loads((made / "answers.json").read_text()) == {
        "high12.txt": ["C", "B"],
        "middle-3.txt": ["D"],
        "high2.txt": list("ABCDABCDABC"),
    }


def race(*ids):
    return content(RACE, {id_: choice("A", [0.25] * 4) for id_ in ids})


def of_test(predicted):
    return content(WNLI, predicted, split="test")


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ([content(OWN, OWN_PREDICTIONS)], "a.json: no leaderboard accepts 'own'"),
        ([of_test(wnli(2))], "a.json has 2 predictions, not one for each of the 3 rows of the tes"),
        ([of_test({f"0{i}": p for i, p in wnli().items()})], "a.json has 3 predictions, not one f"),
        ([content(WNLI, wnli())], "a.json: the leaderboard rejects split 'dev' of wnli"),
        ([of_test(wnli())] * 2, "a.json and b.json are both for wnli, split test: use one, or ave"),
        ([of_test(wnli()), race("high1.txt-0")], "a.json and b.json are not one submission. Pass"),
        ([race("high1.txt-0")] * 2, "a.json and b.json are not one submission"),
        ([race("0")], "predictions for '' are missing. Predict whole files of RACE"),
        ([race("high1.txt-0", "high1.txt-2")], "a.json: predictions for 'high1.txt' are missing"),
    ],
)
def test_what_does_not_fit_is_told_and_nothing_is_written(contents, message, tmp_path):
    named = dict(zip(("a.json", "b.json"), contents, strict=False))
    with one_line(message):
        submissions.write(named, str(tmp_path / "made"))
    assert os.listdir(tmp_path) == []
