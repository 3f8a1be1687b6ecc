"""Text with [MASK], inside a graph: where the masks are, and what the model would put there."""

from collections.abc import Mapping

import tensorflow as tf

from albert_tf.records import features
from albert_tf.tokenizers.tokenization import Tokenizer
from export.graph_tokenizer import code_points
from export.graph_tokenizer.graph_tokenizer import GraphTokenizer
from export.requests import packing
from export.requests.packing import Batch


def pack(
    texts: tf.Tensor, tokenizer: GraphTokenizer, vocabulary: Tokenizer, max_seq_length: int
) -> Batch:
    """Texts in which [MASK] stands for a piece, as `albert_tf.pipelines.fill_mask` reads them.

    Args:
        texts: [B].
        tokenizer: of that vocabulary.
        vocabulary: for the ids of its special pieces.
        max_seq_length: tokens; a longer text loses its end, and the masks that are there.

    Returns:
        input_ids, input_mask and segment_ids: [B, S] int32; and masked_lm_positions: [B, P] int32,
        those of each text's masks, then 0.
    """
    ids = tokenizer.tokenize_with_masks(texts)
    batch = packing.pack(ids, None, packing.get_special_ids(vocabulary), max_seq_length)
    rows, places = tf.unstack(
        tf.cast(tf.where(batch[features.INPUT_IDS] == vocabulary.mask_id), tf.int32), axis=1
    )
    positions = code_points.to_ragged(places, rows, tf.size(texts)).to_tensor()
    return {**batch, features.MASKED_LM_POSITIONS: positions}


def guesses(
    top_ids: tf.Tensor, top_probabilities: tf.Tensor, positions: tf.Tensor, vocabulary: Tokenizer
) -> Mapping[str, tf.Tensor]:
    """The likeliest pieces for each mask, as text.

    Args:
        top_ids: [B, P, K] int32, best first.
        top_probabilities: [B, P, K].
        positions: [B, P] of `pack`.
        vocabulary: the pieces.

    Returns:
        tokens, [B, P, K] strings, and probabilities, [B, P, K]; "" and 0 beyond a text's masks.
    """
    pieces = tf.constant([vocabulary.id_to_piece(i) for i in range(vocabulary.size)])
    is_mask = (positions > 0)[:, :, tf.newaxis]
    return {
        "tokens": tf.where(is_mask, tf.gather(pieces, top_ids), ""),
        "probabilities": tf.where(is_mask, top_probabilities, 0.0),
    }
