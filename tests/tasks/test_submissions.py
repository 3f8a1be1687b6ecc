import io
import json
import os
import zipfile
from pathlib import Path

import pytest
from tiny_tasks import OWN, OWN_PREDICTIONS, answer, choice, content, write_predictions

from albert_tf.errors import UserError
from albert_tf.kinds import task_table
from albert_tf.tasks import submissions

PROGRAM = Path(__file__).parents[2] / "bin" / "score submission"
RTE, STS_B, WNLI, RACE = (task_table.get(name) for name in ("rte", "sts-b", "wnli", "race"))


def wnli(number=146):
    return {str(i): choice(str(i % 2), [0.5, 0.5]) for i in reversed(range(number))}


def sts_b():
    return {str(i): {"prediction": i / 200 - 0.5} for i in range(1379)}


def rte():
    return {str(i): choice(RTE.labels[i % 3 == 0], [0.5, 0.5]) for i in range(3000)}


def tables(folder):
    """The rows of every file of the archive, with the header."""
    with zipfile.ZipFile(folder / "glue.zip") as archive:
        assert archive.testzip() is None
        assert {entry.external_attr >> 16 for entry in archive.infolist()} == {0o644}
        return {
            name: [line.split("\t") for line in archive.read(name).decode().split("\n")[:-1]]
            for name in archive.namelist()
        }


@pytest.fixture(scope="module")
def glue(tmp_path_factory):
    """A submission of three tasks: its folder, its tables and the lines about it."""
    folder = tmp_path_factory.mktemp("glue") / "made" / "here"
    contents = {
        "w.json": content(WNLI, wnli(), split="test", checkpoint="w/ckpt-1"),
        "s.json": content(STS_B, sts_b(), split="test", checkpoint=["s/ckpt-1", "s/ckpt-2"]),
        "r.json": content(RTE, rte(), split="test"),
    }
    lines = submissions.write(contents, str(folder))
    return folder, tables(folder), lines


def test_glue_has_every_file_with_every_row(glue):
    _, predictions, _ = glue
    assert {name: len(rows) - 1 for name, rows in predictions.items()} == {
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
    for rows in predictions.values():
        assert rows[0] == ["index", "prediction"]
        assert [index for index, _ in rows[1:]] == [str(i) for i in range(len(rows) - 1)]


def test_glue_predictions_are_in_the_order_of_the_rows(glue):
    _, predictions, _ = glue
    assert [label for _, label in predictions["WNLI.tsv"][1:]] == ["0", "1"] * 73
    assert [label for _, label in predictions["RTE.tsv"][1:5]] == [
        "not_entailment",
        "entailment",
        "entailment",
        "not_entailment",
    ]


def test_glue_scores_are_from_0_to_5(glue):
    values = [value for _, value in glue[1]["STS-B.tsv"][1:]]
    assert values[:2] == ["0.000", "0.000"]  # -0.5, -0.495
    assert values[401] == "1.505"
    assert values[1378] == "5.000"  # 6.39


def test_glue_filler_is_a_label_and_is_said(glue):
    folder, predictions, lines = glue
    labels = {name: {label for _, label in rows[1:]} for name, rows in predictions.items()}
    assert labels["QQP.tsv"] == {"0"}
    assert labels["MNLI-mm.tsv"] == {"contradiction"}
    assert labels["QNLI.tsv"] == {"entailment"}
    by_name = dict(line.split(": ", 1) for line in lines)
    assert list(by_name) == list(predictions)
    assert by_name["WNLI.tsv"] == "w.json, split test, checkpoint w/ckpt-1"
    assert by_name["STS-B.tsv"] == "s.json, split test, checkpoint s/ckpt-1 + s/ckpt-2"
    assert by_name["MNLI-mm.tsv"] == (
        "FILLER, 9,847 times contradiction (no predictions of task mnli, split test_mismatched)"
    )
    assert sum("FILLER" in line for line in lines) == 8
    assert (folder / "sources.txt").read_text().splitlines() == lines
    assert sorted(os.listdir(folder)) == ["glue.zip", "sources.txt"]


def test_the_same_predictions_give_the_same_archive(monkeypatch, tmp_path):
    monkeypatch.setattr(submissions, "GLUE_FILES", {"WNLI.tsv": submissions.GLUE_FILES["WNLI.tsv"]})
    for name in ("a", "b"):
        contents = {"w.json": content(WNLI, wnli(), split="test")}
        submissions.write(contents, str(tmp_path / name))
    first, second = ((tmp_path / name / "glue.zip").read_bytes() for name in ("a", "b"))
    assert first == second
    assert zipfile.ZipFile(io.BytesIO(first)).namelist() == ["WNLI.tsv"]


def test_squad_1_1_in_the_official_shapes(tmp_path):
    predictions = {"q1": answer(("Zürich", 0.75), ("a", 0.25)), "q2": answer()}
    lines = submissions.write(
        {"s.json": content(task_table.get("squad1"), predictions)}, str(tmp_path)
    )
    assert json.loads((tmp_path / "predictions.json").read_text()) == {"q1": "Zürich", "q2": ""}
    nbest = json.loads((tmp_path / "nbest_predictions.json").read_text())
    assert [(a["text"], a["probability"]) for a in nbest["q1"]] == [("Zürich", 0.75), ("a", 0.25)]
    assert nbest["q2"] == []
    assert sorted(os.listdir(tmp_path)) == [
        "nbest_predictions.json",
        "predictions.json",
        "sources.txt",
    ]
    assert lines[0] == "predictions.json: s.json, split dev, checkpoint run/best/ckpt-7"


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [(0.0, {"q1": "a", "q2": "", "q3": "c"}), (-1.5, {"q1": "", "q2": "", "q3": "c"})],
)
def test_squad_2_0_answers_nothing_above_the_threshold(threshold, expected, tmp_path):
    odds = {"q1": -1.0, "q2": 2.5, "q3": -1.5}
    predictions = {
        id_: answer((text, 1.0), null_odds=odds[id_]) for id_, text in zip(odds, "abc", strict=True)
    }
    contents = {"s.json": content(task_table.get("squad2"), predictions)}
    lines = submissions.write(contents, str(tmp_path), null_threshold=threshold)
    assert json.loads((tmp_path / "predictions.json").read_text()) == expected
    assert json.loads((tmp_path / "null_odds.json").read_text()) == odds
    assert json.loads((tmp_path / "nbest_predictions.json").read_text())["q2"][0]["text"] == "b"
    assert lines[0].endswith(f"no answer where the null odds are above {threshold:g}")


