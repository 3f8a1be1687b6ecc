#!/usr/bin/env python3
"""Runs a suite of the paper's experiments with the programs of bin/, and writes its report.

    .venv/bin/python examples/paper/run_suite.py --suite=examples/paper/suites/sharing.json \\
        --data_dir=data --output_dir=work --dry_run

Runs with numbers in --results_dir are not repeated. --dry_run prints the remaining commands.
Without --data_dir, it writes the report for the existing numbers.
"""

import argparse
import glob
import hashlib
import itertools
import json
import os
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from scipy import stats

from albert_tf import config_io
from albert_tf.errors import UserError, require
from albert_tf.files import read_log
from albert_tf.plan import costs
from albert_tf.run_files import METRICS_LOG
from albert_tf.train_config import PretrainConfig

BIN = Path(__file__).resolve().parents[2] / "bin"
DEFAULTS: dict[str, Any] = {key: {} for key in ("held_out", "paper", "paper_names")}
DEFAULTS |= {"question": "", "seeds": [1, 2, 3], "minimal_pairs": [], "max_pairs": 100}
DEFAULTS |= {"curves": [], "trains": True, "rate_steps": [20, 80], "layer_distances": False}
NEEDED = ("title", "config", "records", "variants", "baseline", "columns")
PRETRAINING, PAIRS, PARAMETERS = "pretraining", "minimal_pairs", "parameters"
UPDATE, SPEED, FORMULA = "update_cpu_seconds", "speed", "speed_by_formula"
LAST_FILES = {"train_vocabulary": "report.json", "create_pretraining_data": "manifest.json"}
# {variant: {seed: {measure: number, or a list of them}}}
Numbers = dict[str, dict[int, dict[str, Any]]]


class Command(NamedTuple):
    program: str
    flags: dict[str, Any]
    sets: Mapping[str, Any] = {}

    def list_words(self) -> list[str]:
        values = [f"--{name}={value}" for name, value in self.flags.items()]
        return [*values, *(f"--set={k}={json.dumps(x)}" for k, x in self.sets.items())]


class Stage(NamedTuple):
    name: str
    commands: list[Command]
    read: Callable[[list[float]], dict[str, Any]]  # CPU seconds of each command -> numbers
    settings: Any = None  # what the weights depend on


