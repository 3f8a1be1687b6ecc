"""Guesses the pieces behind [MASK]: the quickest look at a pre-trained model."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.errors import UserError
from albert_tf.model import albert_model
from albert_tf.pipelines import pretraining_evaluation
from albert_tf.records import features
from albert_tf.tokenizers import tokenization
from albert_tf.train import run_dir


class Guess(NamedTuple):
    """One piece for one [MASK] and its probability."""

    piece: str
    probability: float


def load(
    workdir: str, checkpoint: str | None
) -> tuple[albert_model.AlbertForPretraining, tokenization.Tokenizer]:
    _, network, _ = pretraining_evaluation.load(workdir, checkpoint)
    return network, tokenization.load(run_dir.vocabulary_path(workdir))


def fill_mask(
    network: albert_model.AlbertForPretraining,
    tokenizer: tokenization.Tokenizer,
    text: str,
    *,
    top_k: int = 5,
) -> list[list[Guess]]:
    """For each [MASK] in `text` the `top_k` likeliest pieces, best first.

    Raises `UserError` if there is no [MASK] in the text, or it is too long for the model.
    """
    ids = [tokenizer.cls_id, *tokenizer.encode_with_masks(text), tokenizer.sep_id]
    positions = [i for i, piece in enumerate(ids) if piece == tokenizer.mask_id]
    if not positions:
        raise UserError(f"no [MASK] in {text!r}. Put [MASK] where a word is to be guessed.")
    longest = network.albert.config.max_position_embeddings
    if len(ids) > longest:
        raise UserError(f"a text of {len(ids)} tokens is over {longest}. Shorten it.")
    batch = {features.INPUT_IDS: ids, features.MASKED_LM_POSITIONS: positions}
    outputs = network({name: tf.constant([row]) for name, row in batch.items()})
    logits = tf.cast(outputs["masked_lm_logits"][0], tf.float32)
    probabilities = tf.nn.softmax(logits).numpy()  # [P, V]
    best = np.argsort(-probabilities, axis=-1)[:, :top_k]
    return [
        [Guess(tokenizer.id_to_piece(int(i)), float(row[i])) for i in indices]
        for row, indices in zip(probabilities, best, strict=True)
    ]
