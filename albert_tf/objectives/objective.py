"""Defines `Objective`: what a pre-training or fine-tuning run learns."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras

from albert_tf.model.losses import Loss
from albert_tf.records.features import Features
from albert_tf.tokenizers.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Objective:
    """What a run learns.

    Attributes:
        loss: the sums and counts of a batch, whose means are minimized.
        best_by: the metric whose highest value selects the best checkpoint.
        list_features: config -> features of the records that the model reads.
        make_model: config -> the model, called with a batch, `training` and `seed`, and its
            trainable weights. A gradient must reach each: LAMB would let others decay to nothing.
        initialize: (model, config, paths of the records, tokenizer) sets the weights of a new model
            whose initial values differ from the constructor's; None if there are none.
    """

    loss: Loss
    best_by: str
    list_features: Callable[[Any], Features]
    make_model: Callable[[Any], tuple[keras.Model, list[keras.Variable]]]
    initialize: Callable[[Any, Any, Sequence[str], Tokenizer], None] | None = None