class Suite:
    """A suite, and where its files are; `data_dir` is None without data."""

    def __init__(self, path: str, data_dir: str | None, output: str, results: str | None):
        values = read(path)
        wrong = (values.keys() - DEFAULTS.keys()) ^ {*NEEDED}
        require(not wrong, f"{path}: unknown or missing: {', '.join(sorted(wrong))}.")
        self.of = SimpleNamespace(**{**DEFAULTS, **values})
        self.name, self.data_dir, self.output = Path(path).stem, data_dir, output
        self.results = Path(results or f"{output}/results", self.name)
        for name in (self.of.baseline, *map(self.find_source, self.of.variants)):
            require(name in (None, *self.of.variants), f"{path}: {name!r} is not a variant.")
        _ = [self.make_config(name, 0) for name in self.of.variants]  # raises for bad values

    def find_source(self, variant: str) -> str | None:
        """Returns the variant that a variant starts from."""
        found = self.of.variants.get(variant, {})
        return found.get("grow_from") or found.get("continue_from")

    def list_values(self, variant: str, seed: int) -> dict[str, Any]:
        return {**self.of.config, **self.of.variants[variant].get("set", {}), "seed": seed}

    def make_config(self, variant: str, seed: int) -> PretrainConfig:
        sets = Command("", {}, self.list_values(variant, seed)).list_words()
        overrides = [x.removeprefix("--set=") for x in sets]
        return config_io.load(PretrainConfig, None, overrides)

    def find_folder(self, variant: str, seed: int) -> str:
        return os.path.join(self.output, "runs", self.name, name_run(variant, seed))

    def find_checkpoint(self, variant: str, seed: int) -> str:
        last = self.make_config(variant, seed).last_step
        return f"{self.find_folder(variant, seed)}/{PRETRAINING}/model.ckpt-{last}"

    def find_inputs(self, patterns: Sequence[str]) -> str:
        paths = [os.path.join(self.data_dir or "", pattern) for pattern in patterns]
        for path in paths if self.data_dir else ():
            require(bool(glob.glob(path)), f"--data_dir: no file {path!r}.")
        return ",".join(paths)

    def make_records(
        self, config: PretrainConfig, changes: Mapping[str, Any]
    ) -> tuple[list[Command], str]:
        """Returns the commands that create the records of a config, and their folder."""
        fields = ("max_seq_length", "max_predictions_per_seq", "sentence_task")
        values = {name: getattr(config, name) for name in fields} | {**self.of.records, **changes}
        values["input"] = self.find_inputs(values.pop("input_files"))
        words: dict[str, Any] = {
            "vocab_size": self.make_config(self.of.baseline, 0).albert.vocab_size
        }
        words["input"] = self.find_inputs(self.of.records["input_files"])
        commands = []
        for program, flags in (("train_vocabulary", words), ("create_pretraining_data", values)):
            digest = hashlib.sha256(json.dumps(flags, sort_keys=True).encode()).hexdigest()[:16]
            folder = os.path.join(self.output, "data", f"{program}-{digest}")
            commands.append(Command(program, {**flags, "output_dir": folder}))
            values["vocabulary"] = folder  # before the digest of the records
        return commands, folder

    def make_stages(self, variant: str, seed: int) -> Iterator[Stage]:
        """Yields the stages of a run in order."""
        of, folder = self.of, self.find_folder(variant, seed)
        config, values = self.make_config(variant, seed), self.list_values(variant, seed)
        changes = of.variants[variant].get("records", {})
        made, records = self.make_records(config, changes)
        files: dict[str, Any] = {f"{x}_files": f"{records}/{x}-*" for x in ("train", "eval")}
        parameters = {PARAMETERS: costs.count_trained_parameters(config)}
        settings = [values.copy(), {**of.records, **changes}]
        if not of.trains:
            # One example to evaluate: evaluating all takes longer than the updates.
            values |= {"num_warmup_steps": 1, "steps_per_loop": 10, "eval_steps": 0}
            values |= {"eval_batch_size": 1, "max_eval_examples": 1}
            for steps in of.rate_steps:
                flags = {"output_dir": f"{folder}/rate-{steps}", **files}
                sets = {**values, "num_train_steps": steps}
                made.append(Command("run_pretraining", flags, sets))
            few, many = of.rate_steps

            def read_rate(seconds: list[float]) -> dict[str, Any]:
                shutil.rmtree(folder)  # unneeded checkpoints
                return {**parameters, UPDATE: (seconds[-1] - seconds[-2]) / (many - few)}

            yield Stage("rate", made, read_rate, settings)
            return
        flags = {"output_dir": f"{folder}/{PRETRAINING}", **files}
        updates, source = config.last_step, self.find_source(variant)
        if source:
            grows = "grow_from" in of.variants[variant]
            start = f"{self.find_folder(source, seed)}/{PRETRAINING}"
            flags["grow_from" if grows else "continue_from"] = start
            updates -= 0 if grows else self.make_config(source, seed).last_step
        is_resumed = os.path.exists(f"{folder}/{PRETRAINING}")

        def read_training(seconds: list[float]) -> dict[str, Any]:
            records = read_log(os.path.join(folder, PRETRAINING), METRICS_LOG)
            found = [x for x in records if any(k.startswith("eval_") for k in x)]
            curve = [{k.removeprefix("eval_"): v for k, v in x.items()} for x in found]
            # The CPU time of a stopped process is unknown.
            rate = {} if is_resumed else {UPDATE: seconds[-1] / updates}
            return {**parameters, "updates": updates, **rate, "curve": curve}

        made.append(Command("run_pretraining", flags, values))
        yield Stage(PRETRAINING, made, read_training, settings)
        checkpoint = self.find_checkpoint(variant, seed)
        commands, outputs = [], {}
        for name, changes in of.held_out.items():
            made, records = self.make_records(config, {"sentence_task": "sop", **changes})
            outputs[name] = f"{folder}/evaluation-{name}.json"
            flags = {"checkpoint": checkpoint, "eval_files": f"{records}/eval-*"}
            flags |= {"output": outputs[name]}
            flags["layer_distances"] = of.layer_distances and len(outputs) == 1
            commands += [*made, Command("evaluate_pretraining", flags)]
        yield Stage("evaluation", commands, lambda _: read_evaluations(outputs))
        if of.minimal_pairs:
            pairs, output = self.find_inputs(of.minimal_pairs), f"{folder}/minimal_pairs.json"
            flags = {"checkpoint": checkpoint, "minimal_pairs": pairs, "max_pairs": of.max_pairs}
            command = Command("evaluate_pretraining", {**flags, "output": output})
            yield Stage(PAIRS, [command], lambda _: {PAIRS: read(output)[PAIRS]["accuracy"]})

    def read_results(self, variant: str, seed: int) -> dict[str, dict[str, Any]]:
        """Returns {stage: its recorded results}."""
        path = self.results / f"{name_run(variant, seed)}.json"
        return read(path)["stages"] if path.exists() else {}

    def list_missing(
        self, variant: str, seed: int, needs_checkpoint: bool = False
    ) -> list[tuple[str, Stage]]:
        """Returns the missing stages of a run, after the missing stages of the run it starts from.

        Without its checkpoint on this machine, all are missing: other weights give other numbers.
        """
        known, stages = self.read_results(variant, seed), list(self.make_stages(variant, seed))
        missing, before = [x for x in stages if x.name not in known], []
        for stage in stages:
            was = known.get(stage.name, {}).get("settings", stage.settings)
            text = f"{self.results}: {variant!r} has numbers for other settings. Remove them."
            require(was == stage.settings or isinstance(was, str), text)  # older ones are hashes
        is_trained = os.path.exists(f"{self.find_checkpoint(variant, seed)}.index")
        if self.of.trains and (missing or needs_checkpoint) and not is_trained:
            missing, source = stages, self.find_source(variant)
            before = self.list_missing(source, seed, needs_checkpoint=True) if source else []
        return [*before, *((variant, stage) for stage in missing)]

    def run(self, is_dry: bool) -> None:
        """Runs the missing stages, seed 1 of all variants first, or prints their commands."""
        plan = {
            (name, seed, stage.name): stage
            for seed, variant in itertools.product(self.of.seeds, self.of.variants)
            for name, stage in self.list_missing(variant, seed)
        }
        for (name, seed, stage_name), stage in plan.items():
            print(f"{self.name}: {name}, seed {seed}: {stage_name}", flush=True)
            for command in stage.commands if is_dry else ():
                print(" ", shlex.join([f"bin/{command.program}", *command.list_words()]))
            if not is_dry:
                self.run_stage(name, seed, stage)

    def run_stage(self, variant: str, seed: int, stage: Stage) -> None:
        log = f"{self.find_folder(variant, seed)}/{stage.name}.log"
        seconds = [run_program(command, log) for command in stage.commands]
        known = {
            "settings": stage.settings,
            "numbers": stage.read(seconds),
            "cpu_seconds": round(sum(seconds), 1),
            "ended": time.strftime("%Y-%m-%d", time.gmtime()),
            "machine": describe_machine(),
        }
        # New weights: remove all older numbers.
        others = {} if stage.name == PRETRAINING else self.read_results(variant, seed)
        content = {"variant": variant, "seed": seed, "stages": {**others, stage.name: known}}
        self.results.mkdir(parents=True, exist_ok=True)
        path = self.results / f"{name_run(variant, seed)}.json"
        path.write_text(json.dumps(content, indent=2) + "\n")


