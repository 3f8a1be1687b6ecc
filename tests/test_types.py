"""mypy finds no mistake: a test so that it runs while the other core tests."""

import subprocess
import sys

from repository import ROOT


def test_types_are_right():
    found = subprocess.run([sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
