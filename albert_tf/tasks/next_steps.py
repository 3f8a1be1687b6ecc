"""Says at the end of a fine-tuning run what to do next."""

import os
import shlex

from albert_tf import run_files
from albert_tf.errors import name_programs
from albert_tf.kinds.base import Task
from albert_tf.train import reports
from albert_tf.train_config import FinetuneConfig


def describe(folder: str, task: Task, config: FinetuneConfig) -> list[str]:
    """Returns the lines: whether more epochs may help, and the commands for the model.

    More epochs may if the best evaluation is the last one, and not the first of all.
    """
    names = [f"eval_{task.best_by}", *(f"eval_{name}" for name in task.metrics)]
    records = [record for record in reports.read(folder) if any(x in record for x in names)]
    name = next((x for x in names if records and x in records[-1]), "")
    scores = {record["step"]: record[name] for record in records if name in record}
    best = max(scores, key=lambda step: scores[step], default=0)
    lines = ["", "Next:"]
    perfect = 100 if task.kind.is_percent else 1
    if scores and min(scores) < best == max(scores) and scores[best] < perfect:
        more = f"--epochs={2 * config.num_train_epochs:g} and another --output_dir"
        lines.append(f"  still improving: more epochs, the same command with {more}")
    model = shlex.quote(folder)
    parent, base = os.path.split(folder.rstrip("/"))
    if os.path.basename(parent) == "runs":
        parent = os.path.dirname(parent)
    served = shlex.quote(os.path.join(parent, "models", base))
    files = "--input=new.csv --output=new_with_labels.csv"
    if task.kind.gives_vectors:
        files = "--input=new.csv --output_dir=vectors --vectors"
    return [
        *lines,
        name_programs(f"  predict:  bin/predict --model={model} {files}"),
        name_programs(
            f"  serve:    bin/export_saved_model --checkpoint={model} --output_dir={served}"
        ),
        name_programs(f"            bin/serve --model={served}"),
        f"  report:   {os.path.join(folder, run_files.REPORT)}",
    ]
