"""Runs two benchmarks in turn and compares them: a machine that is shared changes by the minute.

    python bench/in_turn.py [--rounds=3] 'python bench/pretraining_update.py ...' \\
        'peer/bin/python bench/peer_torch.py'

Each command ends its output with one line of JSON that has `seconds` and `cpu_seconds`.
"""

import json
import shlex
import statistics
import subprocess
import sys

from absl import app, flags

ROUNDS = flags.DEFINE_integer("rounds", 3, "runs of each command")


def measure(command: str) -> dict[str, float]:
    done = subprocess.run(shlex.split(command), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{command}\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def main(arguments):
    commands = arguments[1:]
    if len(commands) != 2:
        sys.exit("in_turn.py: give two commands, each in quotes.")
    rounds: list[list[dict[str, float]]] = []
    for _ in range(ROUNDS.value):
        rounds.append([])
        for number, command in enumerate(commands):
            rounds[-1].append(measure(command))
            print(number + 1, json.dumps(rounds[-1][-1]), flush=True)
    for unit in ("seconds", "cpu_seconds"):
        ratios = sorted(second[unit] / first[unit] for first, second in rounds)
        print(
            f"the second takes {statistics.median(ratios):.2f} times the {unit} of the first "
            f"({ratios[0]:.2f} to {ratios[-1]:.2f})"
        )


if __name__ == "__main__":
    app.run(main)
