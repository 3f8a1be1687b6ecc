"""The model of a task: ALBERT and a head of `task_heads`."""

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.errors import require
from albert_tf.model import albert_model, layers, task_heads, xla
from albert_tf.model.albert_model import Albert, Batch
from albert_tf.model.keras_model import ConfiguredModel
from albert_tf.records import model_inputs


@keras.saving.register_keras_serializable("albert_tf")
class AlbertForTask(ConfiguredModel):
    """A batch of task records -> the outputs of the head, float32 (see `task_heads`).

    Classes, labels and choices have {"logits": [B, C]}, numbers [B, 1], tags [B, S, C]; answers
    have {"start_logits", "end_logits": [B, S]} or the outputs of `task_heads.SpanOrNone`;
    embeddings have {"embedding": [B, D]}, in training [B * C, D] for the C texts of each example.

    `head` is a class of `task_heads`, or its name; `seed` and `kwargs` are as in `Albert`.
    """

    def __init__(
        self,
        config: AlbertConfig,
        head: Any,
        sizes: task_heads.HeadSizes,
        *,
        seed: int | None = 0,
        dtype: str | None = None,
        name: str = "albert_for_task",
        **kwargs: Any,
    ):
        head = getattr(task_heads, head) if isinstance(head, str) else head
        own = {"head": head.__name__, "sizes": list(sizes)}
        super().__init__(config, seed=seed, dtype=dtype, name=name, **own, **kwargs)
        dtype = self.dtype_policy.name
        sizes = task_heads.HeadSizes(*sizes)  # a list, of a saved model
        self.required_inputs = head.required_inputs
        self.albert = Albert(config, seed=seed, dtype=dtype, **kwargs)
        self.head = head(config, layers.make_rng(seed, 1), sizes, dtype=dtype)
        self.choices = sizes.classes if head.takes_choices else 1
        self.texts = sizes.classes if head.takes_texts else 1
        self.built = True

    def fit(self, *args: Any, **options: Any) -> Any:
        """Trains as in Keras; `UserError` for a head whose loss Keras does not have."""
        require(not self.head.unfit, self.head.unfit)
        return super().fit(*args, **options)

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
        """Does the work of `call`, with one sequence per choice: `tokens` are [B * C, S]."""
        config, pooled = self.config, self.reads_pooled_output
        rates = [config.hidden_dropout_prob, config.attention_probs_dropout_prob]
        rates.append(config.classifier_dropout_prob)
        seed = self.choose_seed(seed, rates, training=training)
        # The last block only needs the first token.
        positions = albert_model.no_positions(tokens) if pooled else None
        options = {"training": training, "seed": seed, "positions": positions, "pooled": pooled}
        options["skips_padding"] = not self.reads_padding
        return self.head.run(self.albert, tokens, batch, **options)

    @property
    def reads_pooled_output(self) -> bool:
        """Whether the head reads the pooler's output; token heads do not."""
        return self.head.reads == "pooled_output"

    @property
    def reads_padding(self) -> bool:
        """Whether the loss depends on outputs at padding, as in the published SQuAD 1.1 head."""
        return self.head.reads_padding

    def trained_weights(self) -> list[keras.Variable]:
        """The weights that a gradient reaches: a token head leaves the pooler unchanged."""
        unreached = self.albert.pooler.trainable_weights
        left_out = set() if self.reads_pooled_output else {id(w) for w in unreached}
        return [weight for weight in self.trainable_weights if id(weight) not in left_out]
