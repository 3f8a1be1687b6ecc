"""Which stages are run, in which order, and what is taken from results."""

import json
import os
import threading
import time
from pathlib import Path

import pytest

from albert_tf import config_io, files
from albert_tf.errors import UserError
from albert_tf.experiments import child, suite_report, tables
from albert_tf.experiments import suite as suites
from albert_tf.experiments.data import Data
from albert_tf.experiments.results import Results
from albert_tf.experiments.runner import Runner

ROOT = Path(__file__).parents[2]
SUITE = {
    "title": "Depth | of a network",
    "config": {
        "albert": {"vocab_size": 200, "hidden_size": 8, "num_attention_heads": 2},
        "max_seq_length": 16,
        "max_predictions_per_seq": 3,
        "num_train_steps": 100,
        "num_warmup_steps": 10,
    },
    "records": {"input_files": ["*.txt"], "eval_fraction": 0.1, "dupe_factor": 1},
    "variants": {
        "one": {"set": {"albert.num_hidden_layers": 1}},
        "two": {"set": {"albert.num_hidden_layers": 2}, "grow_from": "one"},
    },
    "baseline": "one",
    "seeds": [1, 2],
    "held_out": {"sop": {}},
    "columns": ["parameters", "sop_masked_lm_loss"],
    "curves": ["masked_lm_loss"],
    "layer_distances": True,
}


class FakePrograms:
    """Writes what the programs of bin/ would; a CPU second for each 10 updates."""

    def __init__(self):
        self.calls, self.fails_at = [], None

    def run(self, program, flags, log):
        given = [flag.removeprefix("--").partition("=")[::2] for flag in flags]
        options = {name: value for name, value in given if name != "set"}
        sets = {
            key: json.loads(x) for key, _, x in (v.partition("=") for n, v in given if n == "set")
        }
        self.calls.append((program, options, sets))
        if program == self.fails_at:
            raise UserError(f"{program} failed")
        return getattr(self, program)(options, sets)

    def train_vocabulary(self, options, sets):
        files.write_json(os.path.join(self.folder(options["output_dir"]), "report.json"), {})
        return 1.0

    def create_pretraining_data(self, options, sets):
        files.write_json(os.path.join(self.folder(options["output_dir"]), "manifest.json"), {})
        return 1.0

    def run_pretraining(self, options, sets):
        workdir = Path(self.folder(options["output_dir"]))
        config = json.dumps([sets, options["train_files"], options.get("grow_from")])
        if (file := workdir / "config.json").exists():
            assert file.read_text() == config, f"{workdir} belongs to another run"
        file.write_text(config)
        steps = sets["num_train_steps"]
        loss = 10 - sets["albert"]["num_hidden_layers"] - 0.01 * sets["seed"]
        line = {"step": steps, "loss": 3.0, "eval_masked_lm_loss": loss}
        (workdir / "metrics.jsonl").write_text(json.dumps(line) + "\n")
        (workdir / f"model.ckpt-{steps}.index").touch()
        return steps / 10 + 5

    def evaluate_pretraining(self, options, sets):
        if "minimal_pairs" in options:
            pairs = {"accuracy": 0.6, "field": {"syntax": {"accuracy": 0.7}}}
            files.write_json(options["output"], {"minimal_pairs": pairs})
            return 3.0
        [line] = (Path(options["checkpoint"]).parent / "metrics.jsonl").read_text().splitlines()
        loss = json.loads(line)["eval_masked_lm_loss"] + 1 / 3
        distances = {"l2": [1.0, 2.0], "angle": [3.0, 4.0]}
        results = {"sop": {"masked_lm_loss": loss, "files": ["x"]}, "layer_distances": distances}
        files.write_json(options["output"], results)
        return 2.0

    @staticmethod
    def folder(path):
        os.makedirs(path, exist_ok=True)
        return path


@pytest.fixture
def programs(monkeypatch):
    programs = FakePrograms()
    monkeypatch.setattr(child, "run", programs.run)
    return programs


