"""A sample of the campaign: the cheap programs, and the known defects that they must show."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CAMPAIGN = Path(__file__).with_name("campaign.py")


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("gcc"), reason="the library is compiled")
@pytest.mark.parametrize("options", [["--seconds=0.7"], ["--seconds=1.5", "--mutations"]])
def test_a_sample_of_faults_loses_nothing_and_shows_known_defects(options):
    command = [sys.executable, CAMPAIGN, "--programs=vocabulary,records,conversion", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) >= 10
