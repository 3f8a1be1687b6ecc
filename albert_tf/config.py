"""The model's configuration and the presets of the paper.

Fields of `AlbertConfig` are the keys of the published `albert_config.json`.
"""

import dataclasses
from typing import Any

from albert_tf.errors import require, require_choice, require_range

SHARING = ("all", "attention", "ffn", "none")
ACTIVATIONS = ("gelu", "relu", "tanh", "linear", "gelu_erf")
# Keys of published files that no program ever read, with their values; the published
# `run_pretraining` requires the first.
DEAD_KEYS: dict[str, Any] = {
    "net_structure_type": 0,
    "gap_size": 0,
    "num_memory_blocks": 0,
    "down_scale_factor": 1,
    "layers_to_keep": [],
}
# The key of a file that says that a head of one output gives a number; it is no field either.
PROBLEM_TYPE = "problem_type"

# Far above every model there is: a damaged number would fill the memory. Others end at 65,536.
_HIGHEST = {
    "vocab_size": 10_000_000,
    "intermediate_size": 1_000_000,
    "max_position_embeddings": 1_000_000,
    "num_hidden_layers": 1000,
    "inner_group_num": 1000,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlbertConfig:
    """The model. Defaults are albert_base_v2."""

    vocab_size: int = 30000  # number of pieces
    # E; if it equals `hidden_size` there is no mapping between the two (BERT)
    embedding_size: int = 128
    hidden_size: int = 768  # D
    num_hidden_layers: int = 12  # steps through the encoder
    num_hidden_groups: int = 1  # sets of weights that the steps share; 1 in every published model
    inner_group_num: int = 1  # blocks a step runs, one after the other
    # what the layers of a group share: `all` (ALBERT), `attention`, `ffn`, or `none` (BERT)
    cross_layer_sharing: str = "all"
    num_attention_heads: int = 12  # N
    intermediate_size: int = 3072  # I
    # `gelu` is the tanh approximation, as published; `gelu_erf` is exact, as other programs train
    hidden_act: str = "gelu"
    # after the embeddings, the attention output and the feed-forward output
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0  # on the attention probabilities
    classifier_dropout_prob: float = 0.1  # on the pooled output, in the heads of tasks
    max_position_embeddings: int = 512  # longest sequence
    type_vocab_size: int = 2  # number of segments
    initializer_range: float = 0.02  # standard deviation of the truncated normal

    def __post_init__(self) -> None:
        require_choice("cross_layer_sharing", self.cross_layer_sharing, SHARING)
        require_choice("hidden_act", self.hidden_act, ACTIVATIONS)
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type is int:
                require_range(field.name, value, 1, _HIGHEST.get(field.name, 65_536))
            elif field.name.endswith("_prob"):
                require(0 <= value < 1, f"{field.name} must be in [0, 1).")
        size, n = self.hidden_size, self.num_attention_heads
        require(size % n == 0, f"hidden_size {size} is not a multiple of num_attention_heads {n}.")
        layers, groups = self.num_hidden_layers, self.num_hidden_groups
        require(groups <= layers, f"num_hidden_groups {groups} is over num_hidden_layers {layers}.")
        depth = self.num_blocks  # a damaged number would take for ever
        require(depth <= 1000, f"num_hidden_layers x inner_group_num is {depth}, over 1000.")

    @property
    def num_blocks(self) -> int:
        return self.num_hidden_layers * self.inner_group_num

    def group_of_step(self, kind: str) -> tuple[int, ...]:
        """The set of weights of each step's `attention` or `ffn` (paper, sections 3.1 and 4.5)."""
        steps = self.num_hidden_layers
        groups = self.num_hidden_groups if self.cross_layer_sharing in ("all", kind) else steps
        # Whole numbers: the published int(step / steps * groups) is off by one for some sizes.
        return tuple(step * groups // steps for step in range(steps))

    def num_groups(self, kind: str) -> int:
        """How many sets of weights the `attention` or `ffn` of the steps have."""
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
    """A preset by its name; `UserError`, which lists them, if there is none."""
    require(name in PRESETS, f"unknown preset {name!r}. Known: {', '.join(PRESETS)}.")
    return PRESETS[name]
