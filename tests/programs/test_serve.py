"""bin/serve says how to serve an export."""

import shlex

from repository import ROOT


def test_it_prints_two_commands_and_serves_nothing(run_program, tmp_path, capsys):
    folder = tmp_path / "a model"
    assert "has no exported model. Export a run" in run_program(
        ROOT / "bin/serve", f"--model={folder}"
    )
    (folder / "1").mkdir(parents=True)
    assert run_program(ROOT / "bin/serve", f"--model={folder}") == 2
    output = capsys.readouterr().out
    assert f"-v {shlex.quote(str(folder))}:/models/a_model tensorflow/serving:" in output
    assert f"bin/predict --model={shlex.quote(str(folder))} " in output
