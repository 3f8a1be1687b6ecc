"""GLUE in one go: each task of --data_dir once, MNLI first, then a table of all."""

import dataclasses
import json
import os
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf import config_io, files
from albert_tf.checkpoints import formats
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.data_prep.task_data import glue
from albert_tf.errors import UserError
from albert_tf.kinds import task_table
from albert_tf.pipelines import finetuning_program
from albert_tf.pipelines.finetuning_arguments import MODES, Arguments
from albert_tf.pipelines.finetuning_program import Job
from albert_tf.run_files import GLUE_SCORES, GLUE_TASK, SUMMARY, metrics_file
from albert_tf.tasks import glue_scores, recipes
from albert_tf.train import devices, multi_worker

_MNLI, _AX = "mnli", "ax"


def run(arguments: Arguments) -> bool:
    """Runs the tasks that are not finished, and prints the medians of all over their seeds.

    A task's runs are in its folder of `workdir`; the table is there as `glue.json`, too. Returns
    whether it came to its end, and was not interrupted. Raises `UserError` if there is no task, or
    a mistake in the data of one: before any is trained.
    """
    missing = find_missing(arguments)
    names = [name for name in glue_scores.TASKS if name not in missing]
    names.sort(key=lambda name: name != _MNLI)  # others start from it
    for name, reason in missing.items():
        logging.info(f"without {name}: {reason}")
    if not names:
        raise UserError(
            f"--data_dir: {arguments.data.source.data_dir} holds no task of GLUE as a whole "
            f"({next(iter(missing.values()))}). Name the folder into which GLUE was unpacked."
        )
    jobs = _make_jobs(arguments, names)
    strategy = devices.choose_strategy(tpu=arguments.tpu_name if arguments.tpu else None)
    with multi_worker.together(strategy):
        contents = {name: _describe(job) for name, job in jobs.items()}
        for number, name in enumerate(names, 1):
            logging.info(f"glue: {name}, {number} of {len(names)} tasks")
            start = _find_start(arguments, name, names)
            content = {**contents[name], "start": start}
            if not _run_task(_restart(jobs[name], start), strategy, content):
                return False
        if "eval" in arguments.mode and devices.is_chief(strategy):
            _print_scores(arguments, jobs, missing)
    return True


def find_missing(arguments: Arguments) -> dict[str, str]:
    """Returns {task: why} of the tasks of which --data_dir lacks a file that the modes read."""
    data_dir, missing = arguments.data.source.data_dir, {}
    assert data_dir
    for name in glue_scores.TASKS:
        modes = {*arguments.mode, "eval"} if "train" in arguments.mode else arguments.mode
        splits = [x for mode in modes for x in task_table.split_halves(name, MODES[mode])]
        layout = glue.LAYOUTS[name]
        paths = [os.path.join(layout.folder, layout.files[split]) for split in sorted(splits)]
        lacking = [x for x in paths if not tf.io.gfile.exists(os.path.join(data_dir, x))]
        if lacking:
            missing[name] = f"--data_dir has no {lacking[0]}"
    return missing


def _select(arguments: Arguments, name: str, start: str | None, **changes: Any) -> Arguments:
    """The arguments of one task."""
    return dataclasses.replace(
        arguments,
        data=dataclasses.replace(arguments.data, task=name),
        workdir=os.path.join(arguments.workdir, name),
        mnli_checkpoint=None,
        init_checkpoint=start,
        **changes,
    )


def _make_jobs(arguments: Arguments, names: list[str]) -> dict[str, Job]:
    """The jobs; those that will start from a model of MNLI that is not there yet, without it."""
    read: dict[str | None, ModelCheckpoint | None] = {None: None}
    jobs = {}
    for name in names:
        start = arguments.init_checkpoint
        if name in recipes.FROM_MNLI and arguments.mnli_checkpoint:
            start = arguments.mnli_checkpoint
        if "train" in arguments.mode and start not in read:
            assert start
            read[start] = formats.read(start)
        one = _select(arguments, name, start)
        jobs[name] = finetuning_program.make_job(one, read.get(start))
    return jobs


def _find_start(arguments: Arguments, name: str, names: list[str]) -> str | None:
    """The checkpoint from which a task starts."""
    if name not in recipes.FROM_MNLI or "train" not in arguments.mode:
        return arguments.init_checkpoint
    if arguments.mnli_checkpoint:
        return arguments.mnli_checkpoint
    if _MNLI not in names:
        logging.info(f"{name} starts as other tasks do: there is no model of MNLI for it.")
        return arguments.init_checkpoint
    folder = os.path.join(arguments.workdir, _MNLI)
    if arguments.num_seeds == 1:
        return folder
    best = files.read_sealed(os.path.join(folder, SUMMARY), "summary of MNLI")["best_seed"]
    return os.path.join(folder, f"seed-{best}")


