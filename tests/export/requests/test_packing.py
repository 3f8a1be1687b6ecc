import itertools
import types

import tensorflow as tf

from albert_tf.export.requests import packing

IDS = types.SimpleNamespace(pad_id=9, cls_id=1, sep_id=2)
ROWS = [[], [10], [10, 11, 12], [*range(10, 19)], [*range(10, 30)]]


def ragged(rows):
    return tf.ragged.constant(rows, tf.int32, ragged_rank=1)


def cut(first, second, room):
    """Token by token, as published."""
    first, second = list(first), list(second)
    while len(first) + len(second) > room:
        (first if len(first) > len(second) else second).pop()
    return first, second


def test_pairs_lose_tokens_of_the_longer_one():
    pairs = [*itertools.product(ROWS, repeat=2)]
    firsts, seconds = (ragged(column) for column in zip(*pairs, strict=True))
    for length in (5, 6, 11, 60):
        packed = packing.pack(firsts, seconds, IDS, length)
        size = packed["input_ids"].shape[1]
        expected = [cut(*pair, length - 3) for pair in pairs]
        assert size == max(len(a) + len(b) + 3 for a, b in expected)
        for i, (a, b) in enumerate(expected):
            tokens, rest = [1, *a, 2, *b, 2], size - len(a) - len(b) - 3
            segments = [0] * (len(a) + 2) + [1] * (len(b) + 1)
            assert packed["input_ids"][i].numpy().tolist() == tokens + [9] * rest
            assert packed["input_mask"][i].numpy().tolist() == [1] * len(tokens) + [0] * rest
            assert packed["segment_ids"][i].numpy().tolist() == segments + [0] * rest


def test_one_text_loses_its_end():
    packed = packing.pack(ragged(ROWS), None, IDS, 6)
    assert packed["input_ids"].numpy().tolist() == [
        [1, 2, 9, 9, 9, 9],
        [1, 10, 2, 9, 9, 9],
        [1, 10, 11, 12, 2, 9],
        [1, 10, 11, 12, 13, 2],
        [1, 10, 11, 12, 13, 2],
    ]
    assert tf.reduce_sum(packed["input_mask"], 1).numpy().tolist() == [2, 3, 5, 6, 6]
    assert not packed["segment_ids"].numpy().any()


def test_padding_to_a_length_and_an_empty_batch():
    packed = packing.pack(ragged([[10], []]), ragged([[], [11]]), IDS, 7, pads=True)
    assert packed["input_ids"].numpy().tolist() == [[1, 10, 2, 2, 9, 9, 9], [1, 2, 11, 2, 9, 9, 9]]
    assert all(value.dtype == tf.int32 for value in packed.values())
    empty = ragged([[1]])[:0]
    for second in (None, empty):
        packed = packing.pack(empty, second, IDS, 8)
        assert [tuple(value.shape) for value in packed.values()] == [(0, 2)] * 3
