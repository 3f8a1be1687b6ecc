"""bin/run_finetuning, killed before its last checkpoint: the same command ends as if unbroken."""

import json
import subprocess
import sys
import textwrap

import pytest
import tiny_program
import tiny_run

from albert_tf.tasks import predictions

KILL = """
import os, runpy, signal, sys
import tensorflow as tf
from albert_tf.train import reports
tf.config.run_functions_eagerly(True)
def line(record, num_steps):
    if record["step"] == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return ""
reports.line = line
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.full
@pytest.mark.usefixtures("eagerly")
def test_a_second_run_ends_as_if_unbroken(run, checkpoint, tmp_path, capsys):
    tiny_program.write_own(tmp_path)
    command = [*tiny_program.OWN, f"--data_dir={tmp_path}", f"--config={tmp_path}/config.json"]
    command += ["--set=albert.hidden_dropout_prob=0.1", "--set=save_checkpoints_steps=2"]
    command += ["--set=class_weights=balanced", f"--init_checkpoint={checkpoint}/google"]
    assert not run(*command, start=None)
    broken = [*command, f"--output_dir={tmp_path}/broken"]
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILL), tiny_program.PROGRAM, *broken],
        capture_output=True,
        text=True,
    )
    assert child.returncode == -9, child.stderr
    assert not (tmp_path / "broken/report.md").exists()
    capsys.readouterr()
    assert not run(*broken, start=None)
    assert f"resumed from {tmp_path}/broken/model.ckpt-2" in capsys.readouterr().err
    tiny_run.assert_same_end(tmp_path / "run", tmp_path / "broken")
    one, other = (
        predictions.read(f"{tmp_path}/{name}/predictions-dev.json")["predictions"]
        for name in ("run", "broken")
    )
    assert one == other
    assert (tmp_path / "broken/report.md").exists()
    # A third run has nothing to do.
    assert not run(*broken, start=None)
    lines = (tmp_path / "broken/commands.jsonl").read_text().splitlines()
    assert [json.loads(line)["finished"] for line in lines] == [False, True]
    assert [bool(json.loads(line)["ended"]) for line in lines] == [False, True]
