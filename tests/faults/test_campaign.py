"""A sample of the campaign: the cheap programs."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CAMPAIGN = Path(__file__).with_name("campaign.py")


@pytest.mark.full
@pytest.mark.skipif(not shutil.which("gcc"), reason="the library is compiled")
def test_a_sample_of_faults_loses_nothing():
    command = [sys.executable, CAMPAIGN, "--programs=vocabulary,records,conversion"]
    command += ["--seconds=0.7"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) >= 10
