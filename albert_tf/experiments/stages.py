"""The stages of a run: which programs make each, and the numbers that it gives.

A stage has a hash of everything that its numbers depend on. So a number is taken from the file of
results if its hash is there, on whatever machine it was made.
"""

import dataclasses
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from albert_tf import config_io, files, run_files, settings
from albert_tf.experiments.data import Data, Records, digest
from albert_tf.experiments.suite import Suite, override
from albert_tf.kinds import task_table
from albert_tf.plan import costs
from albert_tf.train import reports, run_folder
from albert_tf.train_config import PretrainConfig

RATE, PRETRAINING, EVALUATION, PAIRS = "rate", "pretraining", "evaluation", "minimal_pairs"
# To be increased when the programs give other numbers for the same settings.
_FORMAT = 2
_NOT_COUNTED = settings.list_host_fields(PretrainConfig)
_NOT_COUNTED -= {"eval_steps", "max_eval_examples", "stop_at_step"}


class Run(NamedTuple):
    """A run of a suite; its files have another folder if a setting or the data change."""

    variant: str
    seed: int
    folder: str
    config: PretrainConfig
    records: Records


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stage:
    """A stage of a run.

    Attributes:
        name: of the stage; of a task that of the task.
        settings: hash of the settings that decide on its numbers.
        data: hash of the data; empty if they are not at hand.
        records: those that it reads.
        commands: programs of bin/ and their flags.
        read: returns the numbers from the files that the programs left, given their CPU seconds.
    """

    name: str
    settings: str
    data: str
    records: Sequence[Records]
    commands: Sequence[tuple[str, Sequence[str]]]
    read: Callable[[Sequence[float]], dict[str, Any]]


def make_name(variant: str, seed: int) -> str:
    """Returns a name for the files of a run: letters, digits and dashes."""
    words = "".join(c if c.isalnum() else " " for c in variant).split()
    return f"{'-'.join(words).lower()}.seed-{seed}"


def make_run(
    suite: Suite,
    variant: str,
    seed: int,
    data: Data,
    work_dir: str,
    *,
    source: Run | None = None,
) -> Run:
    """Returns a run, whose files are in `work_dir`; `source` is the run that it starts from."""
    config = suite.make_config(variant, seed)
    records = data.find_records(config, suite.variants[variant].records)
    before = source and os.path.basename(source.folder)
    name = digest(_list_counted(config), records.settings, records.data, before)
    folder = os.path.join(work_dir, suite.name, make_name(variant, seed), name)
    return Run(variant, seed, folder, config, records)


def _list_counted(config: PretrainConfig) -> dict[str, Any]:
    """Returns the fields on which the weights of a run depend, where they are not the default.

    So a new field leaves the results of older runs valid.
    """
    default = run_folder.flatten(config_io.to_dict(PretrainConfig()))
    values = run_folder.flatten(config_io.to_dict(config))
    return {
        name: value
        for name, value in values.items()
        if value != default[name] and name not in _NOT_COUNTED
    }


def make_rate(run: Run, rate_steps: tuple[int, int]) -> Stage:
    """Returns the stage that measures the CPU seconds of an update."""
    commands = []
    folders = [os.path.join(run.folder, f"{RATE}-{steps}") for steps in rate_steps]
    for steps, folder in zip(rate_steps, folders, strict=True):
        # One example to evaluate: of all, it takes longer than the updates.
        config = dataclasses.replace(
            run.config,
            num_train_steps=steps,
            num_warmup_steps=1,
            steps_per_loop=10,
            eval_steps=0,
            eval_batch_size=1,
            max_eval_examples=1,
        )
        commands.append(_pretrain(config, run.records, folder))
    few, many = rate_steps

    def read(cpu_seconds: Sequence[float]) -> dict[str, Any]:
        for folder in folders:  # checkpoints that nobody needs
            shutil.rmtree(folder, ignore_errors=True)
        return {
            "parameters": costs.count_trained_parameters(run.config),
            "update_cpu_seconds": (cpu_seconds[1] - cpu_seconds[0]) / (many - few),
        }

    config = dataclasses.replace(run.config, seed=0, num_train_steps=100, num_warmup_steps=1)
    return Stage(
        name=RATE,
        settings=digest(_FORMAT, RATE, _list_counted(config), run.records.settings),
        data=run.records.data,
        records=[run.records],
        commands=commands,
        read=read,
    )


def make_pretraining(
    run: Run, source: tuple[Run, Stage] | None = None, *, grows: bool = False
) -> Stage:
    """Returns the stage that trains a run.

    `source` is the run whose weights it starts from, if there is one, and its stage. With `grows`
    the run is larger than that; else it goes on with the same model.
    """
    workdir = _find_workdir(run)
    updates, start = run.config.last_step, []
    if source:
        flag = "grow_from" if grows else "continue_from"
        start = [f"--{flag}={_find_workdir(source[0])}"]
        updates -= 0 if grows else source[0].config.last_step

    def read(cpu_seconds: Sequence[float]) -> dict[str, Any]:
        records = reports.read(workdir)
        evaluations = [x for x in records if any(name.startswith("eval_") for name in x)]
        return {
            "parameters": costs.count_trained_parameters(run.config),
            "updates": updates,
            "update_cpu_seconds": sum(cpu_seconds) / updates,
            "curve": [
                {name.removeprefix("eval_"): value for name, value in x.items()}
                for x in evaluations
            ],
        }

    begins = source and [grows, source[1].settings]
    data = digest(run.records.data, source and source[1].data)
    return Stage(
        name=PRETRAINING,
        settings=digest(_FORMAT, _list_counted(run.config), run.records.settings, begins),
        data=data if run.records.data else "",
        records=[run.records],
        commands=[_pretrain(run.config, run.records, workdir, start)],
        read=read,
    )


