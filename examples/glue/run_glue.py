#!/usr/bin/env python3
"""Fine-tunes on the GLUE tasks with several seeds, using the programs in bin/; writes a table.

    .venv/bin/python examples/glue/run_glue.py --data_dir=glue --init_checkpoint=albert_base \\
        --output_dir=glue_suite --seeds 1 2 3 --dry_run

Further flags go to each bin/run_finetuning. A successful command is not run again, and an
interrupted one resumes. --dry_run prints the remaining commands.
"""

import argparse
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from albert_tf import files, run_record
from albert_tf.errors import UserError, require
from albert_tf.run_files import SplitMetrics

BIN = Path(__file__).resolve().parents[2] / "bin"
# {task: its folder in --data_dir}, in the order of the leaderboard; AX is not in the average.
FOLDERS = {"cola": "CoLA", "sst-2": "SST-2", "mrpc": "MRPC", "sts-b": "STS-B", "qqp": "QQP"}
FOLDERS |= {"mnli": "MNLI", "qnli": "QNLI", "rte": "RTE", "wnli": "WNLI"}
HALVES = {"mnli": ("", "_mismatched")}
# Tasks that start from an MNLI model in the paper (section 4.1), if there is one.
FROM_MNLI = ("mrpc", "sts-b", "rte")
# The metric that selects the seed; for other tasks, accuracy.
BEST_BY = {"cola": "matthews", "sts-b": "pearson"}


