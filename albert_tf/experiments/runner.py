"""Runs a suite: what is missing of its results, in the order in which it tells most.

A run of a variant and a seed has a folder of work, with checkpoints and logs, and a small file of
results, which is worth keeping. Several processes may run a suite together, on one machine or on
several that share the folders: each takes the next run that nobody works on.
"""

import contextlib
import os
import platform
import time
from pathlib import Path
from typing import Any

from absl import logging
from tqdm import tqdm

from albert_tf import files
from albert_tf.errors import require
from albert_tf.experiments import child, stages
from albert_tf.experiments.data import Data
from albert_tf.experiments.results import Results, round_numbers
from albert_tf.experiments.stages import Run, Stage
from albert_tf.experiments.suite import Suite
from albert_tf.plan import costs

# Operations in a CPU second: the median of our results. Only until a run of a variant has ended.
_GUESSED_RATE = 65e9
_LIMIT = "ONEDNN_MAX_CPU_ISA"


class Runner:
    """Runs the stages of a suite; `work_dir` gets checkpoints and logs, `results` the numbers."""

    def __init__(self, suite: Suite, data: Data, work_dir: str, results: Results) -> None:
        self.suite, self._data, self._work_dir = suite, data, work_dir
        self.results = results

    def run(self) -> None:
        """Runs what is missing; logs what it does, and the time that is left.

        Raises `UserError`, which names its log, if a program failed.
        """
        waiting = self.list_missing()
        begin, done, waits = time.monotonic(), 0.0, False
        while waiting:
            before = len(waiting)
            for variant, seed in list(waiting):
                estimate = self.estimate(variant, seed)
                try:
                    with self._locking(variant, seed, waits):
                        self._run(variant, seed, waits)
                except files.InUseError:
                    continue
                waiting.remove((variant, seed))
                done, waits = done + estimate, False
                left = sum(self.estimate(*other) for other in waiting)
                pace = (time.monotonic() - begin) / done if done else 0.0
                logging.info(
                    "%s: %d of %d runs are to do, about %s left",
                    *(self.suite.name, len(waiting), len(self.suite.list_runs())),
                    tqdm.format_interval(left * pace),
                )
            waits = len(waiting) == before  # others work on what is left

    def describe_plan(self) -> str:
        """Returns what is to be run, and how long it takes, a line each."""
        missing = self.list_missing()
        lines, total = [], 0.0
        for variant, seed in missing:
            run = self.make_run(variant, seed)
            stages_left = ", ".join(self._list_work(run))
            seconds = self.estimate(variant, seed)
            total += seconds
            lines.append(f"{variant}, seed {seed}: {stages_left}: {seconds / 60:.0f} CPU minutes")
        number = len(self.suite.list_runs())
        lines.append(
            f"{self.suite.name}: {len(missing)} of {number} runs are to do, about "
            f"{total / 3600:.1f} CPU hours; {self._work_dir}"
        )
        return "\n".join(lines)

    def make_run(self, variant: str, seed: int) -> Run:
        """Returns a run."""
        source = self._find_source(variant, seed)
        return stages.make_run(self.suite, variant, seed, self._data, self._work_dir, source=source)

    def make_stages(self, run: Run) -> list[Stage]:
        """Returns the stages of a run, in their order."""
        if not self.suite.trains:
            return [stages.make_rate(run, self.suite.rate_steps)]
        pretraining = self._make_pretraining(run)
        made = [pretraining]
        if self.suite.held_out:
            made.append(stages.make_evaluation(run, pretraining, self.suite, self._data))
        if self.suite.minimal_pairs:
            made.append(stages.make_pairs(run, pretraining, self.suite, self._data))
        for task in self.suite.tasks:
            made.append(stages.make_task(run, pretraining, self.suite, task, self._data))
        return made

    def find_results(self, variant: str, seed: int) -> list[dict[str, Any]]:
        """Returns what is known of each stage of a run, without those of which nothing is."""
        run = self.make_run(variant, seed)
        results = [self.results.find(variant, seed, stage) for stage in self.make_stages(run)]
        return [result for result in results if result is not None]

    def find_numbers(self, variant: str, seed: int) -> dict[str, Any]:
        """Returns the numbers of a run that are there."""
        results = self.find_results(variant, seed)
        return {name: value for result in results for name, value in result["numbers"].items()}

    def list_missing(self) -> list[tuple[str, int]]:
        """Returns (variant, seed) of the runs that lack a stage."""
        return [
            (variant, seed)
            for variant, seed in self.suite.list_runs()
            if self._find_missing(self.make_run(variant, seed))
        ]

    def estimate(self, variant: str, seed: int) -> float:
        """Returns CPU seconds of what a run lacks: of like runs, or by the operations it takes.

        Measures nothing: a dry run takes seconds.
        """
        seconds = 0.0
        run = self.make_run(variant, seed)
        for name in self._list_work(run):
            if name == stages.PRETRAINING:
                updates = run.config.last_step - self._count_known_updates(run)
                seconds += updates * self._estimate_update(run)
            elif name == stages.RATE:
                seconds += sum(self.suite.rate_steps) * self._estimate_update(run)
            else:
                known = [
                    x[name]["cpu_seconds"]
                    for x in (self.results.read(*other) for other in self.suite.list_runs())
                    if name in x
                ]
                seconds += sum(known) / len(known) if known else 60.0
        return seconds

    def _list_work(self, run: Run) -> list[str]:
        """Returns the stages that are to run: all, if one has no numbers and needs a checkpoint."""
        missing = self._find_missing(run)
        if missing and self.suite.trains and not stages.has_checkpoint(run):
            missing = self.make_stages(run)
        return [stage.name for stage in missing]

    def _count_known_updates(self, run: Run) -> int:
        source = self._find_source(run.variant, run.seed)
        continues = self.suite.variants[run.variant].continue_from
        return source.config.last_step if source and continues else 0

    def _estimate_update(self, run: Run) -> float:
        for other in [(run.variant, seed) for seed in self.suite.seeds]:
            known = self.results.read(*other).get(stages.PRETRAINING, {}).get("numbers", {})
            if "update_cpu_seconds" in known:
                return known["update_cpu_seconds"]
        return count_flops(run) / _GUESSED_RATE

    def _make_pretraining(self, run: Run) -> Stage:
        if not (before := self._find_source(run.variant, run.seed)):
            return stages.make_pretraining(run)
        grows = self.suite.variants[run.variant].grow_from is not None
        return stages.make_pretraining(run, (before, self._make_pretraining(before)), grows=grows)

    def _find_source(self, variant: str, seed: int) -> Run | None:
        name = self.suite.variants[variant].source
        return self.make_run(name, seed) if name else None

    def _find_missing(self, run: Run) -> list[Stage]:
        found = self.results.find
        return [x for x in self.make_stages(run) if found(run.variant, run.seed, x) is None]

    def _locking(self, variant: str, seed: int, waits: bool) -> contextlib.AbstractContextManager:
        folder = os.path.join(self._work_dir, self.suite.name, stages.make_name(variant, seed))
        return files.locking_folder(folder, waits=waits)

    def _run(self, variant: str, seed: int, waits: bool, needs_checkpoint: bool = False) -> None:
        """Runs the stages of a run that have no numbers, and what they need.

        That is a training without numbers, or whose checkpoint is not on this machine. The weights
        are other ones then, so their numbers are made anew, too.
        """
        run = self.make_run(variant, seed)
        missing = self._find_missing(run)
        if self.suite.trains and (missing or needs_checkpoint) and not self._is_trained(run):
            source = self._find_source(variant, seed)
            if source and not stages.has_checkpoint(source):
                with self._locking(source.variant, source.seed, waits):
                    self._run(source.variant, source.seed, waits, needs_checkpoint=True)
            missing = self.make_stages(run)
        for stage in missing:
            self._run_stage(run, stage)

    def _is_trained(self, run: Run) -> bool:
        known = self.results.find(run.variant, run.seed, self._make_pretraining(run))
        return known is not None and stages.has_checkpoint(run)

    def _run_stage(self, run: Run, stage: Stage) -> dict[str, Any]:
        require(
            self._data.is_at_hand,
            f"{self.suite.name}: {stage.name} of {run.variant!r}, seed {run.seed}, has no "
            "results: name --data_dir to run it.",
        )
        for records in stage.records:
            self._data.prepare(records)
        log = os.path.join(run.folder, f"{stage.name}.log")
        logging.info("%s, seed %d: %s (log: %s)", run.variant, run.seed, stage.name, log)
        begin, is_resumed = time.time(), os.path.exists(log)
        cpu_seconds = [child.run(program, flags, log) for program, flags in stage.commands]
        numbers = round_numbers(stage.read(cpu_seconds))
        if is_resumed and stage.name == stages.PRETRAINING:
            del numbers["update_cpu_seconds"]  # what a killed process used is not known
        values = {
            "numbers": numbers,
            "cpu_seconds": round(sum(cpu_seconds), 1),
            "ended": time.strftime("%Y-%m-%d", time.gmtime(begin)),
            "machine": _describe_machine(),
        }
        self.results.add(run.variant, run.seed, stage, values)
        return numbers


def _describe_machine() -> str:
    """Returns the processor, with the instructions for products: they decide how it rounds."""
    flags: set[str] = set()
    with contextlib.suppress(OSError):  # only Linux has it
        flags = {*Path("/proc/cpuinfo").read_text(encoding="utf-8").split()}
    sets = [x for x in ("avx2", "avx512f", "avx512_bf16", "amx_tile") if x in flags]
    limit = [f"at most {os.environ[_LIMIT]}"] if _LIMIT in os.environ else []
    return ", ".join([platform.machine(), f"{os.cpu_count()} cores", *sets[-1:], *limit])


def count_flops(run: Run) -> float:
    """Returns the floating-point operations of an update, by the formula of `plan/`."""
    return sum(costs.count_flops(run.config, run.config.train_batch_size))
