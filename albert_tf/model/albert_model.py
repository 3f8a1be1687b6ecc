"""The ALBERT encoder, and the pre-training model."""

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.model import encoder, layers, pretraining_heads, token_layout, xla
from albert_tf.model.keras_model import ConfiguredModel
from albert_tf.records import features, model_inputs

Batch = Mapping[str, tf.Tensor]


@keras.saving.register_keras_serializable("albert_tf")
class Albert(ConfiguredModel):
    """The encoder: a batch of ids -> an embedding of each token, and one of the sequence.

        model = Albert(PRESETS["albert_base_v2"])
        outputs = model({"input_ids": ids, "input_mask": mask, "segment_ids": segments})

    `input_mask` (1 for tokens, 0 for padding; default all ones) and `segment_ids` (default zeros)
    are optional. All are [B, S] integers. Returns float tensors in the compute dtype:

        sequence_output  [B, S, D]
        pooled_output    [B, D], tanh(dense(first token))
        encoder_outputs  list of [B, S, D], one per block

    With `positions=` ([B, R] integers), the last block computes only the first token and these,
    which is faster: `sequence_output` is [B, R, D], the last of `encoder_outputs` [B, 1 + R, D].
    With `skips_padding`, outputs at padding are 0, and on a CPU or GPU nothing is computed for
    them, unless XLA compiles the whole graph; outputs of tokens are the same.
    With `pooled=False` there is no `pooled_output`, and a graph does not read the pooler's weights.
    With `num_blocks`, only the first blocks run, as if the model had no others.

    Args:
        seed: the seed of the initial weights; None: matrices are zeros.
        rematerialize: keep only the input of each block, and recompute the rest for gradients.
        layer_loop: the same in one loop over the layers, which must share all weights; in training,
            `encoder_outputs` then has only the last block's output.
        dtype: `float32` or `mixed_bfloat16` (weights are float32 in both); by default Keras's
            global policy.

    With dropout, `training=True` uses `seed=` ([2] int32, different for every step and replica), or
    draws one from the model's generator, as in Keras's `fit`. Raises `UserError` as
    `model_inputs.read` does, which also lists other names of the inputs.
    """

    def __init__(
        self,
        config: AlbertConfig,
        *,
        seed: int | None = 0,
        rematerialize: bool = False,
        layer_loop: bool = False,
        dtype: str | None = None,
        name: str = "bert",
    ):
        options = {"rematerialize": rematerialize, "layer_loop": layer_loop}
        super().__init__(config, seed=seed, dtype=dtype, name=name, **options)
        dtype = self.dtype_policy.name
        rng = layers.make_rng(seed)
        with layers.scope("bert"):
            self.embeddings = layers.Embeddings(config, rng, dtype=dtype)
            self.encoder = encoder.SharedEncoder(config, rng, dtype=dtype, **options)
            with layers.scope("pooler"):
                self.pooler = layers.Dense(
                    config.hidden_size, config.hidden_size, config, rng, name="dense", dtype=dtype
                )
        self.built = True

    def call(
        self,
        batch: Batch,
        training=False,
        seed=None,
        positions=None,
        pooled=True,
        skips_padding=False,
        num_blocks=None,
    ) -> dict[str, Any]:
        batch = self.read_inputs(batch)
        ids, mask, segments = (batch[name] for name in model_inputs.TOKENS)
        rates = self.config.hidden_dropout_prob, self.config.attention_probs_dropout_prob
        seed = self.choose_seed(seed, rates, training=training)
        options = {"training": training, "seed": seed}
        options["layout"] = layout = self._make_layout(mask, training, skips_padding)
        x = self.embeddings(ids, segments, **options)
        if positions is not None:
            positions = tf.pad(positions, [[0, 0], [1, 0]])  # the pooler reads the first token
        *outputs, last = self.encoder(x, positions=positions, num_blocks=num_blocks, **options)
        outputs = [layout.restore(x) for x in outputs]
        if positions is not None:
            last = layout.restore_queries(last, positions)
        elif skips_padding and isinstance(layout, token_layout.PaddedLayout):
            last = layout.restore(last) * tf.cast(mask, last.dtype)[:, :, tf.newaxis]
        else:
            last = layout.restore(last)
        sequence_output = last if positions is None else last[:, 1:]
        vectors = {"sequence_output": sequence_output, "encoder_outputs": [*outputs, last]}
        return vectors | {"pooled_output": self.pool(last[:, 0])} if pooled else vectors

    def pool(self, first: tf.Tensor) -> tf.Tensor:
        """Returns `pooled_output` for the outputs of the first tokens, [B, D]."""
        return tf.tanh(self.pooler(first))

    def embed(self, batch: Batch) -> tf.Tensor:
        """Returns the input of the first block, [B, S, D], without dropout; arguments of `call`."""
        batch = self.read_inputs(batch)
        ids, mask, segments = (batch[name] for name in model_inputs.TOKENS)
        layout = self._make_layout(mask, False, False)
        x = self.embeddings(ids, segments, training=False, seed=None, layout=layout)
        return layout.restore(self.encoder.project(x))

    def _make_layout(self, mask, training, skips_padding):
        heads = self.config.num_attention_heads
        if skips_padding and xla.has_dynamic_shapes():
            return token_layout.make_layout(mask, heads, training=training)
        return token_layout.PaddedLayout(mask, heads)


