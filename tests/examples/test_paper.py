"""examples/paper: a suite of two tiny variants, and the reports of ours."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny
from refusals import one_line
from scipy import stats

from albert_tf import config_io

ROOT = Path(__file__).parents[2]
PAPER = ROOT / "examples/paper"
sys.path.insert(0, str(PAPER))
import run_suite  # noqa: E402


@pytest.mark.parametrize("name", sorted(path.stem for path in (PAPER / "suites").glob("*.json")))
def test_our_reports_are_what_the_results_give(name, tmp_path):
    for picture in (PAPER / "reports").glob(f"{name}-*.svg"):
        (tmp_path / picture.name).touch()
    path, results = PAPER / f"suites/{name}.json", PAPER / "results"
    run_suite.write_report(run_suite.Suite(str(path), None, str(tmp_path), str(results)))
    report = (tmp_path / f"{name}.md").read_text()
    assert report == (PAPER / f"reports/{name}.md").read_text()


CONFIG = {"albert": config_io.to_dict(tiny.config(vocab_size=50, max_position_embeddings=16))}
CONFIG |= {"max_seq_length": 16, "max_predictions_per_seq": 3, "dtype": "float32"}
CONFIG |= {"train_batch_size": 4, "num_train_steps": 2, "num_warmup_steps": 1}
CONFIG |= {"eval_batch_size": 2, "max_eval_examples": 2}
SUITE = {
    "title": "Depth | of a network",
    "config": CONFIG,
    "records": {"input_files": ["*.txt"], "eval_fraction": 0.1, "dupe_factor": 1},
    "variants": {
        "one": {"set": {"albert.num_hidden_layers": 1}},
        "two": {"set": {"albert.num_hidden_layers": 2}, "grow_from": "one"},
    },
    "baseline": "one",
    "seeds": [1],
    "held_out": {"sop": {}},
    "columns": ["parameters", "updates", "sop_masked_lm_loss"],
}


def make_suite(folder, **changes):
    (folder / "depth.json").write_text(json.dumps({**SUITE, **changes}))
    data, work = folder / "text", folder / "work"
    data.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefghij"), 4)) for _ in range(30)]
    documents = ["\n".join(map(" ".join, lines)) for lines in rng.choice(words, [30, 30, 9])]
    (data / "a.txt").write_text("\n\n".join(documents))
    return run_suite.Suite(str(folder / "depth.json"), str(data), str(work), str(work / "results"))


@pytest.mark.full
def test_a_suite_runs_and_then_is_done(calls, tmp_path, capsys):
    make_suite(tmp_path).run(is_dry=True)
    printed = capsys.readouterr().out
    assert printed.count("bin/run_pretraining ") == 2
    assert printed.count("--grow_from=") == 1
    assert not calls
    make_suite(tmp_path).run(is_dry=False)
    made = ["train_vocabulary", "create_pretraining_data"]
    assert calls == [*made, *["run_pretraining", "evaluate_pretraining"] * 2]
    run_suite.write_report(make_suite(tmp_path))
    report = (tmp_path / "work/depth.md").read_text()
    assert "# Depth | of a network" in report
    assert report.count("| 2 (n=1) |") == 2
    calls.clear()
    make_suite(tmp_path).run(is_dry=False)
    assert not calls
    make_suite(tmp_path, minimal_pairs=["*.txt"]).run(is_dry=True)
    assert capsys.readouterr().out.count("--minimal_pairs=") == 2
    (tmp_path / "work/runs").rename(tmp_path / "elsewhere")
    make_suite(tmp_path, minimal_pairs=["*.txt"]).run(is_dry=True)  # other weights: all again
    assert capsys.readouterr().out.count("bin/run_pretraining ") == 2
    other = {**CONFIG, "learning_rate": 0.1}
    with one_line(r"'one' has numbers for other settings\. Remove them"):
        make_suite(tmp_path, config=other).run(is_dry=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"colums": []}, r"unknown or missing: colums"),
        ({"baseline": "bert"}, "'bert' is not a variant"),
        ({"variants": {"one": {"grow_from": "half"}}}, "'half' is not a variant"),
        ({"config": {"hidden": 3}}, "unknown key 'hidden'"),
    ],
)
def test_mistakes_are_found_before_anything_runs(changes, message, tmp_path):
    with one_line(message):
        make_suite(tmp_path, **changes)


@pytest.mark.usefixtures("failing")
def test_a_failed_program_is_one_line(tmp_path):
    with one_line(r"^train_vocabulary: program: it is wrong\. \(log: "):
        make_suite(tmp_path).run(is_dry=False)


def test_intervals_are_students_and_welchs():
    one, other = [0.69, 0.75, 0.70], [0.72, 0.71]
    mean, margin, size = run_suite.estimate(one)
    low, high = stats.t.interval(0.95, 2, mean, stats.sem(one))
    assert (mean - margin, mean + margin, size) == (pytest.approx(low), pytest.approx(high), 3)
    mean, margin, size = run_suite.estimate(one, other)
    interval = stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
    assert mean - margin == pytest.approx(interval.low)
    assert mean + margin == pytest.approx(interval.high)
    assert (size, run_suite.estimate([0.5])) == (2, (0.5, None, 1))
