"""Configuration: frozen dataclasses, read once at the top of a program.

Fields of `AlbertConfig` are the keys of the published `albert_config.json`.
"""

import dataclasses
import json
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from albert_tf import checks, files
from albert_tf.errors import UserError

SHARING = ("all", "attention", "ffn", "none")
ACTIVATIONS = ("gelu", "relu", "tanh", "linear")
SENTENCE_TASKS = ("sop", "nsp", "none")
DTYPES = ("float32", "mixed_bfloat16")
# Numbers of a pre-training config that may be 0.
MAY_BE_ZERO = {"num_warmup_steps", "eval_steps", "max_eval_examples", "max_rollbacks", "seed"}
# Keys of published files that nothing ever read.
DEAD_KEYS = frozenset(
    {"down_scale_factor", "net_structure_type", "gap_size", "num_memory_blocks", "layers_to_keep"}
)

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlbertConfig:
    """The model. Defaults are albert_base_v2.

    Attributes:
        vocab_size: number of pieces.
        embedding_size: E; if it equals `hidden_size` there is no mapping between the two (BERT).
        hidden_size: D.
        num_hidden_layers: steps through the encoder.
        num_hidden_groups: sets of weights that the steps share; 1 in every published model.
        inner_group_num: blocks a step runs, one after the other.
        cross_layer_sharing: what the layers of a group share: `all` (ALBERT), `attention`, `ffn`,
            or `none` (BERT).
        num_attention_heads: N.
        intermediate_size: I.
        hidden_act: `gelu` is the tanh approximation, as published.
        hidden_dropout_prob: after the embeddings, the attention output and the feed-forward output.
        attention_probs_dropout_prob: on the attention probabilities.
        classifier_dropout_prob: on the pooled output, in the heads of tasks.
        max_position_embeddings: longest sequence.
        type_vocab_size: number of segments.
        initializer_range: standard deviation of the truncated normal.
    """

    vocab_size: int = 30000
    embedding_size: int = 128
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_hidden_groups: int = 1
    inner_group_num: int = 1
    cross_layer_sharing: str = "all"
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    classifier_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        checks.choice("cross_layer_sharing", self.cross_layer_sharing, SHARING)
        checks.choice("hidden_act", self.hidden_act, ACTIVATIONS)
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type is int:
                checks.require(value > 0, f"{field.name} must be at least 1.")
            elif field.name.endswith("_prob"):
                checks.require(0 <= value < 1, f"{field.name} must be in [0, 1).")
        size, heads = self.hidden_size, self.num_attention_heads
        message = f"hidden_size {size} is not a multiple of num_attention_heads {heads}."
        checks.require(size % heads == 0, message)
        layers, groups = self.num_hidden_layers, self.num_hidden_groups
        checks.require(
            groups <= layers, f"num_hidden_groups {groups} is over num_hidden_layers {layers}."
        )
        depth = layers * self.inner_group_num  # a damaged number would take for ever
        checks.require(depth <= 1000, f"num_hidden_layers x inner_group_num is {depth}, over 1000.")


def _albert(hidden: int, layers: int, heads: int, dropout: float, **more: Any) -> AlbertConfig:
    return AlbertConfig(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        **more,
    )


def _bert(hidden: int, layers: int, heads: int) -> AlbertConfig:
    return _albert(hidden, layers, heads, 0.1, embedding_size=hidden, cross_layer_sharing="none")


