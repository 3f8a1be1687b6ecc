"""All tests see two CPUs: two replicas anywhere. It must be said before TensorFlow starts.

They may run a program of bin/ in this process.
"""

# ruff: noqa: E402
import os
import signal

# A quarter less time: no batch is cut for two cores, each part of which TensorFlow traces anew.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
# A program that only predicts would set it for the tests after it, which train.
os.environ["TF_ONEDNN_ASSUME_FROZEN_WEIGHTS"] = "0"

# A shell's background jobs ignore Ctrl-C, and so would the servers that tests start and end by it.
signal.signal(signal.SIGINT, signal.default_int_handler)

from albert_tf import lazy_tensorflow, metrics

lazy_tensorflow.load()
import collections
import json
import runpy
import sys
from pathlib import Path

import pytest
import tensorflow as tf
from absl import app, flags, logging

from albert_tf import processes, program_log
from albert_tf.model import xla

# Seconds by file, of `pytest -n 2 --dist loadfile --write-durations`.
DURATIONS = Path(__file__).with_name("durations.json")
measured: dict[str, float] = collections.defaultdict(float)

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
# Half of the time of a graph that runs a few times is its rewriting, and what XLA compiles of it.
NO_REWRITING = {"disable_meta_optimizer": True}
tf.config.optimizer.set_experimental_options(NO_REWRITING)
compiles_pieces, xla.compiles_pieces = xla.compiles_pieces, lambda: False
# Seconds of a run that writes a report; tests/kinds/test_metrics.py is about all of them.
metrics.NUM_RESAMPLES = 100


def pytest_addoption(parser):
    parser.addoption("--write-durations", action="store_true", help=f"write {DURATIONS.name}")


def pytest_collection_modifyitems(items):
    """The longest files first, so that no core waits for one at the end."""
    seconds = json.loads(DURATIONS.read_text())
    items.sort(key=lambda item: -seconds.get(item.nodeid.partition("::")[0], 0))
    for item in items:
        if item.get_closest_marker("full"):  # they compare whole runs, whose roundings add up
            item.fixturenames = ["as_users", *item.fixturenames]  # its own: parameters share one


def pytest_runtest_logreport(report):
    measured[report.nodeid.partition("::")[0]] += report.duration


def pytest_sessionfinish(session):
    if session.config.option.write_durations and not hasattr(session.config, "workerinput"):
        longest = {file: round(x) for file, x in sorted(measured.items()) if x >= 2}
        DURATIONS.write_text(json.dumps(longest, indent=1) + "\n")


@pytest.fixture(autouse=True, scope="session")
def first_log_line():
    """absl warns once a process that flags are not parsed: before the first test reads its log."""
    program_log.start()
    logging.info("the tests start")


@pytest.fixture(autouse=True)
def plain_logging():
    """Messages go to stderr as in the programs: `capsys.readouterr().err` has them."""
    program_log.start()


@pytest.fixture(scope="module")
def eagerly():
    """Functions run op by op: a run of a few steps takes a quarter of the time, without tracing.

    For a file whose tests are about what a run reads, writes and refuses. Updates and their graphs
    have tests of their own, in tests/train and tests/model.
    """
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture(scope="session")
def vocabulary(tmp_path_factory):
    """The folder of a vocabulary of `tiny_run.VOCAB` pieces, which no test changes."""
    import tiny_run

    return tiny_run.write_vocabulary(str(tmp_path_factory.mktemp("v") / "vocabulary"))


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """The folder of records of pre-training and their vocabulary, which no test changes."""
    import tiny_run

    return tiny_run.write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def trained(data, tmp_path_factory):
    """The folder of a run of one update on `data`, op by op, which no test changes."""
    import tiny_run

    folder, eager = tmp_path_factory.mktemp("trained"), tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    tiny_run.run(data, folder, tiny_run.settings(num_train_steps=1))
    tf.config.run_functions_eagerly(eager)
    return str(folder)


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """A function that exports a tiny model of a kind, once: see `tiny_exports.make_export`."""
    import tiny_exports

    return tiny_exports.make_export(tmp_path_factory)


@pytest.fixture
def use_graphs():
    """Called in a test of such a file: from here on it traces its functions, as users do."""
    eager = tf.config.functions_run_eagerly()
    yield lambda: tf.config.run_functions_eagerly(False)
    tf.config.run_functions_eagerly(eager)


@pytest.fixture
def in_graphs(use_graphs):
    """One test of such a file traces its functions from its beginning."""
    use_graphs()


@pytest.fixture
def as_users(monkeypatch):
    """Graphs are rewritten, and ops compiled, as on users' machines: see `NO_REWRITING`."""
    monkeypatch.setattr(xla, "compiles_pieces", compiles_pieces)
    tf.config.optimizer.set_experimental_options(dict.fromkeys(NO_REWRITING, False))
    yield
    tf.config.optimizer.set_experimental_options(NO_REWRITING)


@pytest.fixture
def branches(monkeypatch):
    """Batches are split for two cores, as on users' machines: `devices.choose_num_branches`."""
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS")
    monkeypatch.delenv("TF_NUM_INTEROP_THREADS", raising=False)
    monkeypatch.setattr(processes, "count_cores", lambda: 2)
    if tf.config.list_physical_devices("GPU"):
        pytest.skip("batches are cut on a CPU alone")


@pytest.fixture
def run_program(monkeypatch):
    """Runs a program here, as starting TensorFlow takes seconds; returns what it exits with.

    A command of a program is named with it: "bin/score ensemble", "bin/export --format=step".
    """
    app.define_help_flags()  # once a process: these stay
    before = set(flags.FLAGS)

    def run(path, *arguments):
        path, *words = str(path).split()
        monkeypatch.setattr(sys, "argv", [path, *words, *arguments])
        try:
            with pytest.raises(SystemExit) as stop:
                runpy.run_path(path, run_name="__main__")
        finally:
            for name in set(flags.FLAGS) - before:
                delattr(flags.FLAGS, name)
            flags.FLAGS.unparse_flags()
        return stop.value.code

    return run