def _restart(job: Job, start: str | None) -> Job:
    arguments = job.arguments
    if start == arguments.init_checkpoint:
        return job
    return finetuning_program.make_job(dataclasses.replace(arguments, init_checkpoint=start))


def _describe(job: Job) -> dict[str, Any]:
    """All that a finished job depends on; prepares its data, if it trains."""
    if job.config is None:
        return {}
    datasets, _ = finetuning_program.prepare_datasets(job)
    arguments = job.arguments
    return {
        "mode": list(arguments.mode),
        "num_seeds": arguments.num_seeds,
        "config": config_io.to_dict(job.config),
        "data": {split: dataset.description for split, dataset in datasets.items()},
    }


def _run_task(job: Job, strategy: tf.distribute.Strategy, content: dict[str, Any]) -> bool:
    """Runs a task unless it is finished; returns whether it is now.

    Raises `UserError` if its folder has runs that started from another checkpoint.
    """
    arguments = job.arguments
    path = os.path.join(arguments.workdir, GLUE_TASK)
    if job.config:
        before = _read_content(path)
        if before and before.get("start") != content["start"]:
            raise UserError(
                f"{arguments.workdir} started from {before.get('start')}, not from "
                f"{content['start']}. Take another --workdir, or the same checkpoint."
            )
        same = before == json.loads(files.to_json({**content, "is_finished": True}))
        if same and all(map(tf.io.gfile.exists, _list_metrics(job))):
            logging.info(f"{arguments.data.task} is finished: {path}")
            return True
        _write_content(path, {**content, "is_finished": False}, strategy)
    if not finetuning_program.run_job(job, strategy):
        return False
    if arguments.data.task == _MNLI and "predict" in arguments.mode:
        _predict_diagnostic(arguments, strategy)
    if job.config:
        _write_content(path, {**content, "is_finished": True}, strategy)
    return True


def _read_content(path: str) -> dict[str, Any]:
    """What a task's file says; nothing if there is none."""
    content = files.read_sealed(path, GLUE_TASK) if tf.io.gfile.exists(path) else {}
    if not isinstance(content, dict):
        raise UserError(f"{path} does not hold a JSON object: it is damaged. Remove it.")
    return content


def _write_content(path: str, content: dict[str, Any], strategy: tf.distribute.Strategy) -> None:
    if devices.is_chief(strategy):
        files.make_folders(os.path.dirname(path))
        files.write_sealed(path, content)


def _predict_diagnostic(arguments: Arguments, strategy: tf.distribute.Strategy) -> None:
    layout = glue.LAYOUTS[_AX]
    name = os.path.join(layout.folder, layout.files["test"])
    if tf.io.gfile.exists(os.path.join(arguments.data.source.data_dir or "", name)):
        data = dataclasses.replace(arguments.data, task=_AX)
        one = dataclasses.replace(arguments, data=data, mode=("predict",))
        finetuning_program.run_job(finetuning_program.make_job(one), strategy)


def _list_metrics(job: Job) -> list[str]:
    """The metrics files of all runs of a job."""
    task = job.arguments.data.task
    splits = task_table.split_halves(task, "dev") if "eval" in job.arguments.mode else ()
    return [os.path.join(path, metrics_file(x)) for path in job.workdirs for x in splits]


def _print_scores(arguments: Arguments, jobs: dict[str, Job], missing: dict[str, str]) -> None:
    rows = {}
    for name, job in jobs.items():
        folders: dict[str, list[str]] = {}
        for path in _list_metrics(job):
            folders.setdefault(os.path.dirname(path), []).append(path)
        runs = [glue_scores.read(paths)[name] for paths in folders.values()]
        content = _read_content(os.path.join(job.arguments.workdir, GLUE_TASK))
        rows[name] = glue_scores.Row(content.get("start"), runs)
    ordered = {name: rows[name] for name in glue_scores.TASKS if name in rows}
    path = os.path.join(arguments.workdir, GLUE_SCORES)
    contents = {name: row.describe() for name, row in ordered.items()}
    files.write_json(path, {"tasks": contents, "missing": missing})
    print("\n".join(glue_scores.tabulate(ordered)))
    logging.info(f"the scores are in {path}")