# The paper's models (v1: dropout 0.1 except xxlarge; v2: none), its BERT baselines, two small ones.
# xlarge has 16 heads in most published files, 32 by the paper's rule "hidden size / 64".
PRESETS: dict[str, AlbertConfig] = {
    "albert_tiny": _albert(312, 4, 12, 0.0),
    "albert_small": _albert(384, 6, 12, 0.0),
    "albert_base_v1": _albert(768, 12, 12, 0.1),
    "albert_large_v1": _albert(1024, 24, 16, 0.1),
    "albert_xlarge_v1": _albert(2048, 24, 16, 0.1),
    "albert_xxlarge_v1": _albert(4096, 12, 64, 0.0),
    "albert_base_v2": _albert(768, 12, 12, 0.0),
    "albert_large_v2": _albert(1024, 24, 16, 0.0),
    "albert_xlarge_v2": _albert(2048, 24, 16, 0.0),
    "albert_xxlarge_v2": _albert(4096, 12, 64, 0.0),
    "bert_base": _bert(768, 12, 12),
    "bert_large": _bert(1024, 24, 16),
    "bert_xlarge": _bert(2048, 24, 32),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """One pre-training run. Defaults are the paper's (batch 4096, LAMB, 125,000 updates).

    Attributes:
        albert: the model; in a file also the name of a preset.
        sentence_task: `sop`, `nsp` or `none`; what the records must hold.
        max_seq_length: S.
        max_predictions_per_seq: P.
        train_batch_size: sequences of one update, over all replicas and micro-batches.
        eval_batch_size: sequences of one evaluation step, over all replicas.
        num_train_steps: updates.
        num_micro_batches: parts into which a replica cuts its share of a batch, to save memory.
        optimizer: `lamb` or `adamw`.
        bias_correction: of the moments, as in LAMB's paper; the published code has none.
        learning_rate: at the top of the warm-up.
        num_warmup_steps: updates from 0 to that.
        poly_power: of the decay to 0 at `num_train_steps`.
        weight_decay_rate: applied to all but biases and LayerNorm.
        max_grad_norm: the gradient, summed over replicas, is clipped to this global norm.
        dtype: `mixed_bfloat16` computes products in bfloat16; weights, LayerNorm, softmax and
            losses are float32.
        rematerialize: compute activations again in the backward pass: less memory, more time.
        layer_loop: the same in one loop over layers that share all weights: compiles sooner.
        jit_compile: compile the step with XLA. Unset: on for one GPU, off for CPUs.
        seed: of weights, dropout and the order of the data.
        shuffle_buffer_size: records.
        steps_per_loop: updates that run on the device between two visits of the host, which reports
            and answers SIGTERM.
        save_checkpoints_steps: updates between two checkpoints.
        eval_steps: updates between two evaluations; 0 evaluates at the end alone.
        max_eval_examples: how many are evaluated during training; 0 takes all.
        keep_checkpoint_max: newest checkpoints kept, beside the best.
        max_rollbacks: how often a loss that is not finite returns to the last checkpoint, skipping
            the data since; then it stops.
    """

    albert: AlbertConfig = AlbertConfig()
    sentence_task: str = "sop"
    max_seq_length: int = 512
    max_predictions_per_seq: int = 20
    train_batch_size: int = 4096
    eval_batch_size: int = 64
    num_micro_batches: int = 1
    num_train_steps: int = 125_000
    optimizer: str = "lamb"
    bias_correction: bool = False
    learning_rate: float = 0.00176
    num_warmup_steps: int = 3125
    poly_power: float = 1.0
    weight_decay_rate: float = 0.01
    max_grad_norm: float = 1.0
    dtype: str = "mixed_bfloat16"
    rematerialize: bool = False
    layer_loop: bool = False
    jit_compile: bool | None = None
    seed: int = 12345
    shuffle_buffer_size: int = 10_000
    steps_per_loop: int = 100
    save_checkpoints_steps: int = 5000
    eval_steps: int = 5000
    max_eval_examples: int = 0
    keep_checkpoint_max: int = 5
    max_rollbacks: int = 0

    def __post_init__(self) -> None:
        checks.choice("sentence_task", self.sentence_task, SENTENCE_TASKS)
        checks.choice("dtype", self.dtype, DTYPES)
        checks.numbers(self, MAY_BE_ZERO)
        checks.layer_loop(self)
        checks.require(self.max_grad_norm > 0, "max_grad_norm must be more than 0.")
        checks.require(
            self.num_warmup_steps < self.num_train_steps,
            f"num_warmup_steps {self.num_warmup_steps} is not below num_train_steps "
            f"{self.num_train_steps}.",
        )
        checks.require(
            self.max_seq_length <= self.albert.max_position_embeddings,
            f"max_seq_length {self.max_seq_length} is over albert.max_position_embeddings "
            f"{self.albert.max_position_embeddings}. Shorten the sequences or raise it.",
        )


def from_dict(cls: type[T], values: Mapping[str, Any], where: str = "config") -> T:
    """Builds a config from JSON values; a nested one may be an object or the name of a preset.

    Raises:
        UserError: an unknown key (lists the known ones), or a value of a wrong type or size.
    """
    checks.require(isinstance(values, Mapping), f"{where} does not hold a JSON object.")
    hints = typing.get_type_hints(cls)
    dead = DEAD_KEYS if cls is AlbertConfig else frozenset()
    if unknown := sorted(set(values) - set(hints) - dead):
        raise UserError(f"{where}: unknown key {unknown[0]!r}. Known: {', '.join(sorted(hints))}.")
    found = {k: _convert(hints[k], v, f"{where}: {k}") for k, v in values.items() if k in hints}
    try:
        return cls(**found)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def _convert(kind: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        if isinstance(value, str):
            return preset(value)
        checks.require(
            isinstance(value, Mapping), f"{where} must be an object or the name of a preset."
        )
        return from_dict(kind, value, where)  # type: ignore[arg-type]
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if float in kinds and type(value) is int:
        return float(value)
    if type(value) not in kinds:
        raise UserError(
            f"{where} must be of type {' or '.join(k.__name__ for k in kinds)}, not {value!r}."
        )
    return value


def preset(name: str) -> AlbertConfig:
    """A preset by its name.

    Raises:
        UserError: there is none of that name; lists them.
    """
    if name not in PRESETS:
        raise UserError(f"unknown preset {name!r}. Known: {', '.join(PRESETS)}.")
    return PRESETS[name]


to_dict = dataclasses.asdict


def load(cls: type[T], path: str | None, overrides: Sequence[str] = (), defaults: Any = None) -> T:
    """`defaults`, then the JSON file at `path`, then overrides: `albert.num_hidden_layers=2`."""
    values = files.read_json(path, "--config") if path else {}
    checks.require(isinstance(values, dict), f"--config: {path!r} does not hold a JSON object.")
    values = _merged(defaults or {}, values)
    for override in overrides:
        _set(values, override)
    return from_dict(cls, values, path or "config")


def _merged(one: Any, other: Any) -> Any:
    """Of two objects, key by key; of other values the second."""
    if not (isinstance(one, Mapping) and isinstance(other, Mapping)):
        return other
    return {**one, **{key: _merged(one.get(key), value) for key, value in other.items()}}


def parse(override: str) -> tuple[str, Any]:
    """`key=value` -> the key, and the value: of JSON, else a bare word, which is a string."""
    name, equals, text = override.partition("=")
    checks.require(bool(equals), f"--set: {override!r} is not of the form key=value.")
    try:
        return name, json.loads(text)
    except ValueError:
        return name, text


def _set(values: dict[str, Any], override: str) -> None:
    name, value = parse(override)
    *parents, key = name.split(".")
    for parent in parents:
        inner = values.setdefault(parent, {})
        if isinstance(inner, str):
            inner = values[parent] = to_dict(preset(inner))
        if not isinstance(inner, dict):
            raise UserError(f"--set: {override!r}: {parent!r} holds no other keys.")
        values = inner
    values[key] = value


def save(config: Any, path: str) -> None:
    files.write_json(path, to_dict(config))
