"""Several workers of bin/run_pretraining on this machine, to one of which something happens."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

PROGRAM = Path(__file__).parent.parent / "bin" / "run_pretraining"
# Patience with a slow machine, in seconds.
LIMIT = 300


def addresses(number):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    found = [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]
    for s in sockets:
        s.close()
    return found


def tf_config(cluster, index, kind="worker"):
    return json.dumps({"cluster": {"worker": cluster}, "task": {"type": kind, "index": index}})


def start(output, cluster, index, arguments, *, at_step=0, do="pass"):
    """Starts one worker, which runs `do` when it reports `at_step` and writes to a file."""
    program = f"""
    import os, runpy, signal, sys
    from albert_tf import reports
    tell = reports.line
    def line(record, *rest):
        if record["step"] == {at_step}:
            {do}
        return tell(record, *rest)
    reports.line = line
    sys.argv = {[str(PROGRAM), *arguments]!r}
    runpy.run_path(sys.argv[0], run_name="__main__")
    """
    with open(output, "w") as file:
        return subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program)],
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TF_CONFIG": tf_config(cluster, index)},
        )


def run(folder, number, arguments, *, happens=None, at_step=0, do="pass"):
    """Runs all workers to their ends; `do` happens to one. Returns the exit status of each."""
    cluster = addresses(number)
    with ended() as children:
        for k in range(number):
            what = {"at_step": at_step, "do": do} if k == happens else {}
            children.append(start(folder / f"output-{k}", cluster, k, arguments, **what))
        return [child.wait(LIMIT) for child in children]


@contextlib.contextmanager
def ended():
    """A list for processes, all of which end with the block, whatever happens in it."""
    children = []
    try:
        yield children
    finally:
        for child in children:
            child.kill()
        for child in children:
            child.wait()


def wait_for(path, text):
    end = time.monotonic() + LIMIT
    while text not in path.read_text():
        assert time.monotonic() < end, path.read_text()
        time.sleep(0.1)
