"""Shows the records of a run in TensorBoard, Weights & Biases, MLflow or trackio: `--tracker`.

Each of them gets what `metrics.jsonl` gets. `trackers.json` in the folder of the run keeps the
names that they have for it: a run that resumes goes on there.
"""

import contextlib
import importlib
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf import config_io, files
from albert_tf.errors import UserError, reason, require_choice
from albert_tf.run_files import TRACKERS
from albert_tf.train import run_folder
from albert_tf.train_config import TrainConfig

PROJECT = "albert"
Track = Callable[[Mapping[str, float]], None]


class Tracker(NamedTuple):
    """One tracker of a run.

    Attributes:
        id: what it goes on by when the run resumes.
        log: takes the metrics of a step, and the step.
        end: takes whether the run has failed.
    """

    id: str | None
    log: Callable[[dict[str, float], int], Any]
    end: Callable[[bool], Any]


def _start_tensorboard(folder: str, _id: str | None, _config: dict[str, Any]) -> Tracker:
    writer = tf.summary.create_file_writer(folder)

    def log(metrics: dict[str, float], step: int) -> None:
        # NumPy's numbers: TensorFlow keeps every number of Python that it has made a tensor of.
        with writer.as_default(step=np.int64(step)):
            for name, value in metrics.items():
                tf.summary.scalar(name, np.float32(value))
        writer.flush()

    return Tracker(None, log, lambda _: writer.close())


def _start_wandb(folder: str, id: str | None, config: dict[str, Any]) -> Tracker:
    import wandb

    id = id or uuid.uuid4().hex[:8]
    project = os.environ.get("WANDB_PROJECT", PROJECT)
    run = wandb.init(project=project, id=id, name=folder, dir=folder, resume="allow", config=config)
    return Tracker(id, run.log, lambda failed: run.finish(exit_code=int(failed)))


def _start_mlflow(folder: str, id: str | None, config: dict[str, Any]) -> Tracker:
    import mlflow

    run = mlflow.start_run(run_id=id, run_name=None if id else folder)
    if id is None:
        mlflow.log_params(config)

    def end(failed: bool) -> None:
        mlflow.end_run("FAILED" if failed else "FINISHED")

    return Tracker(run.info.run_id, mlflow.log_metrics, end)


def _start_trackio(folder: str, id: str | None, config: dict[str, Any]) -> Tracker:
    import trackio

    id = id or f"{os.path.basename(folder.rstrip('/'))}-{uuid.uuid4().hex[:8]}"
    run = trackio.init(project=PROJECT, name=id, resume="allow", config=config)
    return Tracker(id, run.log, lambda _: run.finish())


_STARTS = {
    "tensorboard": _start_tensorboard,
    "wandb": _start_wandb,
    "mlflow": _start_mlflow,
    "trackio": _start_trackio,
}


def check(names: Sequence[str]) -> None:
    """Raises `UserError` for the value of --tracker, if one is unknown or not installed."""
    for name in names:
        require_choice("--tracker", name, list(_STARTS))
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise UserError(
                f"--tracker={name} needs a package ({reason(error)}): pip install {name}"
            ) from None


@contextlib.contextmanager
def tracking(names: Sequence[str], folder: str, config: TrainConfig) -> Iterator[Track]:
    """Yields a function that sends a record, with its `step`, to the trackers.

    They start with the first one. One that fails is named, and the run goes on without it.
    """
    trackers: dict[str, Tracker] = {}
    waiting = list(names)

    def attempt(name: str, use: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return use(*arguments)
        except Exception as error:  # whatever it is: it must not end the run
            trackers.pop(name, None)
            what = f"{type(error).__name__}: {reason(error)}"
            logging.warning(f"--tracker={name} has failed ({what}). The run goes on without it.")
            return None

    def start() -> None:
        path = os.path.join(folder, TRACKERS)
        ids = files.find_object(path, TRACKERS)
        values = run_folder.flatten(config_io.to_dict(config))
        while waiting:
            name = waiting.pop(0)
            if tracker := attempt(name, _STARTS[name], folder, ids.get(name), values):
                trackers[name] = tracker
        new = ids | {name: x.id for name, x in trackers.items() if x.id}
        if new != ids:
            files.write_json(path, new)

    def track(record: Mapping[str, float]) -> None:
        if waiting:
            start()
        metrics = {name: value for name, value in record.items() if name != "step"}
        for name, tracker in list(trackers.items()):
            attempt(name, tracker.log, metrics, int(record["step"]))

    failed = True
    try:
        yield track
        failed = False
    finally:
        for name, tracker in list(trackers.items()):
            attempt(name, tracker.end, failed)