def no_positions(batch: Batch) -> tf.Tensor:
    """Returns `positions` [B, 0], with which the last block computes only the first token."""
    return tf.zeros([tf.shape(batch[features.INPUT_IDS])[0], 0], tf.int32)


@keras.saving.register_keras_serializable("albert_tf")
class AlbertForPretraining(ConfiguredModel):
    """ALBERT with the two pre-training heads.

    A batch of `features.pretraining` -> {"masked_lm_logits": [B, P, V], in the compute dtype,
    "sentence_order_logits": [B, 2], float32}. Arguments are as in `Albert`, plus `num_words`, W:
    then the second head predicts the word of each token, "word_logits": [B * S, W], float32.
    """

    required_inputs = (features.MASKED_LM_POSITIONS,)

    def __init__(
        self,
        config: AlbertConfig,
        *,
        num_words: int = 0,
        seed: int | None = 0,
        dtype: str | None = None,
        name: str = "albert_for_pretraining",
        **kwargs: Any,
    ):
        options = {"num_words": num_words, **kwargs}
        super().__init__(config, seed=seed, dtype=dtype, name=name, **options)
        self.num_words = num_words
        dtype = self.dtype_policy.name
        self.albert = Albert(config, seed=seed, dtype=dtype, **kwargs)
        rng = layers.make_rng(seed, 1)
        with layers.scope("cls"):
            embeddings = self.albert.embeddings
            self.masked_lm = pretraining_heads.MaskedLm(config, rng, embeddings, dtype=dtype)
            classes, name = (num_words, "words") if num_words else (2, "seq_relationship")
            self.second_head = pretraining_heads.ClassWeights(
                config, rng, classes, name=name, dtype=dtype
            )
        self.built = True

    def call(
        self, batch: Batch, training=False, seed=None, num_blocks=None
    ) -> dict[str, tf.Tensor]:
        batch = self.read_inputs(batch)
        positions = batch[features.MASKED_LM_POSITIONS]
        options = {"training": training, "seed": seed, "skips_padding": True}
        options["num_blocks"] = num_blocks
        options |= {"pooled": False} if self.num_words else {"positions": positions}
        with xla.trace_options(checks_values=False):
            outputs = self.albert(batch, **options)
        x = outputs["sequence_output"]
        if self.num_words:
            flat = tf.reshape(x, [-1, self.config.hidden_size])
            second = {"word_logits": self.second_head.scores(flat)}
            x = tf.gather(x, positions, batch_dims=1)
        else:
            pooled = outputs["pooled_output"]
            second = {"sentence_order_logits": self.second_head.scores(pooled)}
        return {"masked_lm_logits": self.masked_lm(x, training=training), **second}