def read(path: str | Path) -> Any:
    return json.loads(Path(path).read_text(encoding="utf-8"))


def name_run(variant: str, seed: int) -> str:
    words = "".join(c if c.isalnum() else " " for c in variant).split()
    return f"{'-'.join(words).lower()}.seed-{seed}"


def run_program(command: Command, log: str) -> float:
    """Runs a program, unless its records exist; returns its CPU seconds, or `UserError`."""
    program, last = command.program, LAST_FILES.get(command.program)
    if last and os.path.exists(f"{command.flags['output_dir']}/{last}"):
        return 0.0
    os.makedirs(os.path.dirname(log), exist_ok=True)
    before = sum(os.times()[2:4])  # of child processes
    with open(log, "ab") as file:
        words = [sys.executable, str(BIN / program), *command.list_words()]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    if done.returncode:
        last_line = Path(log).read_text(errors="replace").strip().rpartition("\n")[2]
        raise UserError(f"{program}: {last_line or done.returncode} (log: {log})")
    return sum(os.times()[2:4]) - before


def describe_machine() -> str:
    """Returns the CPU, with the instructions for products, which affect rounding."""
    path = Path("/proc/cpuinfo")  # only Linux has it
    flags = path.read_text(encoding="utf-8").split() if path.exists() else []
    sets = [x for x in ("avx2", "avx512f", "avx512_bf16", "amx_tile") if x in flags]
    return ", ".join([platform.machine(), f"{os.cpu_count()} cores", *sets[-1:]])


