"""Writes README.md, the card of a model in a folder of transformers: data, scores, commands.

Its head is YAML, as the Hugging Face Hub reads it, in the part of YAML that is JSON.
"""

import json
import os
from collections.abc import Mapping
from typing import Any

from albert_tf import files, hub
from albert_tf.checkpoints import hugging_face
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.kinds.task_table import OWN, from_header
from albert_tf.run_files import THRESHOLDS
from albert_tf.tokenizers import tokenization

NAME = "README.md"
# What the Hub calls the use of a class, and how to use it from Python; FOLDER is the folder.
_PIPELINE = """\
from transformers import pipeline

model = pipeline("{use}", "FOLDER")
print(model({example}))"""
_AUTO = """\
from transformers import AutoTokenizer, {auto}

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = {auto}.from_pretrained("FOLDER")
print(model(**tokenizer({example}, return_tensors="pt")))"""
_SYMBOLS = """\
from transformers import AlbertModel

model = AlbertModel.from_pretrained("FOLDER")  # ids are the lines of symbols.txt, from 0"""
_MASKED, _TEXT = '"The [MASK] of France is Paris."', '"A text."'
# {class: (what the Hub calls its use, an example)}
USES = {
    "AlbertForPreTraining": ("fill-mask", _MASKED),
    "AlbertForMaskedLM": ("fill-mask", _MASKED),
    "AlbertForSequenceClassification": ("text-classification", _TEXT),
    "AlbertForTokenClassification": ("token-classification", _TEXT),
    "AlbertForQuestionAnswering": ("question-answering", f'"A question?", {_TEXT}'),
    "AlbertForMultipleChoice": (
        "multiple-choice",
        f'[{_TEXT}] * 2, ["One end.", "Another."], padding=True',
    ),
    "AlbertModel": ("feature-extraction", _TEXT),
}
_WITHOUT_PIPELINE = ("AlbertForQuestionAnswering", "AlbertForMultipleChoice")
_PAIR = '{"text": "A text.", "text_pair": "Another."}'
# The Hub's names of our metrics.
_METRICS = {
    "matthews": "matthews_correlation",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
    "exact": "exact_match",
}
_CARD = """\
---
{head}
---

# {title}

An ALBERT of {config.num_hidden_layers} layers of {config.hidden_size}, with {parameters:,} \
parameters and a vocabulary of {config.vocab_size:,} pieces, as `{class_name}`.
{labels}
## Use

```python
{use}
```

## Data

{data}
## Scores

{scores}
## Commands

```
{commands}
```
{settings}"""


def write(checkpoint: ModelCheckpoint, folder: str) -> None:
    """Writes the card into `folder`."""
    class_name, names = hugging_face.choose_class(checkpoint)
    task = checkpoint.run.get("task", {})
    labels, head = checkpoint.labels, _make_head(checkpoint, USES[class_name][0])
    text = _CARD.format(
        head="\n".join(f"{key}: {json.dumps(x)}" for key, x in head.items()),
        title=f"ALBERT, fine-tuned on {_name_task(task)}" if task else "ALBERT",
        config=checkpoint.config,
        parameters=sum(checkpoint.weights[name].size for name in names),
        class_name=class_name,
        labels=f"Its labels, in the order of their ids: {', '.join(labels)}.\n" if labels else "",
        use=_SYMBOLS
        if tokenization.SYMBOLS in checkpoint.vocabulary
        else _describe_use(class_name, has_pairs=bool(task and from_header(task).has_pairs)),
        data=_describe_data(checkpoint.run),
        scores=_describe_scores(checkpoint),
        commands="\n".join(_list_commands(checkpoint)),
        settings=_describe_settings(checkpoint.run),
    )
    files.write_bytes(os.path.join(folder, NAME), text.encode())


def _name_task(task: Mapping[str, Any]) -> str:
    name = task.get("task")
    return f"a task of {task.get('kind')}" if name == OWN else str(name)


def _make_head(checkpoint: ModelCheckpoint, use: str) -> dict[str, Any]:
    """Returns what the Hub reads: {key: JSON value}."""
    head: dict[str, Any] = {
        "library_name": "transformers",
        "pipeline_tag": use,
        "tags": ["albert", "tensorflow"],
    }
    tuned = " (tuned thresholds)" if _find_thresholds(checkpoint) else ""
    results: list[dict[str, Any]] = [
        {
            "task": {"type": use},
            "dataset": {"name": x["task"], "type": x["task"], "split": x["split"]},
            "metrics": [
                {"type": _METRICS.get(name, name), "value": value, "name": f"{name}{tuned}"}
                for name, value in x["metrics"].items()
            ],
        }
        for x in checkpoint.run.get("metrics", ())
    ]
    if results:
        name = f"albert-{results[0]['dataset']['name']}"
        head["model-index"] = [{"name": name, "results": results}]
    return head


def _describe_use(class_name: str, *, has_pairs: bool) -> str:
    use, example = USES[class_name]
    if class_name in _WITHOUT_PIPELINE:
        return _AUTO.format(auto=class_name.replace("Albert", "AutoModel"), example=example)
    return _PIPELINE.format(use=use, example=_PAIR if has_pairs else example)


def _describe_data(run: Mapping[str, Any]) -> str:
    if data := run.get("training_data"):
        task, folder = _name_task(run.get("task", {})), hub.name_for_card(data["folder"])
        return f"{data['num_records']:,} training examples of {task} (`{folder}`).\n"
    if rows := run.get("records", {}).get("files"):
        total = sum(number for _, number in rows)
        return f"{total:,} records of pre-training in {len(rows)} files.\n"
    return "The checkpoint does not say what it was trained on.\n"


def _describe_scores(checkpoint: ModelCheckpoint) -> str:
    metrics = checkpoint.run.get("metrics", ())
    training = f"The checkpoint of {checkpoint.scores}.\n" if checkpoint.scores else ""
    if not metrics:
        return training or "None were found beside the checkpoint.\n"
    rows = [
        f"| {x['task']} | {x['split']} | {x['num_examples']:,} | {name} | {value:.4g} |"
        for x in metrics
        for name, value in x["metrics"].items()
    ]
    header = ["| task | split | examples | metric | score |", "|---|---|---|---|---|"]
    notes = [training] if training else []
    if thresholds := _find_thresholds(checkpoint):
        listed = ", ".join(f"{name} {value:.6g}" for name, value in thresholds.items())
        notes.append(
            f"The scores below are with the thresholds that were tuned on dev ({listed}), as this "
            "project predicts. In training, and in transformers unless you apply them, others hold "
            "(0.5 for a label).\n"
        )
    return "\n".join([*notes, *header, *rows, ""])


def _find_thresholds(checkpoint: ModelCheckpoint) -> dict[str, float]:
    """Returns {label: threshold} of a multi-label model; those of SQuAD 2.0 are never applied."""
    thresholds = checkpoint.dev_metrics.get(THRESHOLDS) or {}
    return {label: x for label, x in thresholds.items() if label in checkpoint.labels}


def _list_commands(checkpoint: ModelCheckpoint) -> list[str]:
    """Lists the commands that made the model."""
    commands = map(hub.command_for_card, checkpoint.run.get("commands", ()))
    convert = f"bin/convert_checkpoint --checkpoint={hub.name_for_card(checkpoint.source)}"
    own = f"{convert} --output_dir=FOLDER --to_format=hugging_face"
    return [*commands, own]


def _describe_settings(run: Mapping[str, Any]) -> str:
    if "config" not in run:
        return ""
    return f"\n`config.json`:\n\n```json\n{json.dumps(run['config'], indent=2)}\n```\n"
