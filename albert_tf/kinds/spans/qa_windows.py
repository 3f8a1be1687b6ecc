"""The windows of contexts that a model reads, and the files that store them: `windows.npz`.

A context that is too long for the model is read through several overlapping windows. The model
answers with positions in a window's input; these arrays turn them into characters of the context.
Texts with tagged words are contexts, too; `words.npz` has their words.
"""

import io
import os
from typing import Any, NamedTuple

import numpy as np

from albert_tf import files

# Files of a task dataset.
WINDOWS = "windows.npz"
WORDS = "words.npz"
VECTORS = "vectors.npz"
# The first unique id, as published.
FIRST_ID = 1_000_000_000

Array = Any  # np.ndarray or tf.Tensor


class Windows(NamedTuple):
    """W windows, grouped by question; T tokens of all contexts.

    NumPy arrays, or int32 tensors.

    Attributes:
        unique_ids: [W] ascending.
        questions: [W] the row of the question, in ascending order.
        firsts: [W] the input position of the first token of the context.
        lengths: [W] the number of context tokens in the window, from there on.
        tokens: [W] the index of the first of them in `token_starts`.
        best_begins: [W] the positions from here...
        best_ends: [W] ...to before here have more context in this window than in another.
        token_starts: [T] the character offset in the context where a token starts.
        token_ends: [T] the character offset after the token.
    """

    unique_ids: Array
    questions: Array
    firsts: Array
    lengths: Array
    tokens: Array
    best_begins: Array
    best_ends: Array
    token_starts: Array
    token_ends: Array

    def select(self, rows: slice) -> "Windows":
        """Returns some windows, with all tokens."""
        *columns, token_starts, token_ends = self
        return Windows._make([*(column[rows] for column in columns), token_starts, token_ends])


def split(
    xp: Any,
    questions: Array,
    numbers: Array,
    counts: Array,
    totals: Array,
    rooms: Array,
    strides: Array,
    firsts: Array,
    begins: Array,
) -> Windows:
    """Returns windows without ids and offsets, one every `strides` tokens; all arrays are [W].

    As published, the context of a token is the smaller of its two sides plus a hundredth of the
    length of the window, and the first of equal windows wins. All windows of a context have the
    same length, except that the last may be shorter. So the tokens that have the most context in
    one window are adjacent, and end halfway to the end of the next window.

    Args:
        xp: the array module, NumPy or TensorFlow.
        numbers: the index of a window among the windows of its question.
        counts: the number of windows of the question.
        totals: the number of tokens of the context.
        rooms: the number of tokens that fit into a window.
        firsts: as in `Windows`.
        begins: the index of the first token of the context.
    """
    skipped = numbers * strides
    lengths = xp.minimum(totals - skipped, rooms)

    def find_end(next_lengths: Array) -> Array:
        """Returns where a full window hands over to the next one, which may be shorter."""
        lacking = rooms - next_lengths
        half = xp.minimum((rooms + strides + lacking // 100 + 1) // 2, rooms)
        return xp.where(strides - lacking > lacking // 100, half, rooms)

    ends = find_end(xp.minimum(totals - skipped - strides, rooms))
    return Windows(
        unique_ids=None,
        questions=questions,
        firsts=firsts,
        lengths=lengths,
        tokens=begins + skipped,
        best_begins=firsts + xp.where(numbers == 0, 0, find_end(lengths) - strides),
        best_ends=firsts + xp.where(numbers == counts - 1, lengths, ends),
        token_starts=None,
        token_ends=None,
    )


class AnswerOptions(NamedTuple):
    """Which spans count as answers.

    `n_best_size` is the number of answers that share the probability; with logits, it is also the
    number of starts and of ends per window that are combined. `max_answer_length` is in tokens.
    """

    may_be_none: bool
    n_best_size: int = 20
    max_answer_length: int = 30


class Words(NamedTuple):
    """N words of all texts, grouped by text.

    Attributes:
        texts: [N] the row of the text, in ascending order.
        starts: [N] the character offset where the word starts.
        ends: [N] the character offset after the word.
        tokens: [N] the index, as in `Windows`, of the first token of the word; -1 if the tokenizer
            has dropped the word.
    """

    texts: Array
    starts: Array
    ends: Array
    tokens: Array


class Vectors(NamedTuple):
    """A teacher's embeddings of all texts, [N, W] float32."""

    vectors: Array


def write(path: str, columns: Windows | Words | Vectors) -> None:
    content = io.BytesIO()
    np.savez(content, **columns._asdict())
    files.write_bytes(path, content.getvalue())


def read(path: str) -> Any:
    """Returns the `Windows` of `windows.npz`, the `Words` of `words.npz`, or the `Vectors`."""
    with np.load(io.BytesIO(files.read_bytes(path, "windows of texts"))) as arrays:
        return {WINDOWS: Windows, WORDS: Words, VECTORS: Vectors}[os.path.basename(path)](**arrays)