def read_evaluations(outputs: Mapping[str, str]) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    for name, path in outputs.items():
        results = read(path)
        [values] = (x for key, x in results.items() if key.startswith(("sop", "nsp", "none")))
        numbers |= {f"{name}_{k}": x for k, x in values.items() if k != "files"}
        numbers |= results.get("layer_distances", {})
    return numbers


def estimate(*samples: Sequence[float]) -> tuple[float, float | None, int]:
    """Returns a mean, or the difference of two (Welch's t), half its 95 % interval, the size."""
    mean = statistics.fmean(samples[0]) - sum(map(statistics.fmean, samples[1:]))
    size = min(map(len, samples))
    errors = [statistics.variance(x) / len(x) for x in samples] if size > 1 else []
    if not (spread := sum(errors)):
        return mean, 0.0 if errors else None, size
    parts = zip(errors, samples, strict=True)
    freedom = spread**2 / sum(error**2 / (len(x) - 1) for error, x in parts)
    return mean, float(stats.t.ppf(0.975, freedom)) * spread**0.5, size


def collect(suite: Suite) -> Numbers:
    """Returns the existing numbers; the speed of the baseline is 1."""
    configs = {variant: suite.make_config(variant, 0) for variant in suite.of.variants}
    flops = {k: sum(costs.count_flops(x, x.train_batch_size)) for k, x in configs.items()}
    numbers: Numbers = {}
    for variant, seed in itertools.product(suite.of.variants, suite.of.seeds):
        if stages := suite.read_results(variant, seed).values():
            found = {k: x for stage in stages for k, x in stage["numbers"].items()}
            found[FORMULA] = flops[suite.of.baseline] / flops[variant]
            base = suite.read_results(suite.of.baseline, seed).values()
            rates = [x["numbers"][UPDATE] for x in base if UPDATE in x["numbers"]]
            found |= {SPEED: rates[0] / found[UPDATE]} if rates and found.get(UPDATE) else {}
            numbers.setdefault(variant, {})[seed] = found
    return numbers


def make_table(
    suite: Suite, numbers: Numbers, columns: Sequence[str], first: str
) -> list[list[str]]:
    """Returns the means next to the paper's; with `first`, the differences from the baseline.

    Variants that start from the same run are paired by seed: seeds differ more than variants.
    """
    rows, base = [[first, *(x.replace("_", " ") for x in columns)]], suite.of.baseline
    for name in suite.of.variants:
        is_paired = suite.find_source(name) == suite.find_source(base) is not None
        cells = []
        for column in columns:
            one, other = (
                {seed: x[column] for seed, x in numbers.get(y, {}).items() if column in x}
                for y in (name, base)
            )
            samples = [[*one.values()], *([[*other.values()]] if first else [])]
            if first and is_paired:
                samples = [[one[seed] - other[seed] for seed in one if seed in other]]
            cells.append(describe(column, samples, bool(first)) if all(samples) else "")
        rows += [[name, *cells]] if not first or name != base else []
        if not first and (paper := suite.of.paper.get(name)):
            cells = [format_number(x, paper[x]) if x in paper else "" for x in columns]
            rows.append([f"paper: {suite.of.paper_names.get(name, name)}", *cells])
    return rows


