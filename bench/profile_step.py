"""Tells where the time of one pre-training update on this CPU goes, by kind of operation.

    python bench/profile_step.py --set albert=albert_base_v2 --set max_seq_length=128 \\
        --set train_batch_size=16

Takes the flags of bench/train_step.py. Operations that run side by side are added up. `XLA` are the
loops of albert_tf/model/ops.py.
"""

import collections
import glob
import re
import tempfile

import tensorflow as tf
import train_step
from absl import app
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from albert_tf import config_io
from albert_tf.train_config import PretrainConfig

SHOWN = 16


def operations(logdir: str) -> collections.Counter:
    """(kind, "ms" or "number") -> milliseconds and number of calls."""
    [path] = glob.glob(f"{logdir}/**/*.xplane.pb", recursive=True)
    space = xplane_pb2.XSpace()
    with open(path, "rb") as file:
        space.ParseFromString(file.read())
    found: collections.Counter = collections.Counter()
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                if kind := kind_of(plane.event_metadata[event.metadata_id].name):
                    found[kind, "ms"] += event.duration_ps / 1e9
                    found[kind, "number"] += 1
    return found


def kind_of(name: str) -> str | None:
    """`while/body/.../MatMul:_MklMatMul` -> `MatMul`; None for what is not one operation."""
    if name == "CpuExecutable::ExecuteAsyncOnStream":
        return "XLA"
    operation = re.fullmatch(r".*/.*:(_\w+|[A-Z]\w+)", name)
    return operation[1].removeprefix("_Mkl") if operation else None


def main(_):
    settings = config_io.load(PretrainConfig, train_step.CONFIG.value, train_step.SET.value)
    update = train_step.make_update(settings)
    with tempfile.TemporaryDirectory() as logdir:
        with tf.profiler.experimental.Profile(logdir):
            update()
        found = operations(logdir)
    kinds = sorted({kind for kind, _ in found}, key=lambda kind: -found[kind, "ms"])
    for kind in kinds[:SHOWN]:
        print(f"{kind:40s} {found[kind, 'ms']:9.1f} ms {found[kind, 'number']:6d} times")


if __name__ == "__main__":
    app.run(main)
