"""The wheel, installed elsewhere: the command `albert-tf`, with all it needs inside."""

import os
import re
import shutil
import subprocess
import sys

import pytest
import tiny_checkpoints
from repository import ROOT

from albert_tf import command

FOLDERS = ("albert_tf", "bin", "configs", "data_prep", "export")
FILES = ("LICENSE", "README.md", "pyproject.toml", "setup.py")
PIP = (sys.executable, "-m", "pip", "-q", "--disable-pip-version-check")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with the installed wheel; TensorFlow and the like are this environment's."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in FOLDERS:
        shutil.copytree(ROOT / name, source / name, symlinks=True)
    for name in FILES:
        shutil.copy(ROOT / name, source)
    build = (*PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder))
    subprocess.run([*build, str(source)], check=True)
    [wheel] = folder.glob("*.whl")
    install = (*PIP, "install", "--no-deps", "--target", str(folder / "site"))
    subprocess.run([*install, str(wheel)], check=True)
    return folder / "site"


def run_command(site, *arguments):
    """Runs `albert-tf` outside the clone; returns its output."""
    done = subprocess.run(
        [sys.executable, site / "bin" / "albert-tf", *arguments],
        cwd=site.parent,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.full
def test_the_wheel_installs_one_package_and_one_command(site):
    names = {path.name for path in site.iterdir() if path.suffix != ".dist-info"}
    assert names == {"albert_tf", "bin"}
    assert [path.name for path in (site / "bin").iterdir()] == ["albert-tf"]
    assert (site / "albert_tf/py.typed").exists()
    assert (site / "albert_tf/export/step/run_step.py").exists()


@pytest.mark.full
def test_the_command_lists_and_runs_the_programs(site, vocabulary, tmp_path):
    programs = {path.name for path in (ROOT / "bin").iterdir() if not path.suffix}
    listed = run_command(site, "--help")
    for name in programs - {"quickstart", "test"}:
        assert f"\n  {name} " in listed
    assert "albert-tf run_pretraining" in listed
    assert "albert-tf export_saved_model" in run_command(site, "predict", "--helpfull")
    assert re.fullmatch(r"albert-tf \d+\.\d+\.\d+\n", run_command(site, "--version"))
    assert "sequences" in run_command(site, "plan_training", "--config=tiny_english")
    google = tiny_checkpoints.write(tmp_path / "google", tiny_checkpoints.make(vocabulary))
    files = (f"--checkpoint={google}", f"--output_dir={tmp_path}/ours")
    run_command(site, "convert_checkpoint", *files)
    guesses = run_command(site, "predict", f"--model={tmp_path}/ours", "--text=a [MASK]")
    assert guesses.startswith("a [MASK]\n   ")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("predct", "there is no program 'predct'. Did you mean 'predict'?"),
        ("fill_maks", "there is no program 'fill_maks'. Did you mean 'predict'?"),
        ("xyz", "there is no program 'xyz'. albert-tf --help lists the programs."),
    ],
)
def test_what_is_no_program_of_the_package_is_one_line(monkeypatch, name, message):
    monkeypatch.setattr(sys, "argv", ["albert-tf", name])
    with pytest.raises(SystemExit) as stop:
        command.main()
    assert stop.value.code == f"albert-tf: {message}"
