"""The file of a suite: every mistake is named before anything runs."""

import copy
import json
import os
from pathlib import Path

import pytest

from albert_tf.errors import UserError
from albert_tf.experiments import suite as suites
from albert_tf.experiments import suite_report
from albert_tf.experiments.data import Data
from albert_tf.experiments.results import Results
from albert_tf.experiments.runner import Runner

ROOT = Path(__file__).parents[2]
SUITE = {
    "title": "Depth",
    "config": {
        "albert": {"hidden_size": 8, "num_attention_heads": 2},
        "max_seq_length": 16,
        "max_predictions_per_seq": 3,
    },
    "records": {"input_files": ["*.txt"], "eval_fraction": 0.1, "dupe_factor": 1},
    "variants": {"two": {"set": {"albert.num_hidden_layers": 2}}, "base": {}},
    "baseline": "base",
    "held_out": {"sop": {}},
    "tasks": {"sst-2": {"set": {"num_train_steps": 2}}},
    "columns": ["parameters"],
}


@pytest.fixture
def read(tmp_path):
    def read(**changes):
        values = {**copy.deepcopy(SUITE), **changes}
        path = tmp_path / "depth.json"
        path.write_text(json.dumps({name: x for name, x in values.items() if x is not None}))
        return suites.read(str(path))

    return read


OURS = pytest.mark.parametrize(
    "path", sorted((ROOT / "configs/experiments").glob("*.json")), ids=lambda p: p.stem
)


@OURS
def test_our_reports_are_what_the_results_give(path, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    suite = suites.read(str(path))
    results = Results(suite, "docs/experiments/results")
    runner = Runner(suite, Data(suite, None, str(tmp_path)), str(tmp_path), results)
    suite_report.write(runner, str(tmp_path / suite.name), os.path.relpath(path))
    report = f"{suite.name}.md"
    assert (tmp_path / report).read_text() == (ROOT / "docs/experiments" / report).read_text()


@OURS
def test_our_suites_are_valid_and_name_what_they_have(path):
    suite = suites.read(str(path))
    measured = {
        "parameters",
        "updates",
        "speed",
        "speed_by_formula",
        "update_cpu_seconds",
        *suite.tasks,
        *(f"{task}_exact" for task in suite.tasks if task.startswith("squad")),
    }
    measured |= {
        f"{name}_{measure}"
        for name in suite.held_out
        for measure in (
            "masked_lm_loss",
            "masked_lm_accuracy",
            "next_sentence_accuracy",
        )
    }
    measured |= {"minimal_pairs"} if suite.minimal_pairs else set()
    measured |= {"sop_sentence_order_accuracy"}
    assert {*suite.columns} <= measured
    assert all({*values} <= {*suite.columns} for values in suite.paper.values())


def test_runs_and_configs(read):
    suite = read(seeds=[7, 9])
    assert suite.list_runs() == [("two", 7), ("base", 7), ("two", 9), ("base", 9)]
    config = suite.make_config("two", 9)
    assert (config.albert.num_hidden_layers, config.albert.hidden_size, config.seed) == (2, 8, 9)
    patterns, records = suite.make_records(config, {"sentence_task": "nsp"})
    assert patterns == ["*.txt"]
    assert (records.max_seq_length, records.sentence_task, records.dupe_factor) == (16, "nsp", 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"colums": []}, r"unknown key 'colums'\. Known: baseline, "),
        ({"title": None}, "'title' is missing"),
        ({"variants": {}}, "no variants"),
        ({"variants": ["base"]}, "variants must be an object"),
        ({"columns": "loss"}, "columns must be a list"),
        ({"config": 3}, "config must be an object"),
        ({"trains": 1}, "trains must be of type bool"),
        ({"max_pairs": "3"}, "max_pairs must be of type int"),
        ({"seeds": ["1"]}, "seeds 1 must be of type int"),
        ({"variants": {"base": {"sets": {}}}}, "variants 'base': unknown key 'sets'"),
        ({"variants": {"base": []}}, "variants 'base' must be an object"),
        ({"baseline": "bert"}, "baseline 'bert' is no variant"),
        ({"seeds": [1, 1]}, "none of them twice"),
        ({"seeds": []}, "none of them twice"),
        ({"rate_steps": [3, 2]}, "two numbers, the smaller first"),
        ({"config": {"hidden": 3}}, "config: .*unknown key 'hidden'"),
        ({"records": {}}, "records needs input_files"),
        ({"records": {"input_files": ["x"], "mask": 1}}, "records: .*unknown key 'mask'"),
        ({"records": {"input_files": ["x"]}}, "needs eval_fraction"),
        ({"tasks": {"sst2": {}}}, "task 'sst2': "),
        ({"tasks": {"sst-2": {"set": {"steps": 3}}}}, "task 'sst-2': .*unknown key 'steps'"),
        ({"paper": {"bert": {}}}, "paper names 'bert', which is no variant"),
        ({"paper_names": {"bert": "B"}}, "paper names 'bert', which is no variant"),
        (
            {"variants": {"base": {}, "same": {"set": {"albert.hidden_size": 8}}}},
            "variant 'same': albert.hidden_size=8 changes nothing",
        ),
        (
            {"variants": {"base": {}, "same": {"records": {"dupe_factor": 1}}}},
            "variant 'same': dupe_factor=1 of records changes nothing",
        ),
        ({"variants": {"base": {}, "same": {}}}, "variant 'same' is the same run as 'base'"),
        ({"variants": {"base": {"grow_from": "x"}}}, "'x' is no variant"),
        ({"variants": {"base": {"grow_from": "base"}}}, "base <- base is a circle"),
        (
            {"variants": {"base": {}, "x": {"grow_from": "base", "continue_from": "base"}}},
            "both grow_from and continue_from",
        ),
    ],
)
def test_mistakes_are_named(read, changes, message):
    with pytest.raises(UserError, match=message):
        read(**changes)