@pytest.fixture
def make_runner(tmp_path):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("a text\n")

    def make_runner(name="depth", data_dir="text", **changes):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({**SUITE, **changes}))
        suite = suites.read(str(path))
        folder = data_dir and str(tmp_path / data_dir)
        records = Data(suite, folder, str(tmp_path / "data"))
        results = Results(suite, str(tmp_path / "results"))
        return Runner(suite, records, str(tmp_path / "runs"), results)

    return make_runner


def list_trained(programs):
    return [
        (sets["albert"]["num_hidden_layers"], sets["seed"])
        for program, options, sets in programs.calls
        if program == "run_pretraining" and options["output_dir"].endswith("pretraining")
    ]


def test_a_suite_runs_the_first_seeds_first_and_then_is_done(programs, make_runner, tmp_path):
    make_runner().run()
    assert list_trained(programs) == [(1, 1), (2, 1), (1, 2), (2, 2)]
    names = [name for name, _, _ in programs.calls]
    assert names.count("train_vocabulary") == names.count("create_pretraining_data") == 1
    grown = next(o for n, o, s in programs.calls if "grow_from" in o)
    [start] = (tmp_path / "runs" / "depth" / "one.seed-1").glob("*/pretraining")
    assert grown["grow_from"] == str(start)
    programs.calls.clear()
    make_runner().run()
    assert not programs.calls
    results = json.loads((tmp_path / "results" / "depth" / "two.seed-1.json").read_text())
    numbers = results["stages"]["evaluation"]["numbers"]
    assert numbers["sop_masked_lm_loss"] == 8.32333
    assert results["stages"]["pretraining"]["numbers"]["update_cpu_seconds"] == 0.15


def test_a_new_seed_or_variant_runs_only_that(programs, make_runner):
    make_runner().run()
    programs.calls.clear()
    variants = {**SUITE["variants"], "three": {"set": {"albert.num_hidden_layers": 3}}}
    make_runner(variants=variants, seeds=[1]).run()
    assert list_trained(programs) == [(3, 1)]
    programs.calls.clear()
    make_runner(seeds=[1, 2, 3]).run()
    assert list_trained(programs) == [(1, 3), (2, 3)]


def test_what_another_suite_knows_is_not_run_again(programs, make_runner, tmp_path):
    make_runner().run()
    programs.calls.clear()
    alone = {"variants": {"1 layer": SUITE["variants"]["one"]}, "baseline": "1 layer"}
    made = make_runner("shallow", **alone)
    made.run()
    assert not programs.calls
    suite_report.write(made, str(tmp_path / "shallow"), "shallow.json")
    assert "2 of 2 runs, 0.0 CPU hours, on " in (tmp_path / "shallow.md").read_text()


@pytest.mark.parametrize(
    ("changes", "trained"),
    [
        ({"held_out": {"sop": {}, "all": {"eval_fraction": 0.5}}}, []),
        ({"config": {**SUITE["config"], "save_checkpoints_steps": 7}}, []),
        ({"config": {**SUITE["config"], "learning_rate": 0.1}}, [(1, 1), (2, 1)]),
        ({"records": {**SUITE["records"], "ngram": 1}}, [(1, 1), (2, 1)]),
    ],
)
def test_a_change_runs_what_depends_on_it(programs, make_runner, changes, trained):
    make_runner(seeds=[1]).run()
    programs.calls.clear()
    make_runner(seeds=[1], **changes).run()
    assert list_trained(programs) == trained


@pytest.mark.parametrize("changes", [{"learning_rate": 0.1}, {}])
def test_results_of_another_training_do_not_stay(programs, make_runner, tmp_path, changes):
    make_runner(seeds=[1], minimal_pairs=["a.txt"], held_out={}).run()
    (tmp_path / "runs").rename(tmp_path / "elsewhere")
    make_runner(seeds=[1], config={**SUITE["config"], **changes}).run()
    known = json.loads((tmp_path / "results" / "depth" / "one.seed-1.json").read_text())
    assert known["stages"].keys() == {"pretraining", "evaluation"}


