"""examples/glue: the commands of a suite, and a tiny one from its runs to the archive."""

import shlex
import sys
from pathlib import Path

import pytest
import tiny_program
from refusals import one_line
from tiny_program import read, write_mnli

from albert_tf.tasks import predictions, submissions

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "examples/glue"))
import run_glue  # noqa: E402

checkpoint = tiny_program.checkpoint


def make_suite(tmp_path, **changes):
    write_mnli(tmp_path / "glue")
    values = {"data_dir": tmp_path / "glue", "output": tmp_path / "out", "seeds": [7, 8]}
    return run_glue.Suite(**(values | changes))


def list_commands(capsys):
    """Returns {flag: value} of each printed command."""
    commands = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    return [
        {"program": words[0]} | dict(x[2:].split("=", 1) for x in words if x.startswith("--"))
        for words in commands
    ]


def test_a_dry_run_prints_the_commands(tmp_path, capsys):
    suite = make_suite(tmp_path, init_checkpoint="base", flags=["--recipe=v1"], is_dry=True)
    run_glue.run_all(suite, [], averages=True)
    mnli, _, ax, rte, *rest = list_commands(capsys)
    run = f"{tmp_path}/out/mnli/seed-7"
    assert mnli == {
        "program": "bin/run_finetuning",
        "task": "mnli",
        "mode": "train,eval,predict",
        "data_dir": f"{tmp_path}/glue",
        "cache_dir": f"{tmp_path}/out/cache",
        "output_dir": run,
        "init_checkpoint": "base",
        "recipe": "v1",
        "set": "seed=7",
    }
    assert (ax["task"], ax["output_dir"]) == ("ax", run)
    assert (rte["task"], rte["mode"], rte["init_checkpoint"]) == ("rte", "train,eval", run)
    assert [x["program"] for x in rest] == ["bin/run_finetuning", *["bin/score"] * 3]
    assert rest[1]["predictions"].count("/predictions-test.json") == 2
    assert rest[-1]["predictions"].split(",")[-1] == f"{run}/predictions-test-ax.json"
    assert not (tmp_path / "out").exists()
    other = suite._replace(mnli_checkpoint="theirs")
    run_glue.run_all(other, ["rte"], averages=False)
    assert [x["init_checkpoint"] for x in list_commands(capsys)] == ["theirs"] * 2
    with one_line("glue has none of these tasks"):
        run_glue.run_all(suite, ["cola"], averages=False)


METRICS = "cola.matthews sst-2.accuracy mrpc.f1 mrpc.accuracy sts-b.pearson sts-b.spearman qqp.f1"
METRICS += " qqp.accuracy mnli.accuracy mnli.mismatched_accuracy qnli.accuracy"
METRICS += " rte.accuracy wnli.accuracy"
# Two rows of the public leaderboard, and their averages there.
BERT_LARGE = (60.5, 94.9, 89.3, 85.4, 87.6, 86.5, 72.1, 89.3, 86.7, 85.9, 92.7, 70.1, 65.1)
ALBERT_ENSEMBLE = (69.1, 97.1, 93.4, 91.2, 92.5, 92.0, 74.2, 90.5, 91.3, 91.0, 99.2, 89.2, 91.8)


@pytest.mark.parametrize(("row", "expected"), [(BERT_LARGE, 80.5), (ALBERT_ENSEMBLE, 89.4)])
def test_the_average_is_that_of_the_leaderboard(row, expected):
    scores = {}
    for name, value in zip(METRICS.split(), row, strict=True):
        task, metric = name.split(".")
        scores.setdefault(task, {})[metric] = value / 100
    assert run_glue.describe_average(scores) == f"average of 9 tasks: {expected}"


@pytest.mark.usefixtures("failing")
def test_a_failed_program_is_one_line(tmp_path):
    with one_line(r"^mnli-seed-7: program: it is wrong\. \(log: "):
        run_glue.run_all(make_suite(tmp_path), [], averages=False)


@pytest.mark.full
@pytest.mark.usefixtures("eagerly")
def test_a_suite_runs_once_and_ends_with_a_table(calls, checkpoint, tmp_path, monkeypatch, capsys):
    small = {name: file._replace(num_rows=6) for name, file in submissions.GLUE_FILES.items()}
    small["AX.tsv"] = small["AX.tsv"]._replace(num_rows=2)
    monkeypatch.setattr(submissions, "GLUE_FILES", small)
    flags = [f"--set={k}={x}" for k, x in tiny_program.SETTINGS.items() if k != "eval_steps"]
    suite = make_suite(tmp_path, init_checkpoint=f"{checkpoint}/google", flags=flags)
    run_glue.run_all(suite, [], averages=True)
    assert calls == ["run_finetuning"] * 5 + ["score"] * 3
    shown = capsys.readouterr().out
    runs = [tmp_path / f"out/rte/seed-{seed}" for seed in (7, 8)]
    one, other = (read(run / "metrics-dev.json")["metrics"]["accuracy"] for run in runs)
    best = suite.find_best("mnli")
    median = f"| 2 | dev accuracy {(one + other) / 2:.4g} | {8 if other > one else 7} |"
    assert f"| rte | {tmp_path}/out/mnli/seed-{best} {median}\n" in shown
    assert "\naverage of 2 tasks without cola, sst-2, mrpc, sts-b, qqp, qnli, wnli: " in shown
    assert (tmp_path / "out/glue.md").read_text() in shown
    average = predictions.read(f"{tmp_path}/out/mnli/predictions-test.json")
    assert len(average["checkpoint"]) == 2
    sources = (tmp_path / "out/submission/sources.txt").read_text()
    assert sources.count("FILLER") == 8
    assert f"AX.tsv: {tmp_path}/out/mnli/seed-{best}/predictions-test-ax.json" in sources
    calls.clear()
    run_glue.run_all(suite, [], averages=False)  # the same runs
    assert calls == ["score"]
