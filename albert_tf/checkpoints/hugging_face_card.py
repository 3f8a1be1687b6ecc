"""Writes README.md, the model card in a transformers folder: data, scores, commands.

Its header is YAML for the Hugging Face Hub, in the subset of YAML that is JSON.
"""

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from albert_tf import markdown, provenance
from albert_tf.checkpoints import hugging_face
from albert_tf.checkpoints import hugging_face_architectures as architectures
from albert_tf.checkpoints.hugging_face_architectures import CLASSES
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.kinds import task_table
from albert_tf.run_files import THRESHOLDS
from albert_tf.tokenizers import tokenization

NAME = "README.md"
# How to use the model from Python; FOLDER is the folder.
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
_TEXT, _PAIR = '"A text."', '{"text": "A text.", "text_pair": "Another."}'
# {the Hub's name of a use: the arguments of an example}; by default a text.
_EXAMPLES = {
    "fill-mask": '"The [MASK] of France is Paris."',
    "question-answering": f'"A question?", {_TEXT}',
    "multiple-choice": f'[{_TEXT}] * 2, ["One end.", "Another."], padding=True',
}
_WITHOUT_PIPELINE = ("question-answering", "multiple-choice")
# The Hub's names of our metrics.
_METRICS = {
    "matthews": "matthews_correlation",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
    "exact": "exact_match",
}


def write(checkpoint: ModelCheckpoint, folder: str) -> None:
    """Writes the card into `folder`."""
    end, names = hugging_face.choose_class(checkpoint)
    known = architectures.of_config(checkpoint.config)
    config, task, labels = checkpoint.config, checkpoint.run.get("task", {}), checkpoint.labels
    parameters = sum(checkpoint.weights[name].size for name in names)
    model, length = known.name.upper(), checkpoint.run.get("config", {}).get("max_seq_length")
    title = f"{model}, fine-tuned on {_name_task(task)}" if task else model
    sections = [
        markdown.front_matter(_make_head(checkpoint, CLASSES[end].use)),
        f"# {title}",
        f"{model} with {config.num_hidden_layers} layers, hidden size {config.hidden_size:,}, "
        f"{parameters:,} parameters and a vocabulary of {config.vocab_size:,} tokens, as "
        f"`{known.name}{end}`.",
        f"It was trained on sequences of at most {length} tokens." if length else "",
        f"Its labels, in the order of their ids: {', '.join(labels)}." if labels else "",
        "## Use",
        markdown.code(_describe_use(checkpoint, end), "python"),
        "## Data",
        _describe_data(checkpoint.run),
        "## Scores",
        *_describe_scores(checkpoint),
        "## Commands",
        markdown.code("\n".join(_list_commands(checkpoint))),
    ]
    if settings := checkpoint.run.get("config"):
        sections += ["`config.json`:", markdown.code(json.dumps(settings, indent=2), "json")]
    markdown.write(os.path.join(folder, NAME), sections)


def _name_task(task: Mapping[str, Any]) -> str:
    name = task.get("task")
    return f"a {task.get('kind')} task" if name == task_table.OWN else str(name)


def _make_head(checkpoint: ModelCheckpoint, use: str) -> dict[str, Any]:
    """Returns the header for the Hub: {key: JSON value}."""
    head: dict[str, Any] = {
        "library_name": "transformers",
        "pipeline_tag": use,
        "tags": [architectures.of_config(checkpoint.config).name.lower(), "tensorflow"],
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
        name = f"{head['tags'][0]}-{results[0]['dataset']['name']}"
        head["model-index"] = [{"name": name, "results": results}]
    return head


def _describe_use(checkpoint: ModelCheckpoint, end: str) -> str:
    """Returns lines of Python that answer an example."""
    if tokenization.SYMBOLS in checkpoint.vocabulary:
        return _SYMBOLS
    use, task = CLASSES[end].use, checkpoint.run.get("task")
    example = _EXAMPLES.get(use, _TEXT)
    if use in _WITHOUT_PIPELINE:
        return _AUTO.format(auto=f"AutoModel{end}", example=example)
    has_pairs = bool(task and task_table.from_header(task).has_pairs)
    return _PIPELINE.format(use=use, example=_PAIR if has_pairs else example)


def _describe_data(run: Mapping[str, Any]) -> str:
    if data := run.get("training_data"):
        task, folder = _name_task(run.get("task", {})), provenance.name_for_card(data["folder"])
        return f"{data['num_records']:,} training examples of {task} (`{folder}`)."
    if rows := run.get("train_files"):
        total = sum(number for _, number in rows)
        return f"{total:,} pre-training records in {len(rows)} files."
    return "The checkpoint does not say what it was trained on."


def _describe_scores(checkpoint: ModelCheckpoint) -> Iterator[str]:
    """Yields the scores in training, and on the splits that were evaluated."""
    metrics = checkpoint.run.get("metrics", ())
    if checkpoint.scores:
        yield f"The checkpoint of {checkpoint.scores}."
    elif not metrics:
        yield "No scores were found next to the checkpoint."
    if metrics and (thresholds := _find_thresholds(checkpoint)):
        listed = ", ".join(f"{name} {value:.6g}" for name, value in thresholds.items())
        yield (
            f"The scores below use the thresholds that were tuned on dev ({listed}), as this "
            "project predicts. In training, and in transformers unless you apply them, others hold "
            "(0.5 for a label)."
        )
    if metrics:
        rows = [
            [x["task"], x["split"], f"{x['num_examples']:,}", name, f"{value:.4g}"]
            for x in metrics
            for name, value in x["metrics"].items()
        ]
        yield markdown.table(["task", "split", "examples", "metric", "score"], rows)


def _find_thresholds(checkpoint: ModelCheckpoint) -> dict[str, float]:
    """Returns {label: threshold} of a multi-label model; SQuAD 2.0 thresholds never apply."""
    thresholds = checkpoint.dev_metrics.get(THRESHOLDS) or {}
    return {label: x for label, x in thresholds.items() if label in checkpoint.labels}


def _list_commands(checkpoint: ModelCheckpoint) -> list[str]:
    """Lists the commands that created the model."""
    commands = map(provenance.command_for_card, checkpoint.run.get("commands", ()))
    convert = f"bin/convert_checkpoint --checkpoint={provenance.name_for_card(checkpoint.source)}"
    own = f"{convert} --output_dir=FOLDER --to_format=hugging_face"
    return [*commands, own]
