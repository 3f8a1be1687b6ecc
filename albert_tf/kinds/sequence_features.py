"""Makes the token ids of sequences of one text or two.

N examples, C choices, S tokens of a sequence.
"""

from collections.abc import Sequence

import numpy as np

from albert_tf.records import features
from albert_tf.tokenizers.tokenization import Tokenizer

Tokens = Sequence[int]


def tokenize(rows: Sequence[Sequence[str]], tokenizer: Tokenizer) -> list[list[Tokens]]:
    """Returns the token ids of each text of each row; many questions share a passage."""
    texts = list(dict.fromkeys(text for row in rows for text in row))
    ids = dict(zip(texts, tokenizer.encode_batch(texts), strict=True))
    return [[ids[text] for text in row] for row in rows]


def make_arrays(
    sequences: Sequence[Sequence[Tokens]], tokenizer: Tokenizer, max_seq_length: int
) -> dict[str, np.ndarray]:
    """Returns [CLS] first [SEP], or [CLS] first [SEP] second [SEP]: [N, S] or [N * C, S] each."""
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    ids = np.full((len(sequences), max_seq_length), tokenizer.pad_id, np.int32)
    sizes = np.zeros((len(sequences), 2, 1), np.int32)
    for row, size, (first, *rest) in zip(ids, sizes, sequences, strict=True):
        tokens = [cls, *first, sep, *(token for second in rest for token in (*second, sep))]
        row[: len(tokens)] = tokens
        size[:, 0] = len(first) + 2, len(tokens)
    place = np.arange(max_seq_length)
    mask = place < sizes[:, 1]
    return {
        features.INPUT_IDS: ids,
        features.INPUT_MASK: mask,
        features.SEGMENT_IDS: mask & (place >= sizes[:, 0]),
    }