def test_a_change_of_the_first_of_a_chain_runs_all_of_it(programs, make_runner):
    def make_variants(**first):
        sets = [{"albert.num_hidden_layers": layers} for layers in (1, 2, 4)]
        return {
            "one": {"set": {**sets[0], **first}},
            "two": {"set": sets[1], "grow_from": "one"},
            "four": {"set": sets[2], "grow_from": "two"},
        }

    make_runner(variants=make_variants(), seeds=[1]).run()
    programs.calls.clear()
    make_runner(variants=make_variants(learning_rate=0.1), seeds=[1]).run()
    assert list_trained(programs) == [(1, 1), (2, 1), (4, 1)]


def test_other_text_gives_other_numbers(programs, make_runner, tmp_path):
    make_runner(seeds=[1]).run()
    programs.calls.clear()
    (tmp_path / "text" / "b.txt").write_text("another text\n")
    make_runner(seeds=[1]).run()
    assert list_trained(programs) == [(1, 1), (2, 1)]


def test_a_checkpoint_of_another_machine_is_made_again(programs, make_runner, tmp_path):
    make_runner(variants={"one": SUITE["variants"]["one"]}, seeds=[1]).run()
    programs.calls.clear()
    (tmp_path / "runs").rename(tmp_path / "elsewhere")
    plan = make_runner(minimal_pairs=["*.txt"], seeds=[1]).describe_plan()
    assert plan.startswith("one, seed 1: pretraining, evaluation, minimal_pairs: ")
    make_runner(seeds=[1]).run()
    assert list_trained(programs) == [(1, 1), (2, 1)]
    # The weights are other ones, for a processor may round otherwise: their numbers are, too.
    assert [name for name, _, _ in programs.calls].count("evaluate_pretraining") == 2


def test_a_failure_ends_the_suite_and_the_next_run_goes_on(programs, make_runner):
    programs.fails_at = "evaluate_pretraining"
    with pytest.raises(UserError, match="evaluate_pretraining failed"):
        make_runner().run()
    programs.fails_at = None
    make_runner().run()
    assert list_trained(programs) == [(1, 1), (2, 1), (1, 2), (2, 2)]


def test_the_time_of_a_training_that_was_killed_is_not_known(programs, make_runner):
    programs.fails_at = "run_pretraining"
    only = {"variants": {"one": SUITE["variants"]["one"]}, "seeds": [1]}
    with pytest.raises(UserError, match="run_pretraining failed"):
        made = make_runner(**only)
        made._run("one", 1, False)
    log = Path(made.make_run("one", 1).folder) / "pretraining.log"
    log.parent.mkdir(parents=True)
    log.write_text("killed")
    programs.fails_at = None
    made.run()
    numbers = made.find_numbers("one", 1)
    assert "update_cpu_seconds" not in numbers
    assert numbers["updates"] == 100


def test_runs_of_others_are_left_to_them(programs, make_runner):
    in_use = make_runner()._locking("one", 1, False)
    waited = []

    def finish():
        while len(list_trained(programs)) < 2:
            time.sleep(0.05)
        time.sleep(0.5)
        waited.append(list_trained(programs))
        in_use.__exit__(None, None, None)

    in_use.__enter__()
    threading.Thread(target=finish, daemon=True).start()
    make_runner().run()
    # The second variant grows from the first, and waits for it as well.
    assert waited == [[(1, 2), (2, 2)]]
    assert list_trained(programs) == [(1, 2), (2, 2), (1, 1), (2, 1)]


def test_records_are_made_by_one_process_while_others_wait(programs, make_runner):
    made = make_runner()
    records = made.make_run("one", 1).records
    other = files.locking_folder(os.path.dirname(records.folder))
    waited = []

    def finish():
        time.sleep(0.5)
        waited.append(len(programs.calls))
        made._data._prepare(records)
        other.__exit__(None, None, None)

    other.__enter__()
    threading.Thread(target=finish, daemon=True).start()
    made._data.prepare(records)
    assert waited == [0]
    assert [name for name, _, _ in programs.calls] == [
        "train_vocabulary",
        "create_pretraining_data",
    ]


def test_minimal_pairs_are_columns(programs, make_runner):
    columns = ["minimal_pairs", "minimal_pairs_syntax"]
    made = make_runner(minimal_pairs=["*.txt"], columns=columns, seeds=[1])
    made.run()
    means = tables.make_means(made.suite, tables.collect(made))
    assert means[1] == ["one", "60.0 (n=1)", "70.0 (n=1)"]
    with pytest.raises(UserError, match=r"has no file 'pairs\.jsonl'"):
        make_runner(minimal_pairs=["pairs.jsonl"])


