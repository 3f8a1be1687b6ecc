"""Uses `.venv-plan`, the environment of jax and libtpu.

TensorFlow and jax cannot share a process: each would load its own copy of the same libraries.
"""

import subprocess
from pathlib import Path

from albert_tf.environments import virtual_environments
from albert_tf.environments.virtual_environments import Environment

JAX_SIDE = Path(__file__).resolve().parents[1] / "jax_side"
PLAN = Environment(
    name="plan",
    # The newest jax needs 3.12, so those come first.
    python_names=("python3.13", "python3.12", "python3", "python3.11"),
    check="import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))",
    needs="Python 3.11 to 3.13 with venv, which jax needs",
    remedy="Install one (Debian: apt install python3-venv), or plan without --compile",
)


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a program of `plan/jax_side` by its file name; the caller checks the exit status."""
    command = [virtual_environments.make(PLAN), str(JAX_SIDE / program), *arguments]
    variables = virtual_environments.make_variables()
    return subprocess.run(command, capture_output=True, text=True, env=variables)