def describe(column: str, samples: Sequence[Sequence[float]], is_difference: bool) -> str:
    mean, margin, size = estimate(*samples)
    text = format_number(column, mean)
    if column not in (PARAMETERS, FORMULA):  # the same for each seed
        text += f"{f' ± {format_number(column, margin)}' if margin is not None else ''} (n={size})"
    if is_difference:
        text = f"{'+' if mean >= 0 else '-'}{text.lstrip('-')}"
        text += "" if margin is not None and abs(mean) > margin else ": not clear"
    return text


def format_number(column: str, value: float) -> str:
    formats = {PARAMETERS: f"{value / 1e6:.2f} M", "updates": f"{value:,.0f}"}
    formats |= dict.fromkeys((SPEED, FORMULA), f"{value:.2f}")
    is_plain = column.endswith(("loss", "seconds"))  # other columns are shares
    return formats.get(column, f"{value:.3f}" if is_plain else f"{100 * value:.1f}")


def write_report(suite: Suite) -> None:
    numbers, of = collect(suite), suite.of
    require(bool(numbers), f"{suite.name} has no results yet: --data_dir runs it.")
    found = [*of.paper.values(), *(y for x in numbers.values() for y in x.values())]
    known = {*itertools.chain.from_iterable(found)}
    columns = [column for column in of.columns if column in known]
    parts = [f"# {of.title}", of.question]
    compared = [x for x in columns if x not in (PARAMETERS, FORMULA)]
    tables = {"Means": make_table(suite, numbers, columns, "")}
    tables["Differences"] = make_table(suite, numbers, compared, f"above {of.baseline}")
    for title, (head, *rows) in tables.items():
        lines = [" | ".join(x.replace("|", "\\|") for x in row) for row in (head, *rows)]
        lines.insert(1, " | ".join(["---"] * len(head)))
        parts += ["\n".join([f"## {title}\n", *(f"| {x} |" for x in lines)])] if rows else []
    prefix = os.path.join(suite.output, suite.name)
    pictures = sorted(glob.glob(f"{glob.escape(prefix)}-*.svg"))
    parts += [f"![{x[len(prefix) + 1 : -4]}]({os.path.basename(x)})" for x in pictures]
    every = [suite.read_results(*x) for x in itertools.product(of.variants, of.seeds)]
    stages = [stage for run in every for stage in run.values()]
    ends, hours = sorted(x["ended"] for x in stages), sum(x["cpu_seconds"] for x in stages) / 3600
    machines = "; ".join(sorted({x["machine"] for x in stages}))
    count = f"{sum(map(len, numbers.values()))} of {len(every)} runs, {hours:.1f} CPU hours"
    parts.append(f"{count}, on {machines}, {ends[0]} to {ends[-1]}.")
    Path(f"{prefix}.md").write_text("\n\n".join(filter(None, parts)) + "\n")


def main() -> str | None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("suite", "data_dir", "output_dir", "results_dir"):
        parser.add_argument(f"--{name}", required=name in ("suite", "output_dir"))
    parser.add_argument("--dry_run", action="store_true")
    given = parser.parse_args()
    try:
        suite = Suite(given.suite, given.data_dir, given.output_dir, given.results_dir)
        if given.data_dir:
            suite.run(given.dry_run)
        if not given.dry_run:
            write_report(suite)
    except UserError as error:
        return f"run_suite.py: {error}"
    return None


if __name__ == "__main__":
    sys.exit(main())
