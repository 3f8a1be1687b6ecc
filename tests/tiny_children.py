"""A run of pre-training in a process of its own, to which something happens on the way."""

import os
import subprocess
import sys
import textwrap

from albert_tf import config


def start(data, workdir, settings, *, at_step, do, environment=None):
    """Starts a run in a process of its own, which runs `do` when it reports `at_step`."""
    program = f"""
    import os, signal, sys
    from albert_tf import config, devices, pretraining, program, reports
    tell = reports.line
    def line(record, *rest):
        if record["step"] == {at_step}:
            {do}
        return tell(record, *rest)
    reports.line = line
    settings = config.from_dict(config.PretrainConfig, {config.to_dict(settings)!r})
    program.run(lambda _: pretraining.run(
        settings, devices.strategy(), [{data!r} + "/train-*"], [], {str(workdir)!r}
    ))
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **(environment or {})},
    )


def finish(child, expected):
    output, _ = child.communicate(timeout=300)
    assert child.returncode == expected, output
    return output