def test_race_answers_are_by_passage_in_the_order_of_the_questions(tmp_path):
    letters = {"high12.txt-1": "B", "middle-3.txt-0": "D", "high12.txt-0": "C"}
    letters |= {f"high2.txt-{i}": "ABCD"[i % 4] for i in range(11)}
    predictions = {id_: choice(letter, [0.25] * 4) for id_, letter in letters.items()}
    submissions.write({"r.json": content(RACE, predictions, split="test")}, str(tmp_path))
    assert json.loads((tmp_path / "answers.json").read_text()) == {
        "high12.txt": ["C", "B"],
        "middle-3.txt": ["D"],
        "high2.txt": list("ABCDABCDABC"),
    }


def test_two_submissions_are_not_mixed_in_one_folder(tmp_path):
    odds = {"s.json": content(task_table.get("squad2"), {"q": answer(("a", 1.0), null_odds=0.5)})}
    plain = {"s.json": content(task_table.get("squad1"), {"q": answer(("b", 1.0))})}
    for _ in range(2):  # the same again replaces it
        submissions.write(odds, str(tmp_path))
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}
    with pytest.raises(UserError, match=r"null_odds.json is of another submission: remove it, or"):
        submissions.write(plain, str(tmp_path))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before


def race(*ids):
    return content(RACE, {id_: choice("A", [0.25] * 4) for id_ in ids})


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ({"a.json": content(OWN, OWN_PREDICTIONS)}, "a.json: no leaderboard takes 'own'"),
        (
            {"a.json": content(WNLI, wnli(145), split="test")},
            "a.json has 145 predictions, not one for each of the 146 rows of the test file of wnli",
        ),
        (
            {"a.json": content(WNLI, {f"0{i}": p for i, p in wnli().items()}, split="test")},
            "a.json has 146 predictions, not one for each of the 146 rows",
        ),
        (
            {"a.json": content(WNLI, wnli(), split="dev")},
            "a.json: the leaderboard takes no split 'dev' of wnli",
        ),
        (
            {path: content(WNLI, wnli(), split="test") for path in ("a.json", "b.json")},
            "a.json and b.json are both of wnli, split test: take one, or average them",
        ),
        (
            {"a.json": content(WNLI, wnli(), split="test"), "b.json": race("high1.txt-0")},
            "a.json and b.json go to different leaderboards",
        ),
        (
            {path: race("high1.txt-0") for path in ("a.json", "b.json")},
            "a.json and b.json are of one task: take one, or average them",
        ),
        ({"a.json": race("0")}, "a.json: '0' is no question of RACE"),
        (
            {"a.json": race("high1.txt-0", "high1.txt-2")},
            "a.json: predictions of questions of high1.txt are missing",
        ),
    ],
)
def test_what_does_not_fit_is_told_and_nothing_is_written(contents, message, tmp_path):
    with pytest.raises(UserError, match=message) as error:
        submissions.write(contents, str(tmp_path / "made"))
    assert "\n" not in str(error.value)
    assert os.listdir(tmp_path) == []


def test_the_program(tmp_path, run_program, capsys):
    predictions = {"high1.txt-0": choice("B", [0.1, 0.7, 0.1, 0.1])}
    path = write_predictions(tmp_path / "race.json", RACE, predictions, split="test")
    made = tmp_path / "made"
    assert not run_program(PROGRAM, f"--predictions={path}", f"--output_dir={made}")
    assert capsys.readouterr().out.splitlines() == [
        f"answers.json: {path}, split test, checkpoint run/best/ckpt-7",
        f"written to {made}",
    ]
    assert json.loads((made / "answers.json").read_text()) == {"high1.txt": ["B"]}