def _pretrain(
    config: PretrainConfig, records: Records, workdir: str, start: Sequence[str] = ()
) -> tuple[str, list[str]]:
    flags = [
        f"--output_dir={workdir}",
        f"--train_files={records.folder}/train-*",
        f"--eval_files={records.folder}/eval-*",
        *start,
        *(f"--set={x}" for x in override(config_io.to_dict(config))),
    ]
    return "run_pretraining", flags


def _find_workdir(run: Run) -> str:
    return os.path.join(run.folder, PRETRAINING)


def _find_checkpoint(run: Run) -> str:
    return f"{_find_workdir(run)}/model.ckpt-{run.config.last_step}"


def has_checkpoint(run: Run) -> bool:
    """Returns whether the run has been trained to its end on this machine."""
    return os.path.exists(f"{_find_checkpoint(run)}.index")


def make_evaluation(run: Run, pretraining: Stage, suite: Suite, data: Data) -> Stage:
    """Returns the stage that evaluates a run on held-out records."""
    held_out = {
        name: data.find_records(run.config, {"sentence_task": "sop", **changes})
        for name, changes in suite.held_out.items()
    }
    outputs = {name: os.path.join(run.folder, f"{EVALUATION}-{name}.json") for name in held_out}
    commands: list[tuple[str, Sequence[str]]] = []
    for name, records in held_out.items():
        flags = [
            f"--checkpoint={_find_checkpoint(run)}",
            f"--eval_files={records.folder}/eval-*",
            f"--output={outputs[name]}",
            *(["--layer_distances"] if suite.layer_distances and not commands else []),
        ]
        commands.append(("evaluate_pretraining", flags))

    def read(cpu_seconds: Sequence[float]) -> dict[str, Any]:
        del cpu_seconds
        numbers: dict[str, Any] = {}
        for name, records in held_out.items():
            task = records.config.sentence_task
            results = files.read_json(outputs[name], EVALUATION)
            [values] = (x for name, x in results.items() if name.startswith(task))
            values.pop("files")
            numbers |= {f"{name}_{measure}": value for measure, value in values.items()}
            numbers |= results.get("layer_distances", {})
        return numbers

    keys = [(name, records.settings) for name, records in held_out.items()]
    datas = [records.data for records in held_out.values()]
    return Stage(
        name=EVALUATION,
        settings=digest(pretraining.settings, keys, suite.layer_distances),
        data=digest(pretraining.data, datas) if pretraining.data else "",
        records=list(held_out.values()),
        commands=commands,
        read=read,
    )


def make_pairs(run: Run, pretraining: Stage, suite: Suite, data: Data) -> Stage:
    """Returns the stage that finds how often a run prefers the correct one of two sentences."""
    paths, content = data.find_files(suite.minimal_pairs)
    output = os.path.join(run.folder, f"{PAIRS}.json")
    flags = [
        f"--checkpoint={_find_checkpoint(run)}",
        f"--minimal_pairs={','.join(paths)}",
        f"--max_pairs={suite.max_pairs}",
        f"--output={output}",
    ]

    def read(cpu_seconds: Sequence[float]) -> dict[str, Any]:
        del cpu_seconds
        results = files.read_json(output, EVALUATION)[PAIRS]
        fields = {f"{PAIRS}_{name}": x["accuracy"] for name, x in results["field"].items()}
        return {PAIRS: results["accuracy"], **fields}

    return Stage(
        name=PAIRS,
        settings=digest(pretraining.settings, suite.minimal_pairs, suite.max_pairs),
        data=digest(pretraining.data, content) if pretraining.data else "",
        records=[],
        commands=[("evaluate_pretraining", flags)],
        read=read,
    )


def make_task(run: Run, pretraining: Stage, suite: Suite, task: str, data: Data) -> Stage:
    """Returns the stage that fine-tunes a run on a task, and scores it on dev."""
    settings = suite.tasks[task]
    values = {**settings.set, "seed": run.seed}
    workdir = os.path.join(run.folder, f"{task}-{digest(values)}")
    cache_dir = os.path.join(os.path.dirname(os.path.dirname(run.folder)), "cache")
    flags = [
        *data.list_task_flags(task, settings),
        f"--init_checkpoint={_find_workdir(run)}",
        f"--output_dir={workdir}",
        f"--cache_dir={cache_dir}",
        "--recipe=none",
        *(f"--set={x}" for x in override(values)),
    ]

    def read(cpu_seconds: Sequence[float]) -> dict[str, Any]:
        del cpu_seconds
        name = run_files.metrics_file("dev")
        metrics: Mapping[str, float] = files.read_sealed(os.path.join(workdir, name), name)[
            "metrics"
        ]
        best = task_table.get(task).best_by
        return {task: metrics[best], **{f"{task}_{name}": x for name, x in metrics.items()}}

    return Stage(
        name=task,
        settings=digest(pretraining.settings, task, values, settings.train_file, settings.dev_file),
        data=digest(pretraining.data, data.identify_task(task, settings))
        if pretraining.data
        else "",
        records=[],
        commands=[("run_finetuning", flags)],
        read=read,
    )
