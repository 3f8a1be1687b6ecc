"""Words of Chinese, which has no spaces, for whole-word masking.

A piece within a word has an id of its own, higher by the size of the vocabulary, until it is known
what is masked: so ids can be cut into segments without a second array beside them.
"""

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from albert_tf.errors import UserError
from albert_tf.tokenizers.tokenization import Tokenizer

Cut = Callable[[str], Sequence[str]]


def load_segmenter(name: str) -> Cut | None:
    """Returns a function that cuts a text into words; None for `none`."""
    if name == "none":
        return None
    try:
        import rjieba
    except ImportError:
        raise UserError(f"--word_segmenter={name} needs rjieba: pip install rjieba") from None
    return rjieba.cut


def encode_batch(texts: Sequence[str], tokenizer: Tokenizer, cut: Cut) -> list[list[int]]:
    """The ids of texts; those of pieces that continue a Chinese word are raised."""
    batch = []
    for text, (ids, spans) in zip(texts, tokenizer.encode_batch_with_offsets(texts), strict=True):
        starts = {0, *itertools.accumulate(map(len, cut(text)))}
        batch.append(
            [
                piece + tokenizer.size * (begin not in starts and _is_chinese(text[begin:end]))
                for piece, (begin, end) in zip(ids, spans, strict=True)
            ]
        )
    return batch


def _is_chinese(text: str) -> bool:
    """Whether a text begins with a CJK ideograph."""
    first = text[:1]
    return "\u3400" <= first <= "\u9fff" or "\uf900" <= first <= "\ufaff" or first >= "\U00020000"


def find_word_starts(raised: np.ndarray, tokenizer: Tokenizer) -> np.ndarray:
    """[n] ids, some raised -> [n] bool: whether each starts a word."""
    ids = raised % tokenizer.size
    starts = tokenizer.is_word_start[ids]
    starts[1:] |= tokenizer.ends_word[ids[:-1]]
    return starts & (raised < tokenizer.size)
