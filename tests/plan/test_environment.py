"""Programs that run with the Python of jax: not left behind."""

import os
import signal
import threading
import time

import pytest
from repository import ROOT

from albert_tf.environments import virtual_environments
from albert_tf.plan.aot import lowering


@pytest.mark.parametrize(
    ("program", "flags"),
    [
        ("plan_training", ["--topology=v5e:1x1", "--global_batch=1", "--compile"]),
        ("export --format=step", ["--output_dir=never", "--per_replica_batch=1"]),
    ],
)
def test_sigterm_ends_the_compiler_too(program, flags, run_program, monkeypatch, tmp_path):
    python, started = tmp_path / "python", tmp_path / "started"
    python.write_text(
        f"#!/bin/sh\necho $$ > {started}.tmp\nmv {started}.tmp {started}\nexec sleep 60\n"
    )
    python.chmod(0o755)
    (tmp_path / "temporary").mkdir()
    ids = lowering.Array(name="input_ids", shape=(1, 14), dtype="int32")
    lowered = lowering.Lowered(module=b"", inputs=(ids,), outputs=(), state=(), num_replicas=1)
    monkeypatch.setattr(lowering, "lower", lambda *_, **__: lowered)
    monkeypatch.setattr("albert_tf.plan.aot.artifact.describe", lambda *_: {})
    monkeypatch.setattr(virtual_environments, "make", lambda _: str(python))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))

    def stop():
        while not started.exists():
            time.sleep(0.05)
        handled = callable(signal.getsignal(signal.SIGTERM))  # else it would end the tests
        os.kill(os.getpid() if handled else int(started.read_text()), signal.SIGTERM)

    threading.Thread(target=stop, daemon=True).start()
    assert run_program(ROOT / "bin" / program, *flags) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)
    assert os.listdir(tmp_path / "temporary") == []
