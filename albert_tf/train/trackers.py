"""Sends a run's metrics to TensorBoard, and with `--tracker` to Weights & Biases or MLflow."""

import contextlib
import importlib.util
import os
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf import config_io, files, run_record
from albert_tf.errors import UserError, reason, require_choice
from albert_tf.run_files import TRACKERS
from albert_tf.train_config import TrainConfig

Track = Callable[[Mapping[str, float]], None]


def check(names: Sequence[str]) -> None:
    """Raises `UserError` if a --tracker is unknown or not installed."""
    for name in names:
        require_choice("--tracker", name, ("wandb", "mlflow"))
        if importlib.util.find_spec(name) is None:
            raise UserError(f"--tracker={name} needs a package: pip install {name}")


@contextlib.contextmanager
def tracking(names: Sequence[str], folder: str, config: TrainConfig) -> Iterator[Track]:
    """Yields a function that sends a record with its `step`; logs and drops trackers that fail."""
    runs: dict[str, tuple[Callable[[bool], Any], Callable[..., Any]]] = {}  # (close, log)
    writer: Any = None

    def attempt(name: str, use: Callable[..., Any], *arguments: Any) -> None:
        try:
            use(*arguments)
        except Exception as error:  # no error of a tracker may end the run
            runs.pop(name, None)
            logging.warning(f"--tracker={name}: {reason(error)}. The run continues without it.")

    def start(name: str) -> None:
        path, module = os.path.join(folder, TRACKERS), importlib.import_module(name)
        ids, values = files.find_object(path, TRACKERS), config_io.to_dict(config)
        if name == "wandb":  # it reads what TensorBoard's writer writes
            id, project = ids.get(name, uuid.uuid4().hex[:8]), os.environ.get("WANDB_PROJECT")
            options = {"dir": folder, "name": folder, "resume": "allow", "config": values}
            run = module.init(project=project or "albert", id=id, sync_tensorboard=True, **options)
            runs[name] = lambda failed: run.finish(exit_code=int(failed)), lambda *_: None
        else:
            id = module.start_run(run_id=ids.get(name), run_name=folder).info.run_id
            states = ("FINISHED", "FAILED")
            runs[name] = lambda failed: module.end_run(states[failed]), module.log_metrics
            if name not in ids:
                module.log_params(run_record.flatten(values))
        files.write_json(path, {**ids, name: id})

    def track(record: Mapping[str, float]) -> None:
        nonlocal writer
        for name in names if writer is None else ():
            attempt(name, start, name)
        writer = writer or tf.summary.create_file_writer(folder)
        metrics, step = {k: x for k, x in record.items() if k != "step"}, int(record["step"])
        with writer.as_default(step=np.int64(step)):
            for name, value in metrics.items():
                tf.summary.scalar(name, np.float32(value))  # TensorFlow would keep Python numbers
        writer.flush()
        for name, (_, log) in [*runs.items()]:
            attempt(name, log, metrics, step)

    try:
        yield track
    finally:
        if writer:
            writer.close()
        for name, (end, _) in [*runs.items()]:
            attempt(name, end, sys.exc_info()[0] is not None)
