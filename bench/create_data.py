"""Times bin/create_pretraining_data beyond its start: CPU seconds of this process and its children.

    python bench/create_data.py --input_files=text.txt --vocabulary=vocabulary [--rounds=5]

Length 512, 77 predictions, every document used twice. The start, importing TensorFlow, is what
--help costs.
"""

import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from absl import app, flags

INPUT_FILES = flags.DEFINE_string("input_files", None, "patterns of text", required=True)
VOCABULARY = flags.DEFINE_string("vocabulary", None, "folder", required=True)
ROUNDS = flags.DEFINE_integer("rounds", 5, "runs of each")
PROGRAM = Path(__file__).parent.parent / "bin/create_pretraining_data"


def cpu_seconds(*arguments: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # --help ends with 1, as absl has it.
    done = subprocess.run([sys.executable, PROGRAM, *arguments], capture_output=True, check=False)
    if done.returncode and "--help" not in arguments:
        sys.exit(done.stderr.decode())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(_):
    inputs = f"--input_files={INPUT_FILES.value}", f"--vocabulary={VOCABULARY.value}"
    sizes = "--max_seq_length=512", "--max_predictions_per_seq=77", "--dupe_factor=2"
    starts, runs = [], []
    for _ in range(ROUNDS.value):
        starts.append(cpu_seconds("--help"))
        with tempfile.TemporaryDirectory() as folder:
            output = f"--output_dir={folder}/data"
            runs.append(cpu_seconds(*inputs, output, *sizes, "--num_processes=1"))
    beyond = sorted(run - statistics.median(starts) for run in runs)
    print(
        f"{statistics.median(beyond):.2f} CPU s ({beyond[0]:.2f} to {beyond[-1]:.2f}) "
        f"beyond the start's {statistics.median(starts):.2f}"
    )


if __name__ == "__main__":
    app.run(main)
