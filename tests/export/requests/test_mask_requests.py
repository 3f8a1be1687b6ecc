import numpy as np
import tensorflow as tf
import tiny_texts

from export.requests import mask_requests

TEXTS = ["the [MASK] sold [MASK][MASK], offices", "no mask", "", "[MASK]", "the " * 9 + "[MASK]"]


def test_masks_are_found():
    vocabulary = tiny_texts.sentencepieces()
    found = mask_requests.pack(tf.constant(TEXTS), tiny_texts.graph(vocabulary), vocabulary, 13)
    positions = found["masked_lm_positions"].numpy().tolist()
    for i, line in enumerate(TEXTS):
        ids = [vocabulary.cls_id, *vocabulary.encode_with_masks(line)[:11], vocabulary.sep_id]
        size = len(ids)
        assert found["input_ids"][i, :size].numpy().tolist() == ids
        assert found["input_mask"][i].numpy().sum() == size
        expected = [j for j, index in enumerate(ids) if index == vocabulary.mask_id]
        assert positions[i] == expected + [0] * (3 - len(expected))
    assert positions[-1] == [10, 0, 0] or positions[-1] == [0, 0, 0]
    assert positions[0][0] > 0


def test_no_mask_at_all():
    vocabulary = tiny_texts.wordpieces()
    for lines in (["the"], []):
        found = mask_requests.pack(
            tf.constant(lines, tf.string), tiny_texts.graph(vocabulary), vocabulary, 5
        )
        assert found["masked_lm_positions"].shape == (len(lines), 0)


def test_guesses_are_pieces_and_nothing_where_there_is_no_mask():
    vocabulary = tiny_texts.wordpieces()
    the, cafe = (vocabulary.piece_to_id(piece) for piece in ("the", "café"))
    found = mask_requests.guesses(
        tf.constant([[[the, cafe], [cafe, the]], [[the, cafe], [the, cafe]]]),
        tf.constant([[[0.5, 0.25], [0.5, 0.125]], [[0.75, 0.0], [0.5, 0.5]]]),
        tf.constant([[3, 7], [2, 0]]),
        vocabulary,
    )
    words = [[["the", "café"], ["café", "the"]], [["the", "café"], ["", ""]]]
    assert np.char.decode(found["tokens"].numpy().astype("S9")).tolist() == words
    assert found["probabilities"].numpy().tolist()[1] == [[0.75, 0.0], [0.0, 0.0]]
