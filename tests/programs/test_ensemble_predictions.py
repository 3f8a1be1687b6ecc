"""The program: from files to scores and a file."""

import os
from pathlib import Path

import pytest
from tiny_tasks import (
    OWN,
    OWN_GOLD,
    OWN_PREDICTIONS,
    answer,
    choice,
    write_dataset,
    write_predictions,
)

from albert_tf.kinds import task_table
from albert_tf.tasks import predictions

PROGRAM = Path(__file__).parents[2] / "bin" / "score ensemble"
# All three right.
BETTER = {
    "0": choice("good", [0.25, 0.75]),
    "größe/2": choice("bad", [0.7, 0.3]),
    "x": choice("bad", [0.95, 0.05]),
}


@pytest.fixture
def runs(tmp_path):
    write_predictions(tmp_path / "run-1.json", OWN, OWN_PREDICTIONS, checkpoint="run-1/best")
    write_predictions(tmp_path / "run-2.json", OWN, BETTER, checkpoint="run-2/best")
    write_dataset(tmp_path / "own-dev-0", OWN, OWN_GOLD)
    return tmp_path


def test_scores_each_file_and_the_ensemble(runs, run_program, capsys):
    output = runs / "ensemble.json"
    assert not run_program(
        PROGRAM,
        f"--predictions={runs}/run-*.json",
        f"--examples={runs}/own-dev-0",
        f"--output={output}",
    )
    assert capsys.readouterr().out.splitlines() == [
        f"{runs}/run-1.json: accuracy 0.3333",
        f"{runs}/run-2.json: accuracy 1",
        "ensemble of 2: accuracy 1",
        f"written to {output}",
    ]
    content = predictions.read(str(output))
    assert content["checkpoint"] == ["run-1/best", "run-2/best"]
    assert content["predictions"]["x"] == choice("bad", pytest.approx([0.525, 0.475]))


def test_confidence_and_a_list_of_files(runs, run_program, capsys):
    assert not run_program(
        PROGRAM,
        f"--predictions={runs}/run-2.json,{runs}/run-1.json,{runs}/run-2.json",
        f"--examples={runs}/own-dev-0",
        f"--output={runs}/ensemble.json",
        "--confidence",
    )
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4  # a file that is named twice counts once
    assert lines[2] == "ensemble of 2: accuracy 1, accuracy_from 0.4385, accuracy_to 1"


def test_questions_are_scored_at_the_threshold_that_is_named(tmp_path, run_program, capsys):
    squad2 = task_table.get("squad2")
    gold = [{"id": "q", "answers": ["lamp"], "is_impossible": False, "labelled": True}]
    folder = write_dataset(tmp_path / "squad2-dev-0", squad2, gold)
    path = write_predictions(
        tmp_path / "a.json", squad2, {"q": answer(("lamp", 1.0), null_odds=2.5)}
    )
    common = (f"--predictions={path}", f"--examples={folder}", f"--output={tmp_path}/b.json")
    for flags, exact in (((), 0), (("--null_threshold=2.5",), 100)):
        assert not run_program(PROGRAM, *common, *flags)
        alone, ensemble, _ = capsys.readouterr().out.splitlines()
        assert alone.startswith(f"{path}: exact {exact}, f1 {exact}, ")
        assert ensemble.startswith(f"ensemble of 1: exact {exact}, f1 {exact}, ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--predictions={}/run-7.json"], "--predictions: no file matches"),
        (["--predictions={}/own-dev-0/manifest.json"], "is not a predictions file"),
        (
            ["--predictions={}/run-1.json", "--examples={}/other"],
            "the examples in {}/other have split='test', the predictions 'dev'",
        ),
    ],
)
def test_mistakes_are_one_line_and_nothing_is_written(arguments, message, runs, run_program):
    write_dataset(runs / "other", OWN, OWN_GOLD, split="test")
    before = sorted(os.listdir(runs))
    arguments = [argument.format(runs) for argument in arguments]
    stopped = run_program(PROGRAM, *arguments, f"--output={runs}/ensemble.json")
    assert stopped.startswith("score ensemble: ")
    assert message.format(runs) in stopped
    assert "\n" not in stopped
    assert sorted(os.listdir(runs)) == before


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--confidence",), "--confidence is for scores: give --examples"),
        (("--null_threshold=1",), "--null_threshold is for scores: give --examples"),
        (("--null_threshold=0", "--examples=FOLDER"), "is for SQuAD 2.0: own has no null odds"),
    ],
)
def test_flags_that_would_change_nothing(runs, run_program, more, sentence):
    flags = [flag.replace("FOLDER", f"{runs}/own-dev-0") for flag in more]
    output = runs / "ensemble.json"
    message = run_program(PROGRAM, f"--predictions={runs}/run-1.json", f"--output={output}", *flags)
    assert sentence in message
    assert not output.exists()


def test_the_output_is_not_among_the_inputs(runs, run_program):
    """Run twice, the command would average its own output."""
    arguments = [f"--predictions={runs}/*.json", f"--output={runs}/ensemble.json"]
    assert not run_program(PROGRAM, *arguments)
    before = (runs / "ensemble.json").read_bytes()
    assert "ensemble.json' is among the inputs. Name another file." in run_program(
        PROGRAM, *arguments
    )
    assert (runs / "ensemble.json").read_bytes() == before


def test_a_pattern_of_examples_matches_one(runs, run_program):
    flags = [f"--predictions={runs}/run-*.json", f"--output={runs}/ensemble.json"]
    assert not run_program(PROGRAM, *flags, f"--examples={runs}/own-*")
    write_dataset(runs / "own-dev-1", OWN, OWN_GOLD)
    error = run_program(PROGRAM, *flags, f"--examples={runs}/own-*")
    assert error.endswith("own-*' matches 2. Name one.")
