"""The windows of contexts that a model reads, and the files that store them: `windows.npz`.

A context that is too long for the model is read through several overlapping windows. The model
answers with positions in a window's input; these arrays turn them into characters of the context.
Texts whose words have tags are contexts, too; `words.npz` has their words.
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
# The first of the unique ids, as published.
FIRST_ID = 1_000_000_000

Array = Any  # np.ndarray or tf.Tensor


class Windows(NamedTuple):
    """W windows, those of a question side by side; T tokens of all the contexts.

    Arrays of NumPy, or tensors of int32.

    Attributes:
        unique_ids: [W] ascending.
        questions: [W] the row of the question, never descending.
        firsts: [W] the position in the input of the first token of the context.
        lengths: [W] number of tokens of the context that the window holds, from there on.
        tokens: [W] the index in `token_starts` of the first of them.
        best_begins: [W] the positions from here...
        best_ends: [W] ...to before here have more context in this window than in another.
        token_starts: [T] the character of its context where a token starts.
        token_ends: [T] the character after the last of the token.
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
        """Returns some of the windows, with all tokens."""
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
    """Returns windows without ids and offsets, one each `strides` tokens; all arrays are [W].

    A token has more context on the side where there is less of it, a hundredth of the length of the
    window besides, and the first of equal windows wins: as published. All windows of a context are
    of one length, but its last may be shorter. So the tokens of a window that have more context
    there than elsewhere are side by side, and end halfway to the end of the next window.

    Args:
        xp: the module of the arrays, NumPy or TensorFlow.
        numbers: of a window among those of its question.
        counts: of the windows of the question.
        totals: tokens of the context.
        rooms: tokens that a window has room for.
        firsts: as of `Windows`.
        begins: the index of the first token of the context.
    """
    skipped = numbers * strides
    lengths = xp.minimum(totals - skipped, rooms)

    def find_end(next_lengths: Array) -> Array:
        """Returns where a whole window gives way to the next, whose length may be smaller."""
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
    """Which spans are answers.

    `n_best_size` is the number of answers that share the probability; of logits also of starts, and
    of ends, of a window that are combined. `max_answer_length` is in tokens.
    """

    may_be_none: bool
    n_best_size: int = 20
    max_answer_length: int = 30


class Words(NamedTuple):
    """N words of all the texts, those of a text side by side.

    Attributes:
        texts: [N] the row of the text, never descending.
        starts: [N] the first character in the text.
        ends: [N] the character after the last.
        tokens: [N] the index, as in `Windows`, of the first token of the word; -1 if the tokenizer
            has dropped the word.
    """

    texts: Array
    starts: Array
    ends: Array
    tokens: Array


class Vectors(NamedTuple):
    """The vectors of all texts by a teacher, [N, W] float32."""

    vectors: Array


def write(path: str, columns: Windows | Words | Vectors) -> None:
    content = io.BytesIO()
    np.savez(content, **columns._asdict())
    files.write_bytes(path, content.getvalue())


def read(path: str) -> Any:
    """Returns the `Windows` of `windows.npz`, the `Words` of `words.npz`, or the `Vectors`."""
    with np.load(io.BytesIO(files.read_bytes(path, "windows of texts"))) as arrays:
        return {WINDOWS: Windows, WORDS: Words, VECTORS: Vectors}[os.path.basename(path)](**arrays)
