"""The commands that trained a run: one line each in `commands.jsonl` in its folder."""

import datetime
import json
import os
import platform
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf import files, processes, provenance
from albert_tf.run_files import COMMANDS

_KEYS = {"command", "began", "ended", "finished", "versions", "machine"}


def begin(workdir: str, devices: str) -> dict[str, Any]:
    """Adds this process's command, with time, versions and devices; returns the record.

    If the process is killed, `ended` stays null.
    """
    # Not by package name: TensorFlow has several, such as `tensorflow-tpu`.
    versions = {module.__name__: module.__version__ for module in (tf, keras, np)}
    record = {
        "command": provenance.describe_command(),
        "began": _get_time(),
        "ended": None,
        "finished": False,
        "versions": {"python": platform.python_version(), **versions},
        "machine": f"{devices}, {processes.count_cores()} cores, {platform.machine()}",
    }
    _write(workdir, [*read(workdir), record])
    return record


def end(workdir: str, record: dict[str, Any], *, finished: bool, cpu_seconds: float) -> None:
    """Records that the last command has ended, and whether the run is finished."""
    ended = {**record, "ended": _get_time(), "finished": finished}
    ended["cpu_seconds"] = round(cpu_seconds, 1)
    _write(workdir, [*read(workdir)[:-1], ended])


def read(workdir: str) -> list[dict[str, Any]]:
    """Returns the records; empty if there is no file, as in a copy of a run."""
    return [x for x in files.read_log(workdir, COMMANDS) if x.keys() >= _KEYS]


def _write(workdir: str, records: list[dict[str, Any]]) -> None:
    lines = "".join(json.dumps(record) + "\n" for record in records)
    files.write_bytes(os.path.join(workdir, COMMANDS), lines.encode())


def _get_time() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
