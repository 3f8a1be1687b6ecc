"""Finds words in Chinese, which has no spaces, for whole-word masking."""

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from albert_tf.errors import UserError
from albert_tf.tokenizers.tokenization import Tokenizer

Cut = Callable[[str], Sequence[str]]


def load_segmenter(name: str) -> Cut | None:
    """Returns a function that splits a text into words; None for `none`."""
    if name == "none":
        return None
    try:
        import rjieba
    except ImportError:
        raise UserError(f"--word_segmenter={name} needs rjieba: pip install rjieba") from None
    return rjieba.cut


def encode_batch(
    texts: Sequence[str], tokenizer: Tokenizer, cut: Cut
) -> tuple[list[list[int]], np.ndarray]:
    """Returns the ids of texts, and for each token whether it continues a Chinese word."""
    encoded = tokenizer.encode_batch_with_offsets(texts)
    continues: list[bool] = []
    for text, (_, spans) in zip(texts, encoded, strict=True):
        starts = {0, *itertools.accumulate(map(len, cut(text)))}
        continues += [x not in starts and _is_chinese(text[x:end]) for x, end in spans]
    return [ids for ids, _ in encoded], np.array(continues, np.bool_)


def _is_chinese(text: str) -> bool:
    """Whether a text starts with a CJK ideograph."""
    first = text[:1]
    return "\u3400" <= first <= "\u9fff" or "\uf900" <= first <= "\ufaff" or first >= "\U00020000"
