"""Models without a task: an embedding for each token, or guesses for each [MASK]."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from albert_tf import lazy_tensorflow as tf
from albert_tf.kinds import base
from albert_tf.kinds.answer import CUT, TEXT, Answer
from albert_tf.kinds.base import TOKENS, ReplyOptions, Tensors
from albert_tf.kinds.learn import Learn
from albert_tf.kinds.text_data import TextData
from albert_tf.records import features
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train_config import Lengths


class MaskedData(TextData):
    """A text in which [MASK] replaces tokens."""

    def tokenize(
        self, rows: Sequence[Sequence[str]], tokenizer: Tokenizer
    ) -> list[list[base.Tokens]]:
        return [[tokenizer.encode_with_masks(text) for text in texts] for texts in rows]

    def encode_texts(
        self,
        texts: Sequence[Sequence[str]],
        label_ids: np.ndarray,
        tokenizer: Tokenizer,
        lengths: Lengths,
    ) -> base.Records:
        """Returns records with the positions of masks, [N, P], padded with 0."""
        records = super().encode_texts(texts, label_ids, tokenizer, lengths)
        batch = records.make_batch(slice(None))
        rows, columns = np.nonzero(batch[features.INPUT_IDS] == tokenizer.mask_id)
        counts = np.bincount(rows, minlength=len(texts))
        positions = np.zeros([len(texts), counts.max()], np.int32)
        positions[np.arange(positions.shape[1]) < counts[:, np.newaxis]] = columns
        batch = {**batch, features.MASKED_LM_POSITIONS: positions}
        return records._replace(make_batch=lambda rows: {x: y[rows] for x, y in batch.items()})


class EncoderAnswer(Answer):
    """An embedding for each token of a text."""

    description = "gives an embedding for each token of a text"

    def apply(self, network: Any, ids: Tensors, options: ReplyOptions) -> dict[str, Any]:
        outputs = network(ids, skips_padding=True)
        return {
            name: tf.cast(outputs[name], tf.float32)
            for name in ("sequence_output", "pooled_output")
        }

    def respond_to_texts(self, answers: Tensors, ids: Tensors, tokenizer: Any) -> dict[str, Any]:
        """The ids say which token an embedding belongs to."""
        return {**answers, **{x: ids[x] for x in (features.INPUT_IDS, features.INPUT_MASK)}}


class FillMaskAnswer(Answer):
    """Guesses for each [MASK]."""

    description = "guesses the words behind [MASK]"
    view = "guesses"
    asked = "masks"
    parts = frozenset({"encoder", "masked_lm"})
    more_inputs = (features.MASKED_LM_POSITIONS,)
    choices = ("top_k",)
    truncation_note = f"{CUT} A [MASK] beyond the limit has no guesses."

    def make_network(self, config: Any, options: Any) -> Any:
        from albert_tf.model import albert_model

        return albert_model.AlbertForPretraining(config, seed=None, dtype=options.dtype)

    def apply(self, network: Any, ids: Tensors, options: ReplyOptions) -> dict[str, Any]:
        positions = ids[features.MASKED_LM_POSITIONS]
        choices = {"positions": positions, "pooled": False, "skips_padding": True}
        outputs = network.albert({name: ids[name] for name in TOKENS}, **choices)
        logits = network.masked_lm(outputs["sequence_output"])
        return {"masked_lm_logits": tf.cast(logits, tf.float32)}  # [B, P, V]

    def respond(self, outputs: Tensors, options: ReplyOptions) -> dict[str, Any]:
        logits = outputs["masked_lm_logits"]
        best = tf.math.top_k(tf.nn.softmax(logits), min(options.top_k, logits.shape[-1]))
        return {**outputs, "top_ids": best.indices, "top_probabilities": best.values}

    def respond_to_texts(self, answers: Tensors, ids: Tensors, tokenizer: Any) -> dict[str, Any]:
        """Returns tokens and probabilities, [B, P, K], best first; "" and 0 beyond the masks."""
        tokens = tf.constant([tokenizer.id_to_piece(k) for k in range(tokenizer.size)])
        is_mask = (ids[features.MASKED_LM_POSITIONS] > 0)[:, :, tf.newaxis]
        return {
            "tokens": tf.where(is_mask, tf.gather(tokens, answers["top_ids"]), ""),
            "probabilities": tf.where(is_mask, answers["top_probabilities"], 0.0),
        }

    def list_requests(self) -> dict[str, dict[str, list[Any]]]:
        return {TEXT: {TEXT: ["The museum [MASK] at nine and [MASK] at five."]}}


ENCODER, FILL_MASK = "encoder", "fill_mask"
KINDS = (
    base.Kind(ENCODER, TextData(ENCODER), Learn(ENCODER), EncoderAnswer(ENCODER)),
    base.Kind(FILL_MASK, MaskedData(FILL_MASK), Learn(FILL_MASK), FillMaskAnswer(FILL_MASK)),
)
