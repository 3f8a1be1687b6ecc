"""The words of texts in a graph are those of Python."""

import random

import tensorflow as tf

from albert_tf.export.graph_tokenizer import code_points, word_ops
from albert_tf.tokenizers import text_words

CHARACTERS = "aab.'\u2019sS $5,(-)  \n北京é\u0301\U0001f600x"


def test_random_texts():
    rng = random.Random(0)
    texts = ["".join(rng.choices(CHARACTERS, k=rng.randint(0, 14))) for _ in range(3000)]
    words = word_ops.find_words(code_points.decode(tf.constant(texts)), word_ops.get_kinds())
    spans_of_texts = map(text_words.find_words, texts)
    expected = [(row, *span) for row, spans in enumerate(spans_of_texts) for span in spans]
    assert list(zip(*(column.numpy().tolist() for column in words), strict=True)) == expected
    assert len(expected) > 9000
