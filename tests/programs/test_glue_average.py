"""bin/score glue_average: the scores of several runs, averaged as the leaderboard does."""

import json
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "bin" / "score glue_average"


@pytest.fixture
def write(tmp_path):
    def write(task, split="dev", **metrics):
        path = tmp_path / f"{task}-{split}.json"
        path.write_text(json.dumps({"task": task, "split": split, "metrics": metrics}))

    return write


def test_tasks_and_their_metrics_weigh_the_same(write, run_program, tmp_path, capsys):
    write("cola", matthews=0.2)
    write("mrpc", accuracy=0.7, f1=0.8)
    write("mnli", accuracy=0.5)
    write("mnli", "dev_mismatched", accuracy=0.6)
    assert not run_program(PROGRAM, f"--metrics={tmp_path}/*.json")
    lines = capsys.readouterr().out.splitlines()
    assert "mrpc: dev accuracy 0.7, dev f1 0.8" in lines
    # (0.2 + 0.75 + 0.55) / 3
    assert lines[-1] == "average of 3 tasks without sst-2, sts-b, qqp, qnli, rte, wnli: 50.0"


def test_two_of_one_task_are_refused(write, run_program, tmp_path):
    write("cola", matthews=0.2)
    (tmp_path / "again.json").write_bytes((tmp_path / "cola-dev.json").read_bytes())
    message = run_program(PROGRAM, f"--metrics={tmp_path}/*.json")
    assert "a second cola dev matthews" in message


@pytest.mark.parametrize(
    ("split", "missing"), [("dev", "dev_mismatched"), ("dev_mismatched", "dev")]
)
def test_half_of_mnli_is_said_to_be_half(split, missing, write, run_program, tmp_path, capsys):
    write("mnli", split, accuracy=0.5)
    assert not run_program(PROGRAM, f"--metrics={tmp_path}/*.json")
    assert capsys.readouterr().out.endswith(f"rte, wnli, {missing} of mnli: 50.0\n")


NUMBERS = {"task": "cola", "split": "dev", "metrics": {"matthews": 0.5}}


@pytest.mark.parametrize(
    "content",
    [
        [],
        {**NUMBERS, "metrics": 5},
        {**NUMBERS, "metrics": {}},
        {**NUMBERS, "metrics": {"matthews": "x"}},
        {**NUMBERS, "metrics": {"matthews": None}},
        {**NUMBERS, "metrics": {"matthews": float("nan")}},
        {**NUMBERS, "task": ["cola"]},
        {**NUMBERS, "split": None},
    ],
)
def test_other_files_are_refused(content, run_program, tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(content))
    message = run_program(PROGRAM, f"--metrics={tmp_path}/a.json")
    assert message.endswith("a.json is no metrics file of bin/run_finetuning. Leave it out.")
