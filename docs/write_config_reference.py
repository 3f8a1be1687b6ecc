"""Writes docs/config_reference.md from the dataclasses of the configs.

    python docs/write_config_reference.py

`settings.setting` describes a field.
"""

import dataclasses
import inspect
import typing
from pathlib import Path

from albert_tf import config, settings, train_config
from albert_tf.data_prep import vocabulary
from albert_tf.data_prep.pretraining_data import data_config
from albert_tf.tokenizers import tokenization

TARGET = Path(__file__).with_name("config_reference.md")
INTRODUCTION = """# Configuration

Every field of every config, with its default. `python docs/write_config_reference.py` writes this
page from the dataclasses.

A config is a JSON file (`--config`). Flags override its fields: `--num_train_steps=2000`,
`--albert.num_hidden_layers=2`, or `--set num_train_steps=2000`. A run writes the config that it
used to `run.json` in its folder. The fields of records and vocabularies are flags of their
programs.
"""
# (title, dataclass): fields that an earlier one lists are left out.
SECTIONS: tuple[tuple[str, type], ...] = (
    ("The model: `albert`", config.AlbertConfig),
    ("Every training run", train_config.TrainConfig),
    ("Pre-training: `bin/run_pretraining`", train_config.PretrainConfig),
    ("A phase of pre-training: `phases`", train_config.Phase),
    ("Fine-tuning: `bin/run_finetuning`", train_config.FinetuneConfig),
    ("Records: flags of `bin/create_pretraining_data`", data_config.DataConfig),
    ("Vocabularies: flags of `bin/train_vocabulary`", vocabulary.VocabularyConfig),
    ("Normalization: flags of `bin/train_vocabulary`", tokenization.TokenizerConfig),
)


def describe_fields(cls: type) -> dict[str, str]:
    """Returns {field: its description} of a dataclass."""
    described = settings.describe(cls)
    return {name: about["help"] for name, about in described.items() if "help" in about}


def _format_default(field: dataclasses.Field) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return "its defaults"
    if field.default is dataclasses.MISSING:
        return "-"
    if field.default is None:
        return "unset"
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"


def _format_type(hint: object) -> str:
    if typing.get_origin(hint) is tuple:
        return f"list of {typing.get_args(hint)[0].__name__}"
    if kinds := [kind for kind in typing.get_args(hint) if kind is not type(None)]:
        return " or ".join(map(_format_type, kinds))
    return getattr(hint, "__name__", str(hint))


def _format_section(title: str, cls: type, listed: set[tuple[str, str]]) -> str:
    hints, descriptions = typing.get_type_hints(cls), describe_fields(cls)
    choices = {name: about.get("choices") for name, about in settings.describe(cls).items()}
    if cls is train_config.Phase:  # its fields are named like those of the run
        descriptions = describe_fields(train_config.PretrainConfig) | descriptions
    rows = []
    for field in dataclasses.fields(cls):
        default = _format_default(field)
        if (field.name, default) in listed:
            continue
        kind = " ".join(f"`{x}`" for x in choices[field.name] or ())
        kind = kind or _format_type(hints[field.name])
        rows.append(
            f"| `{field.name}` | {kind} | {default} "
            f"| {descriptions[field.name].replace('|', '/')} |"
        )
    table = ["| Field | Type | Default | |", "|---|---|---|---|", *rows]
    return "\n".join([f"## {title}", "", (inspect.getdoc(cls) or "").split("\n\n")[0], "", *table])


def make_page() -> str:
    """Returns the page."""
    common = {
        (field.name, _format_default(field))
        for field in dataclasses.fields(train_config.TrainConfig)
    }
    parts = [INTRODUCTION.rstrip()]
    for title, cls in SECTIONS:
        is_run = issubclass(cls, train_config.TrainConfig) and cls is not train_config.TrainConfig
        parts.append(_format_section(title, cls, common if is_run else set()))
    presets = "\n".join(
        f"| `{name}` | {x.num_hidden_layers} | {x.hidden_size} | {x.num_attention_heads} "
        f"| {x.embedding_size} | {x.hidden_dropout_prob} | {x.cross_layer_sharing} |"
        for name, x in config.PRESETS.items()
    )
    parts.append(
        "## Presets\n\n`--set albert=NAME`.\n\n"
        "| Name | Layers | Hidden size | Heads | Embedding size | Dropout | Shares |\n"
        f"|---|---|---|---|---|---|---|\n{presets}"
    )
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    TARGET.write_text(make_page(), encoding="utf-8")