def test_a_suite_of_speeds_trains_nothing(programs, make_runner, tmp_path):
    columns = ["parameters", "speed", "speed_by_formula"]
    made = make_runner(trains=False, rate_steps=[2, 6], seeds=[1], columns=columns)
    made.run()
    steps = [sets["num_train_steps"] for n, _, sets in programs.calls if n == "run_pretraining"]
    assert steps == [2, 6, 2, 6]
    assert tables.make_means(made.suite, tables.collect(made))[1:] == [
        ["one", "0.15 M", "1.00 (n=1)", "1.00"],
        # The last layer computes only what is read, and is the only one of "one".
        ["two", "0.15 M", "1.00 (n=1)", "0.27"],
    ]
    assert not list((tmp_path / "runs").glob("*/*/rate-*/"))


def test_the_plan_names_runs_and_hours(programs, make_runner):
    lines = make_runner().describe_plan().splitlines()
    assert not programs.calls  # nothing is measured
    assert lines[0].startswith("one, seed 1: pretraining, evaluation: 1 CPU minutes")
    assert lines[-1].startswith("depth: 4 of 4 runs are to do, about 0.1 CPU hours; ")
    make_runner().run()
    assert make_runner().describe_plan().startswith("depth: 0 of 4 runs are to do, about 0.0 CPU")


def test_a_dry_run_writes_nothing(run_program, make_runner, tmp_path, capsys):
    make_runner()
    before = sorted(tmp_path.rglob("*"))
    flags = {"suite": "depth.json", "data_dir": "text", "output_dir": "work"}
    given = [f"--{name}={tmp_path / value}" for name, value in flags.items()]
    assert not run_program(ROOT / "bin/run_experiments", *given, "--dry_run")
    assert "depth: 4 of 4 runs are to do, about 0.1 CPU hours; " in capsys.readouterr().out
    assert sorted(tmp_path.rglob("*")) == before


def test_missing_data_is_one_line(make_runner):
    with pytest.raises(UserError, match="--data_dir: no folder"):
        make_runner(data_dir="nowhere")
    with pytest.raises(UserError, match=r"has no file 'books\*'"):
        make_runner(records={**SUITE["records"], "input_files": ["books*"]})
    with pytest.raises(UserError, match=r"holds no SST-2/train\.tsv"):
        make_runner(tasks={"sst-2": {"data_dir": "glue"}})


def test_a_report_needs_results_alone(programs, make_runner, tmp_path):
    with pytest.raises(UserError, match="has no results yet"):
        suite_report.write(make_runner(data_dir=None), str(tmp_path / "depth"), "depth.json")
    make_runner().run()
    prefix = str(tmp_path / "report")
    suite_report.write(make_runner(data_dir=None), prefix, "depth.json")
    written = {name: (tmp_path / name).read_bytes() for name in ("report.html", "report.md")}
    suite_report.write(make_runner(), prefix, "depth.json")
    for name, content in written.items():
        assert (tmp_path / name).read_bytes() == content
    text = written["report.md"].decode()
    assert "# Depth | of a network" in text
    assert "| two | 0.15 M | 8.318 ± 0.064 (n=2) |" in text
    assert "| two | -1.000 ± 0.030 (n=2) |" in text
    assert "4 of 4 runs, 0.0 CPU hours" in text
    assert "![masked_lm_loss](report-masked_lm_loss.svg)" in text
    page = written["report.html"].decode()
    assert page.count("<svg ") == 3
    assert "Depth | of a network</title>" in page
    assert (tmp_path / "report-layers_l2.svg").read_bytes().startswith(b"<svg ")


def test_configs_of_flags_are_those_of_the_suite(programs, make_runner):
    """What `--set` says again, in JSON, is the config itself."""
    made = make_runner()
    run = made.make_run("two", 2)
    [(_, flags)] = made.make_stages(run)[0].commands
    sets = [flag.removeprefix("--set=") for flag in flags if flag.startswith("--set=")]
    assert config_io.load(type(run.config), None, sets) == run.config
