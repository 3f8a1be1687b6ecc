"""Quantises and runs models in `.venv-int8`, the environment of OpenVINO and NNCF.

Their NumPy and that of TensorFlow need not be one.
"""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from albert_tf import children, files
from albert_tf.environments import virtual_environments
from albert_tf.environments.virtual_environments import Environment
from albert_tf.errors import UserError

INT8 = Environment(
    name="int8",
    python_names=("python3.11", "python3.12", "python3", "python3.13", "python3.10"),
    check="import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))",
    needs="Python 3.10 to 3.13 with venv",
    remedy="Install one (Debian: apt install python3-venv), or take bin/export_saved_model "
    "--dtype=bfloat16",
)
_PROGRAM = Path(__file__).with_name("int8_quantizer.py")

Batch = Mapping[str, np.ndarray]


class Result(NamedTuple):
    """What an int8 model did.

    Attributes:
        folder: with model.xml and model.bin, while the context lasts.
        outputs: of each batch, by name.
        seconds: of a request of each shape, and its CPU seconds.
        float32_seconds: the same of the model before; empty if it was int8 already.
    """

    folder: Path
    outputs: list[dict[str, np.ndarray]]
    seconds: list[tuple[float, float]]
    float32_seconds: list[tuple[float, float]]


@contextmanager
def quantizing(
    graph: str,
    calibration: Sequence[Batch],
    batches: Sequence[Batch],
    shapes: Sequence[Sequence[int]],
    *,
    smooth: bool = False,
) -> Iterator[Result]:
    """Yields the int8 model of a SavedModel of token ids, and what it answers.

    Args:
        graph: folder of the SavedModel, `int8_model.save_graph`.
        calibration: what it reads while the ranges of its numbers are measured.
        batches: to answer.
        shapes: of ids, to time.
        smooth: whether outliers are moved into the weights, of each layer its own then.

    Raises `UserError` if the environment cannot be made, or the model cannot be quantised.
    """
    with files.making_temporary_folder("albert-int8") as name:
        folder = Path(name)
        _write_batches(folder / "calibration.npz", calibration)
        yield _run(folder, {"graph": graph, "smooth": smooth, "shapes": shapes}, batches)


def run(model: str, batches: Sequence[Batch], shapes: Sequence[Sequence[int]] = ()) -> Result:
    """Returns what the int8 model in a folder answers; errors as of `quantizing`."""
    with files.making_temporary_folder("albert-int8") as name:
        folder = Path(name)
        for file in ("model.xml", "model.bin"):
            (folder / file).symlink_to(Path(model).resolve() / file)
        return _run(folder, {"graph": None, "smooth": False, "shapes": shapes}, batches)


def _run(folder: Path, job: Mapping[str, Any], batches: Sequence[Batch]) -> Result:
    python = virtual_environments.make(INT8)
    _write_batches(folder / "batches.npz", batches)
    (folder / "job.json").write_text(json.dumps(job))
    done = subprocess.run(
        children.bind_command([python, str(_PROGRAM), str(folder)], python=python),
        capture_output=True,
        text=True,
        env=virtual_environments.make_variables(),
    )
    if done.returncode:
        raise UserError(
            f"the model cannot be quantised ({virtual_environments.describe_failure(done)}). Give "
            f"it more memory; or remove {INT8.folder}, so that it is made anew, and try again."
        )
    report = json.loads((folder / "report.json").read_text())
    outputs: list[dict[str, np.ndarray]] = [{} for _ in batches]
    with np.load(folder / "outputs.npz") as arrays:
        for key in arrays.files:
            index, _, name = key.partition(".")
            outputs[int(index)][name] = arrays[key]
    return Result(folder, outputs, report["seconds"], report.get("float32_seconds", []))


def _write_batches(path: Path, batches: Sequence[Batch]) -> None:
    named: Any = {f"{i}.{k}": x for i, batch in enumerate(batches) for k, x in batch.items()}
    np.savez(path, **named)
