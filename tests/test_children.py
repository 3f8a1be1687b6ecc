"""Programs that end with the one that started them."""

import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

from albert_tf.children import bind_command

TELL = "import resource; print(resource.getrlimit(resource.RLIMIT_STACK)[0])"
# Starts a program that says its number, and waits.
PARENT = """
import signal, subprocess, sys
from albert_tf.children import bind_command
sleeper = [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(60)"]
subprocess.run(bind_command(sleeper, ends_by=signal.Signals(int(sys.argv[1]))))
"""


def test_a_program_ends_with_a_killed_parent():
    for number in (signal.SIGTERM, signal.SIGKILL):
        command = [sys.executable, "-c", PARENT, str(int(number))]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
            child = Path(f"/proc/{int(parent.stdout.readline())}")
            assert child.exists()
            parent.kill()
        end = time.monotonic() + 20
        while child.exists():
            assert time.monotonic() < end
            time.sleep(0.05)


def test_threads_get_the_stack_that_is_asked_for():
    _, limit = resource.getrlimit(resource.RLIMIT_STACK)
    for wanted in (2**24, 2**25):
        command = bind_command([sys.executable, "-c", TELL], stack_bytes=wanted)
        told = int(subprocess.run(command, capture_output=True, check=True).stdout)
        assert told == (wanted if limit == resource.RLIM_INFINITY else min(wanted, limit))