class Suite(NamedTuple):
    """What is run; `flags` are passed to each bin/run_finetuning.

    Attributes:
        init_checkpoint: the start of all tasks; None: new weights.
        mnli_checkpoint: an MNLI model to use instead of training one.
    """

    data_dir: Path
    output: Path
    seeds: Sequence[int]
    flags: Sequence[str] = ()
    init_checkpoint: str | None = None
    mnli_checkpoint: str | None = None
    is_dry: bool = False

    def list_tasks(self, named: Sequence[str]) -> list[str]:
        """Returns the tasks in --data_dir, or the given ones among them."""
        chosen = [name for name in FOLDERS if name in named or not named]
        tasks = [name for name in chosen if (self.data_dir / FOLDERS[name]).is_dir()]
        for name in chosen:
            if name not in tasks:
                print(f"without {name}: {self.data_dir} has no {FOLDERS[name]}", file=sys.stderr)
        require(bool(tasks), f"--data_dir: {self.data_dir} has none of these tasks.")
        return tasks

    def find_run(self, task: str, seed: int) -> Path:
        return self.output / task / f"seed-{seed}"

    def has_test(self, task: str) -> bool:
        folder = self.data_dir / FOLDERS[task]
        return (folder / ("test_matched.tsv" if task in HALVES else "test.tsv")).exists()

    def train(self, task: str, start: str | None) -> None:
        """Runs a task with each seed; the best MNLI model then predicts the diagnostic set, AX."""
        common = [f"--data_dir={self.data_dir}", f"--cache_dir={self.output}/cache"]
        mode = "--mode=train,eval,predict" if self.has_test(task) else "--mode=train,eval"
        for seed in self.seeds:
            run = self.find_run(task, seed)
            words = [f"--task={task}", mode, *common, f"--output_dir={run}"]
            words += [f"--init_checkpoint={start}"] if start else []
            words += [*self.flags, f"--set=seed={seed}"]
            self.run(f"{task}-seed-{seed}", "run_finetuning", words, run / "glue_command.txt")
        if task == "mnli" and (self.data_dir / "diagnostic/diagnostic.tsv").exists():
            run = self.find_run(task, self.find_best(task))
            words = ["--task=ax", "--mode=predict", *common, f"--output_dir={run}"]
            self.run("ax", "run_finetuning", words, run / "ax_command.txt")

    def read_metrics(self, task: str, seed: int) -> dict[str, float]:
        """Returns a run's dev scores, {"SPLIT METRIC": score}."""
        scores = {}
        for half in HALVES.get(task, ("",)):
            path = self.find_run(task, seed) / f"metrics-dev{half}.json"
            content = files.read_as(str(path), SplitMetrics)
            scores |= {f"dev{half} {name}": x for name, x in content["metrics"].items()}
        return scores

    def find_best(self, task: str) -> int:
        """Returns the best seed on dev, or the first one if nothing was run yet."""
        name = f"dev {BEST_BY.get(task, 'accuracy')}"
        ended = [x for x in self.seeds if (self.find_run(task, x) / "metrics-dev.json").exists()]
        scores = {seed: self.read_metrics(task, seed)[name] for seed in ended}
        return max(scores, key=lambda seed: scores[seed]) if scores else self.seeds[0]

    def run(self, name: str, program: str, words: Sequence[str], done: Path | None = None) -> None:
        """Runs a program, unless the file `done` says that the same command has succeeded."""
        text = shlex.join([f"bin/{program}", *words])
        if done and done.exists() and done.read_text() == text:
            return
        print(text, flush=True)
        if self.is_dry:
            return
        log = self.output / f"logs/{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "ab") as file:
            command = [sys.executable, str(BIN / program), *words]
            ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        if ended.returncode:
            last = log.read_text(errors="replace").strip().rpartition("\n")[2]
            raise UserError(f"{name}: {last or ended.returncode} (log: {log})")
        if done:
            done.write_text(text)

    def submit(self, tasks: Sequence[str], *, averages: bool) -> None:
        """Creates the leaderboard's archive from the best seeds, or averages over all seeds."""
        files = []
        for task, name in self.list_tests(tasks):
            path = self.find_run(task, self.find_best(task)) / name
            if averages and not name.endswith("-ax.json"):  # there is only one
                seeds = ",".join(f"{self.find_run(task, seed)}/{name}" for seed in self.seeds)
                path = self.output / task / name
                words = [f"--predictions={seeds}", f"--output={path}"]
                self.run(f"average-{task}-{path.stem}", "score", ["ensemble", *words])
            files.append(str(path))
        if files:
            words = [f"--predictions={','.join(files)}", f"--output_dir={self.output}/submission"]
            self.run("submission", "score", ["submission", *words])

    def list_tests(self, tasks: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yields the task and the name of each predictions file for a test set."""
        for task in tasks:
            for half in HALVES.get(task, ("",)) if self.has_test(task) else ():
                yield task, f"predictions-test{half}.json"
        if "mnli" in tasks and (self.data_dir / "diagnostic/diagnostic.tsv").exists():
            yield "mnli", "predictions-test-ax.json"

    def write_table(self, tasks: Sequence[str]) -> str:
        """Writes the medians over the seeds, and their average, to `glue.md`; returns them."""
        lines = ["| task | starts from | runs | median | best seed |", "|---|---|---|---|---|"]
        medians: dict[str, dict[str, float]] = {}
        for task in sorted(tasks, key=[*FOLDERS].index):
            runs = [self.read_metrics(task, seed) for seed in self.seeds]
            medians[task] = {x: statistics.median(run[x] for run in runs) for x in runs[0]}
            first = run_record.read(str(self.find_run(task, self.seeds[0]))).start
            start = (first and first.checkpoint) or "random weights"
            numbers = ", ".join(f"{name} {score:.4g}" for name, score in medians[task].items())
            cells = [task, start, str(len(runs)), numbers, str(self.find_best(task))]
            lines.append(f"| {' | '.join(cells)} |")
        text = "\n".join([*lines, "", describe_average(medians), ""])
        (self.output / "glue.md").write_text(text)
        return text


def describe_average(scores: Mapping[str, Mapping[str, float]]) -> str:
    """Returns the leaderboard's average x 100: the mean over tasks of each task's mean metric."""
    mean = 100 * statistics.fmean(statistics.fmean(x.values()) for x in scores.values())
    missing = [task for task in FOLDERS if task not in scores]
    without = f" without {', '.join(missing)}" if missing else ""
    return f"average of {len(scores)} tasks{without}: {mean:.1f}"


def run_all(suite: Suite, named: Sequence[str], *, averages: bool) -> None:
    tasks = suite.list_tasks(named)
    for task in sorted(tasks, key=lambda task: task != "mnli"):  # others start from it
        start = suite.init_checkpoint
        if task in FROM_MNLI and "mnli" in tasks:
            start = str(suite.find_run("mnli", suite.find_best("mnli")))
        if task in FROM_MNLI and suite.mnli_checkpoint:
            start = suite.mnli_checkpoint
        suite.train(task, start)
    suite.submit(tasks, averages=averages)
    if not suite.is_dry:
        print(suite.write_table(tasks), end="")


def main() -> str | None:
    summary = str(__doc__).partition("\n")[0]
    parser = argparse.ArgumentParser(description=summary, allow_abbrev=False)
    for name, text in {
        "data_dir": "folder with the unpacked GLUE",
        "output_dir": "folder of the runs, the table and the submission",
        "init_checkpoint": "weights to start from",
        "mnli_checkpoint": "MNLI model to use instead of training one",
    }.items():
        parser.add_argument(f"--{name}", required=name in ("data_dir", "output_dir"), help=text)
    parser.add_argument("--tasks", nargs="+", choices=FOLDERS, default=[], help="default: all")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1], help="default: 1")
    parser.add_argument("--average", action="store_true", help="submit averages over the seeds")
    parser.add_argument("--dry_run", action="store_true", help="print the remaining commands")
    given, flags = parser.parse_known_args()
    suite = Suite(
        Path(given.data_dir),
        Path(given.output_dir),
        given.seeds,
        flags,
        given.init_checkpoint,
        given.mnli_checkpoint,
        given.dry_run,
    )
    try:
        run_all(suite, given.tasks, averages=given.average)
    except UserError as error:
        return f"run_glue.py: {error}"
    return None


if __name__ == "__main__":
    sys.exit(main())
