"""The model's configuration and the presets of the paper.

Fields of `AlbertConfig` are the keys of the published `albert_config.json`.
"""

import dataclasses
from typing import Any

from albert_tf import settings
from albert_tf.errors import require
from albert_tf.settings import Probability, setting

SHARING = ("all", "attention", "ffn", "none")
ACTIVATIONS = ("gelu", "relu", "tanh", "linear", "gelu_erf")
# Keys in published files that no program ever read, with their values; the published
# `run_pretraining` requires the first.
DEAD_KEYS: dict[str, Any] = {
    "net_structure_type": 0,
    "gap_size": 0,
    "num_memory_blocks": 0,
    "down_scale_factor": 1,
    "layers_to_keep": [],
}
# transformers' names of the models that can be read here.
MODEL_TYPES = ("albert", "bert")
# Fields that no other program has.
OWN_KEYS = ("cross_layer_sharing",)
# The key in a file for a head whose single output is a number; it is not a field.
PROBLEM_TYPE, REGRESSION = "problem_type", "regression"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlbertConfig:
    """The model. Defaults are albert_base_v2."""

    vocab_size: int = setting("number of tokens", 30000)
    embedding_size: int = setting(
        "E; if it equals `hidden_size`, there is no mapping between the two (BERT)", 128
    )
    hidden_size: int = setting("D", 768)
    num_hidden_layers: int = setting("steps through the encoder", 12)
    num_hidden_groups: int = setting(
        "sets of weights that the steps share; 1 in all published models", 1
    )
    inner_group_num: int = setting("blocks per step, in sequence", 1)
    cross_layer_sharing: str = setting(
        "what a group shares: `all` in ALBERT, `none` in BERT", "all", choices=SHARING
    )
    num_attention_heads: int = setting("N", 12)
    intermediate_size: int = setting("I", 3072)
    hidden_act: str = setting(
        "`gelu` is the tanh approximation, as published; `gelu_erf` is exact",
        "gelu",
        choices=ACTIVATIONS,
    )
    hidden_dropout_prob: Probability = setting(
        "dropout after the embeddings, the attention output and the feed-forward output", 0.0
    )
    attention_probs_dropout_prob: Probability = setting(
        "dropout on the attention probabilities", 0.0
    )
    classifier_dropout_prob: Probability = setting(
        "dropout on the pooled output, in task heads", 0.1
    )
    max_position_embeddings: int = setting("longest sequence", 512)
    type_vocab_size: int = setting("number of segments", 2)
    initializer_range: float = setting(
        "standard deviation of the initial truncated normal distribution", 0.02
    )

    def __post_init__(self) -> None:
        settings.check(self)
        size, n = self.hidden_size, self.num_attention_heads
        require(size % n == 0, f"hidden_size {size} is not a multiple of num_attention_heads {n}.")
        layers, groups = self.num_hidden_layers, self.num_hidden_groups
        require(
            groups <= layers, f"num_hidden_groups {groups} is more than num_hidden_layers {layers}."
        )

    @property
    def is_bert(self) -> bool:
        """Whether the model is a BERT: separate layers, and embeddings as wide as hidden states."""
        has_mapping = self.embedding_size != self.hidden_size
        return self.cross_layer_sharing == "none" and self.inner_group_num == 1 and not has_mapping

    @property
    def num_blocks(self) -> int:
        return self.num_hidden_layers * self.inner_group_num

    def group_of_step(self, kind: str) -> tuple[int, ...]:
        """Returns the set of weights for each step's `attention` or `ffn` (paper, 3.1 and 4.5)."""
        steps = self.num_hidden_layers
        groups = self.num_hidden_groups if self.cross_layer_sharing in ("all", kind) else steps
        # Whole numbers: the published int(step / steps * groups) is off by one for some sizes.
        return tuple(step * groups // steps for step in range(steps))

    def num_groups(self, kind: str) -> int:
        """Returns the number of sets of weights for the `attention` or `ffn` of the steps."""
        return self.group_of_step(kind)[-1] + 1


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


def preset(name: str) -> AlbertConfig:
    """Returns a preset by name; raises `UserError`, with the list, for an unknown name."""
    require(name in PRESETS, f"unknown preset {name!r}. Known: {', '.join(PRESETS)}.")
    return PRESETS[name]
