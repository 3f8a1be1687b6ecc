"""Two exports of one checkpoint are the same bytes, and none names a folder of this machine.

Each is made by a process of its own, in which TensorFlow numbers functions from 0.
"""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_checkpoints
import tiny_exports
import tiny_runs

from albert_tf import files, run_record
from albert_tf.checkpoints import formats
from albert_tf.data_prep.task_data.task_source import DataArguments
from albert_tf.export import export_source, hub_module, litert, model_versions
from albert_tf.export.export_config import SourceConfig
from albert_tf.kinds import task_table

MACHINE = "folder_of_this_machine"
LABELS = ["no", "yes", "a", "b", "c"]


def write_onnx(run, folder):
    from albert_tf.export.onnx import onnx_folder

    onnx_folder.export(SourceConfig(checkpoint=run), folder)


def write_int8(run, folder):
    """From a dev set; what a request takes is measured."""
    from albert_tf.export.onnx import int8_export, onnx_runtime
    from albert_tf.export.onnx.int8_arguments import Int8Arguments

    onnx_runtime.measure_seconds = lambda *_: 1.0
    dev = os.path.join(os.path.dirname(folder), "dev.csv")
    Path(dev).write_text("text,label\na,yes\nb,no\n")
    sys.argv = ["bin/export", "--format=int8", f"--checkpoint={run}", f"--output_dir={folder}"]
    arguments = Int8Arguments(data=DataArguments(), checkpoint=run, dev_file=dev, max_loss=100.0)
    int8_export.export(arguments, folder)


def write_litert(run, folder):
    Path(folder).mkdir()
    files.write_bytes(f"{folder}/a.tflite", litert.convert(tiny_exports.read(run), "dynamic"))


EXPORTS = {
    "saved_model": lambda run, to: model_versions.write(tiny_exports.read(run), to),
    "onnx": write_onnx,
    "int8": write_int8,
    "litert": write_litert,
    "hub_module": lambda run, to: hub_module.write(export_source.read_pretrained(run), to, 14),
}
EXPORTS |= {
    name: functools.partial(formats.convert, to_format=name)
    for name in ("albert_tf", "google", "hugging_face", "sentence_transformers")
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory, vocabulary):
    """Two folders, with an export of each kind."""
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    here = tmp_path_factory.mktemp(MACHINE)
    task = task_table.make_own("classification", LABELS)
    made = tiny_checkpoints.make(vocabulary, model="classifier")
    tiny_runs.write(here / "run", made, vocabulary, task)
    command = f"bin/run_finetuning --dev_file={here}/dev.csv --train_file={here}/a.csv,{here}/b.csv"
    (here / "run/commands.jsonl").write_text(json.dumps({"command": command}))
    records = {"folder": f"{here}/cache", "num_records": 5}
    record = run_record.read(f"{here}/run")
    record.training_data = records
    record.write(f"{here}/run")
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for name in ("one", "two"):
        command = [sys.executable, __file__, here / "run", here / name]
        subprocess.run(command, env=variables, check=True)
    return here / "one", here / "two"


@pytest.mark.full
@pytest.mark.parametrize("name", EXPORTS)
def test_folders_of_the_machine_are_not_in_an_export(name, exported):
    contents = []
    for folder in exported:
        paths = sorted(path for path in (folder / name).rglob("*") if path.is_file())
        contents.append({str(path.relative_to(folder)): path.read_bytes() for path in paths})
    assert contents[0].keys() == contents[1].keys() != set()
    assert not [path for path in contents[0] if contents[0][path] != contents[1][path]]
    assert not [path for path, content in contents[0].items() if MACHINE.encode() in content]


if __name__ == "__main__":
    _, run, target = sys.argv
    os.makedirs(target)
    for name, write in EXPORTS.items():
        write(run, os.path.join(target, name))
