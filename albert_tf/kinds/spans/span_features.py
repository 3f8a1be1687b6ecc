"""Makes the features of questions about contexts: tokens, windows and labels.

    [CLS] question [SEP] part of the context [SEP]

A context that is too long becomes several overlapping windows. Q questions, W windows, T tokens
of all contexts, S tokens per input.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from albert_tf.kinds.spans import qa_windows
from albert_tf.kinds.spans.qa_windows import Windows
from albert_tf.records import features
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train_config import Lengths

_BATCH = 256  # contexts tokenized at once
# A statistic in the manifest: questions whose answer no window holds completely.
ANSWERS_IN_NO_WINDOW = "answers_in_no_window"


class Answer(NamedTuple):
    """A span of a context: its text and where it starts."""

    text: str
    start: int


class Question(NamedTuple):
    """A question about a context.

    Attributes:
        id: the key of its prediction.
        question: its text.
        context: the text that holds the answer.
        answers: the first is the label; empty if there is none or it is unknown.
        is_impossible: the context holds no answer.
        labelled: it is known whether there is an answer, and which.
    """

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]
    is_impossible: bool
    labelled: bool


class Tokens(NamedTuple):
    """Tokenized questions.

    Attributes:
        queries: [Q] the token ids of each question.
        num_truncated: the number of questions that lost their end.
        ids: [T] the token ids of the contexts, each context once.
        starts: [T] the character offset in the context where a token starts.
        ends: [T] the character offset after the token.
        begins: [Q] where in `ids` the context of a question begins...
        lengths: [Q] ...and its number of tokens.
        cls_id, sep_id: ids from the vocabulary.
    """

    queries: list[list[int]]
    num_truncated: int
    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    begins: np.ndarray
    lengths: np.ndarray
    cls_id: int
    sep_id: int


class Labels(NamedTuple):
    """The answers as positions in the inputs.

    Attributes:
        start_positions: [W] the input position of the answer's first token, 0 if the window does
            not hold the whole answer.
        end_positions: [W] the position of its last token.
        is_impossible: [W] bool, the window is known not to hold the whole answer.
        is_exact: [Q] bool, false if the answer begins or ends within a token, so that no tokens are
            exactly its text.
    """

    start_positions: np.ndarray
    end_positions: np.ndarray
    is_impossible: np.ndarray
    is_exact: np.ndarray


def tokenize(questions: Sequence[Question], tokenizer: Tokenizer, max_query_length: int) -> Tokens:
    """Tokenizes the questions, truncated to `max_query_length` tokens, and each context once."""
    rows = {context: i for i, context in enumerate(dict.fromkeys(q.context for q in questions))}
    tokens = tokenize_texts(list(rows), tokenizer)
    row = np.array([rows[question.context] for question in questions])
    queries = tokenizer.encode_batch([question.question for question in questions])
    return tokens._replace(
        queries=[query[:max_query_length] for query in queries],
        num_truncated=sum(len(query) > max_query_length for query in queries),
        begins=tokens.begins[row],
        lengths=tokens.lengths[row],
    )


def tokenize_texts(texts: Sequence[str], tokenizer: Tokenizer) -> Tokens:
    """Tokenizes texts without questions."""
    # Lists take ten times the memory of arrays: one batch at a time.
    parts, lengths = [], []
    for begin in range(0, len(texts), _BATCH):
        encoded = tokenizer.encode_batch_with_offsets(texts[begin : begin + _BATCH])
        lengths += [len(ids) for ids, _ in encoded]
        ids = np.fromiter(itertools.chain.from_iterable(ids for ids, _ in encoded), np.int32)
        spans = itertools.chain.from_iterable(spans for _, spans in encoded)
        parts.append((ids, *np.array([*spans], np.int32).reshape(-1, 2).T))
    ids, starts, ends = (np.concatenate(part) for part in zip(*parts, strict=True))
    begins = np.cumsum([0, *lengths])[:-1]
    columns = ids, starts, ends, begins, np.array(lengths)
    return Tokens([[] for _ in texts], 0, *columns, tokenizer.cls_id, tokenizer.sep_id)


def split_into_windows(tokens: Tokens, lengths: Lengths) -> Windows:
    """Splits contexts into windows; an empty context also gets one window."""
    num_queries = np.array([len(query) for query in tokens.queries])
    rooms = lengths.max_seq_length - num_queries - features.NUM_SPECIAL_TOKENS
    strides = np.minimum(rooms, lengths.doc_stride)
    return make_windows(tokens, rooms, strides, num_queries + 2)


def make_windows(
    tokens: Tokens, rooms: np.ndarray, strides: np.ndarray, positions: np.ndarray
) -> Windows:
    """Splits contexts into windows of at most `rooms` tokens, one every `strides`; both are [Q].

    `positions`, [Q], are the input positions of the first token of the context.
    """
    counts = 1 - np.minimum(rooms - tokens.lengths, 0) // strides
    rows = np.repeat(np.arange(len(counts)), counts)
    places = np.arange(len(rows))
    numbers = places - (np.cumsum(counts) - counts)[rows]
    columns = (counts, tokens.lengths, rooms, strides, positions, tokens.begins)
    windows = qa_windows.split(np, rows, numbers, *(column[rows] for column in columns))
    return windows._replace(
        unique_ids=qa_windows.FIRST_ID + places, token_starts=tokens.starts, token_ends=tokens.ends
    )


def label(questions: Sequence[Question], tokens: Tokens, windows: Windows) -> Labels:
    """Finds the tokens of the first answers. No question is dropped, whatever its answer."""
    spans = [_find_answer(question, tokens, i) for i, question in enumerate(questions)]
    first, last, is_exact = (np.array(column) for column in zip(*spans, strict=True))
    rows = windows.questions
    skipped = windows.tokens - tokens.begins[rows]
    starts, ends = first[rows] - skipped, last[rows] - skipped
    holds = (first[rows] >= 0) & (starts >= 0) & (ends < windows.lengths)
    labelled = np.array([question.labelled for question in questions])
    return Labels(
        start_positions=np.where(holds, windows.firsts + starts, 0),
        end_positions=np.where(holds, windows.firsts + ends, 0),
        is_impossible=labelled[rows] & ~holds,
        is_exact=is_exact,
    )


def _find_answer(question: Question, tokens: Tokens, row: int) -> tuple[int, int, bool]:
    """The answer's first and last token in the context, and whether their text is the answer.

    (-1, -1) if there is no answer or the context has no tokens.
    """
    if not question.answers:
        return -1, -1, True
    if not tokens.lengths[row]:
        return -1, -1, False
    answer = question.answers[0]
    stripped = answer.text.strip()
    begin = answer.start + answer.text.index(stripped)
    context = slice(tokens.begins[row], tokens.begins[row] + tokens.lengths[row])
    starts, ends = tokens.starts[context], tokens.ends[context]
    first = min(int(np.searchsorted(ends, begin, "right")), len(ends) - 1)
    last = max(int(np.searchsorted(starts, begin + len(stripped), "left")) - 1, first)
    text = question.context[starts[first] : ends[last]].strip()
    return first, last, text == stripped


def make_features(
    rows: slice, tokens: Tokens, windows: Windows, labels: Labels, max_seq_length: int
) -> dict[str, np.ndarray]:
    """Returns the features of the N windows `rows`: [N, S], and [N, 1] for ids and labels."""
    firsts, lengths = windows.firsts[rows], windows.lengths[rows]
    ids = np.zeros((len(firsts), max_seq_length), np.int32)
    columns = (windows.questions[rows], firsts, lengths, windows.tokens[rows])
    for row, question, first, length, token in zip(ids, *columns, strict=True):
        row[0] = tokens.cls_id
        row[1 : first - 1] = tokens.queries[question]
        row[first - 1] = row[first + length] = tokens.sep_id
        row[first : first + length] = tokens.ids[token : token + length]
    place = np.arange(max_seq_length)
    begins, ends = firsts[:, np.newaxis], (firsts + lengths)[:, np.newaxis]
    in_context = (place >= begins) & (place < ends)
    return {
        features.INPUT_IDS: ids,
        features.INPUT_MASK: place <= ends,
        features.SEGMENT_IDS: (place >= begins) & (place <= ends),
        # An answer at [CLS] means "no answer".
        features.P_MASK: ~in_context & (place > 0),
        features.UNIQUE_IDS: windows.unique_ids[rows, np.newaxis],
        features.START_POSITIONS: labels.start_positions[rows, np.newaxis],
        features.END_POSITIONS: labels.end_positions[rows, np.newaxis],
        features.IS_IMPOSSIBLE: labels.is_impossible[rows, np.newaxis],
    }
