"""What LiteRT's files lose and gain: a fine-tuned classifier in each of them against its network.

    pip install ai-edge-litert==2.3.0
    python bench/compare_litert.py --checkpoint=runs/sst-2 --task=sst-2 --data_dir=glue

Asks for each example of the dev data, one at a time, and prints a row of a table for each
quantisation: size, accuracy, how often the class is that of the float32 network, the largest
difference of a logit, median CPU milliseconds of a request. The first row is the network itself.
"""

import statistics
import time
from collections.abc import Callable, Mapping

import numpy as np
from absl import app, flags, logging
from ai_edge_litert.interpreter import Interpreter

from albert_tf.data_prep.task_data import glue, sequence_features
from albert_tf.data_prep.task_data.task_source import TaskSplit
from albert_tf.export import export_source, litert
from albert_tf.export.export_config import ExportConfig, SourceConfig
from albert_tf.export.model_kinds import ExportedModel
from albert_tf.kinds import task_table
from albert_tf.records import features
from albert_tf.train_config import Lengths

CHECKPOINT = flags.DEFINE_string("checkpoint", None, "run of fine-tuning", required=True)
TASK = flags.DEFINE_string("task", None, "of GLUE, with classes", required=True)
DATA_DIR = flags.DEFINE_string("data_dir", None, "folder of its files", required=True)
NUM_THREADS = flags.DEFINE_integer("num_threads", 1, "of the interpreter")

HEADER = (
    "| file | MB | accuracy | same class | largest difference | CPU ms |\n|---|---|---|---|---|---|"
)


def read(source: ExportedModel) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The ids of the dev data, and its labels."""
    task = task_table.TASKS[TASK.value]
    split = TaskSplit(task=task, name="dev")
    examples, _ = glue.read(split, glue.find_file(split, DATA_DIR.value))
    lengths = Lengths(max_seq_length=source.options.run_config.max_seq_length)
    assert source.tokenizer
    batch, _ = sequence_features.encode(examples, source.tokenizer, task.kind, lengths)
    labels = [task.labels.index(str(example.label)) for example in examples]
    return {name: x.astype(np.int32) for name, x in batch.items()}, np.array(labels)


def make_answer(content: bytes) -> Callable[..., Mapping[str, np.ndarray]]:
    interpreter = Interpreter(model_content=content, num_threads=NUM_THREADS.value)
    return interpreter.get_signature_runner("token_ids")


def ask_all(
    answer: Callable[..., Mapping[str, np.ndarray]], batch: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, float]:
    """Logits [N, C], and median CPU seconds of a request: others on the machine do not count."""
    logits, seconds = [], []
    for row in range(len(batch[features.INPUT_IDS])):
        ids = {name: x[row : row + 1] for name, x in batch.items()}
        begin = time.process_time()
        outputs = answer(**ids)
        seconds.append(time.process_time() - begin)
        logits.append(outputs["logits"])
    return np.concatenate(logits), statistics.median(seconds)


def main(_: list[str]) -> None:
    logging.set_verbosity(logging.ERROR)
    source = export_source.read(
        ExportConfig(source=SourceConfig(checkpoint=CHECKPOINT.value), text=False)
    )
    batch, labels = read(source)
    parts = [
        source.compute_outputs({name: x[i : i + 64] for name, x in batch.items()})["logits"]
        for i in range(0, len(labels), 64)
    ]
    wanted = np.concatenate(parts)
    classes = wanted.argmax(1)
    print(HEADER)
    print(f"| network | | {(classes == labels).mean():.4f} | | | |")
    for quantize in litert.QUANTIZATIONS:
        content = litert.convert(source, quantize)
        logits, seconds = ask_all(make_answer(content), batch)
        predicted = logits.argmax(1)
        print(
            f"| {quantize} | {len(content) / 1e6:.2f} | {(predicted == labels).mean():.4f} "
            f"| {(predicted == classes).mean():.2%} | {np.abs(logits - wanted).max():.2g} "
            f"| {seconds * 1e3:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    app.run(main)
