"""What the words that two texts share tell of a pair task: what a model of pairs should beat.

    python bench/word_overlap.py --task=mrpc --train_file=MRPC/train.tsv --dev_file=MRPC/dev.tsv

Logistic regression on the shares of common words: of the words of each text and of both together.
"""

import re

import numpy as np
from absl import app, flags
from sklearn.linear_model import LogisticRegression

from albert_tf.records import task_table
from data_prep.task_data import glue
from data_prep.task_data.task_source import TaskSplit

TASK = flags.DEFINE_enum("task", "mrpc", ["mrpc", "qqp", "rte", "wnli"], "a task of pairs")
TRAIN_FILE = flags.DEFINE_string("train_file", None, "its tsv of train", required=True)
DEV_FILE = flags.DEFINE_string("dev_file", None, "its tsv of dev", required=True)


def read(path: str, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Shares of common words [N, 3] and labels [N]."""
    shares, labels = [], []
    examples, _ = glue.read(TaskSplit(task=task_table.get(TASK.value), name=split), path)
    for example in examples:
        first, second = (set(re.findall(r"\w+", text.lower())) for text in example.texts)
        common = len(first & second)
        shares.append([common / max(1, len(x)) for x in (first, second, first | second)])
        labels.append(example.label)
    return np.array(shares), np.array(labels)


def main(_):
    shares, labels = read(DEV_FILE.value, "dev")
    model = LogisticRegression().fit(*read(TRAIN_FILE.value, "train"))
    print(f"accuracy on dev: {model.score(shares, labels):.4f}")


if __name__ == "__main__":
    app.run(main)
