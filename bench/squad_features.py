"""Times SQuAD's JSON to records on disk: CPU seconds, user and system, of all threads.

    python bench/squad_features.py --input_file=dev-v1.1.json --vocabulary=vocabulary [--rounds=5]

Length 384, stride 128, questions up to 64 tokens, as published. Reading the file and loading the
vocabulary count; starting Python and importing TensorFlow does not, and is shown apart.
"""

import statistics
import tempfile
import time

from absl import app, flags

from albert_tf.tokenizers import tokenization
from albert_tf.train_config import Lengths
from data_prep.task_data import squad

INPUT_FILE = flags.DEFINE_string("input_file", None, "official JSON", required=True)
VOCABULARY = flags.DEFINE_string("vocabulary", None, "folder", required=True)
ROUNDS = flags.DEFINE_integer("rounds", 5, "runs")


def convert(folder: str) -> tuple[int, dict[str, int]]:
    questions = squad.read(INPUT_FILE.value)
    _, counts = squad.write(
        questions,
        tokenization.load(VOCABULARY.value),
        folder,
        Lengths(max_seq_length=384, doc_stride=128, max_query_length=64),
        is_training=False,
    )
    return len(questions), counts


def main(_):
    start, times = time.process_time(), []
    for _ in range(ROUNDS.value):
        with tempfile.TemporaryDirectory() as folder:
            before = time.process_time()
            num_questions, counts = convert(folder)
            times.append(time.process_time() - before)
    print(f"{num_questions} questions, {counts}")
    print(
        f"{statistics.median(times):.2f} CPU s ({min(times):.2f} to {max(times):.2f}) "
        f"beyond the start's {start:.2f}"
    )


if __name__ == "__main__":
    app.run(main)
