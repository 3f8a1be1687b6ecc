"""All tests see two CPUs: two replicas anywhere. It must be said before TensorFlow starts.

They may run a program of bin/ in this process, or the program in C++ (`cpp` reads its answers).
"""

import os

# A quarter less time: no batch is cut for two cores, each part of which TensorFlow traces anew.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")

import albert_tf  # noqa: F401, I001  (first: it imports TensorFlow quietly)
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf
from absl import app, flags

from albert_tf import devices

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)


@pytest.fixture
def branches(monkeypatch):
    """Batches are cut into two, as users of two cores have it (see `devices.branches`)."""
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS")
    monkeypatch.setattr(devices, "_num_cores", lambda: 2)


@pytest.fixture
def run_program(monkeypatch):
    """Runs a program here, as starting TensorFlow takes seconds; returns what it exits with."""
    app.define_help_flags()  # once a process: these stay
    before = set(flags.FLAGS)

    def run(path, *arguments):
        monkeypatch.setattr(sys, "argv", [str(path), *arguments])
        try:
            with pytest.raises(SystemExit) as stop:
                runpy.run_path(str(path), run_name="__main__")
        finally:
            for name in set(flags.FLAGS) - before:
                delattr(flags.FLAGS, name)
            flags.FLAGS.unparse_flags()
        return stop.value.code

    return run


@pytest.fixture(scope="session")
def serve_check(tmp_path_factory):
    """The C++ program, compiled."""
    if shutil.which("g++") is None:
        pytest.skip("there is no g++ here: the C++ loader was not tried.")
    program = tmp_path_factory.mktemp("bin") / "serve_check"
    tensorflow = tf.sysconfig.get_lib()
    includes = [f"-I{tensorflow}/include", f"-I{tensorflow}/include/external/com_google_protobuf"]
    options = [x for x in tf.sysconfig.get_compile_flags() if not x.startswith("-I")]
    # Without --no-as-needed the linker leaves out the library that registers sessions and kernels.
    libraries = [
        "-Wl,--no-as-needed",
        "-l:libtensorflow_cc.so.2",
        "-l:libtensorflow_framework.so.2",
    ]
    linking = [f"-L{tensorflow}", *libraries, f"-Wl,-rpath,{tensorflow}"]
    source = str(Path(__file__).parent / "serve_check.cc")
    command = ["g++", "-O1", "-w", *options, *includes, source, "-o", str(program), *linking]
    subprocess.run(command, check=True)
    return program
