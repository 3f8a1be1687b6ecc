"""The model of a task: ALBERT and a head of `task_heads`."""

import random
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.errors import require_choice
from albert_tf.kinds import task_table
from albert_tf.kinds.task_table import Task
from albert_tf.model import albert_model, task_heads, xla
from albert_tf.model.albert_model import Albert, Batch
from albert_tf.model.keras_model import ConfiguredModel
from albert_tf.records import features, model_inputs
from albert_tf.train_config import FinetuneConfig


@keras.saving.register_keras_serializable("albert_tf")
class AlbertForTask(ConfiguredModel):
    """A batch of `features.finetuning` -> the outputs of the head, float32 (see `task_heads`).

    `classification`, `multi_label` and `multiple_choice` give {"logits": [B, C]}, `regression`
    [B, 1], `token_classification` [B, S, C], `span` {"start_logits", "end_logits": [B, S]};
    `span_or_none` those of `task_heads.SpanOrNone`; embeddings {"embedding": [B, D]}, in training
    [B * C, D] of the C texts of each example.

    `head` is one of `task_heads.HEADS`; `seed` and `kwargs` are those of `Albert`.
    """

    def __init__(
        self,
        config: AlbertConfig,
        head: str,
        sizes: task_heads.HeadSizes,
        *,
        seed: int = 0,
        dtype: str | None = None,
        name: str = "albert_for_task",
        **kwargs: Any,
    ):
        require_choice("head", head, tuple(task_heads.HEADS))
        own = {"head": head, "sizes": list(sizes)}
        super().__init__(config, seed=seed, dtype=dtype, name=name, **own, **kwargs)
        dtype = self.dtype_policy.name
        sizes = task_heads.HeadSizes(*sizes)  # a list, of a saved model
        self.required_inputs = (features.P_MASK,) if head == task_table.SPAN_OR_NONE else ()
        self.albert = Albert(config, seed=seed, dtype=dtype, **kwargs)
        self.head = task_heads.HEADS[head](config, random.Random(seed + 1), sizes, dtype=dtype)
        self.choices = sizes.classes if head == "multiple_choice" else 1
        self.texts = sizes.classes if head in task_heads.EMBEDDINGS else 1
        self.built = True

    def call(self, batch: Batch, training=False, seed=None) -> Mapping[str, tf.Tensor]:
        batch, number = self.read_inputs(batch, training), self.count_sequences(training)
        tokens = {name: model_inputs.split(batch[name], number) for name in model_inputs.TOKENS}
        with xla.trace_options(checks_values=False):
            return self.apply(tokens, batch, training=training, seed=seed)

    def count_sequences(self, training: bool) -> int:
        return self.texts if training and self.texts > 1 else self.choices

    def apply(
        self, tokens: Batch, batch: Batch, training=False, seed=None
    ) -> Mapping[str, tf.Tensor]:
        """`call`, where each of the choices is a sequence of its own: `tokens` are [B * C, S]."""
        config, pooled = self.config, self.reads_pooled_output
        rates = [config.hidden_dropout_prob, config.attention_probs_dropout_prob]
        rates.append(config.classifier_dropout_prob)
        seed = self.choose_seed(seed, rates, training=training)
        # The last block need not compute any other token than the first.
        positions = albert_model.no_positions(tokens) if pooled else None
        options = {"training": training, "seed": seed}
        choices = {"positions": positions, "pooled": pooled}
        choices["skips_padding"] = not self.reads_padding
        outputs = self.albert(tokens, **choices, **options)
        return self.head(outputs[self.head.reads], {**batch, **tokens}, **options)

    @property
    def reads_pooled_output(self) -> bool:
        """Whether the head reads the pooler's vectors; a head of tokens does not."""
        return self.head.reads == "pooled_output"

    @property
    def reads_padding(self) -> bool:
        """Whether the loss depends on vectors at padding, as that of SQuAD 1.1 published does."""
        return self.head.reads_padding

    def trained_weights(self) -> list[keras.Variable]:
        """The weights that a gradient reaches: a head of tokens leaves the pooler as it is."""
        unreached = self.albert.pooler.trainable_weights
        left_out = set() if self.reads_pooled_output else {id(w) for w in unreached}
        return [weight for weight in self.trainable_weights if id(weight) not in left_out]


def choose_head(config: FinetuneConfig, task: Task) -> str:
    """Returns the head of a task's model, a key of `task_heads.HEADS`."""
    if task.kind == task_table.SPAN_OR_NONE and config.null_answer == "null_score":
        return task_table.SPAN
    if task.kind == task_table.SENTENCE_EMBEDDING and config.pooling == "first":
        return "first_embedding"
    return task.kind


def make_task_model(
    config: FinetuneConfig, task: Task
) -> tuple[AlbertForTask, list[keras.Variable]]:
    """Returns a model with the head of a task, and the weights that are trained."""
    classes = task.num_texts if task.kind == task_table.SENTENCE_EMBEDDING else len(task.labels)
    sizes = task_heads.HeadSizes(classes, config.start_n_top, config.end_n_top)
    model = AlbertForTask(
        config.albert,
        choose_head(config, task),
        sizes,
        seed=config.seed,
        rematerialize=config.rematerialize,
        layer_loop=config.layer_loop,
        dtype=config.dtype,
    )
    return model, model.trained_weights()
