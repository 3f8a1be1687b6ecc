"""Answers questions about contexts inside a graph; `span_decoding` decodes.

W windows, S tokens per input, Q questions. Beams: K starts per window, M ends per start.
"""

import tensorflow as tf

from albert_tf.export.graph_tokenizer import code_points, normalization_ops
from albert_tf.export.graph_tokenizer.code_points import CodePoints
from albert_tf.kinds.spans import span_decoding
from albert_tf.kinds.spans.qa_windows import AnswerOptions, Windows
from albert_tf.kinds.spans.replies import NO_ANSWER
from albert_tf.kinds.spans.span_decoding import Outputs, Spans


def answer(
    outputs: Outputs,
    windows: Windows,
    contexts: tf.Tensor,
    options: AnswerOptions,
    null_threshold: float = 0.0,
) -> dict[str, tf.Tensor]:
    """Finds the answers to questions in contexts [Q].

    Args:
        outputs: the outputs for the windows, as `span_decoding.rank_spans` expects them.
        null_threshold: null odds above it mean "no answer".

    Returns:
        For each question: `answer`, its text; `start` and `end`, its character offsets in the
        context, int32; `score` and `probability`; and, if there may be no answer, `null_odds`: the
        higher, the more likely there is none. Above the threshold, `answer` is "", from 0 to 0;
        the score and the probability still belong to the best span.
    """
    chars = code_points.decode(contexts)
    spans = _strip(span_decoding.rank_spans(outputs, windows, options), chars)
    answers = _select_best(spans, chars, options.n_best_size)
    if options.may_be_none:
        odds = span_decoding.compute_null_odds(outputs, windows, answers["score"])
        is_none = odds > null_threshold
        answers |= {name: tf.where(is_none, x, answers[name]) for name, x in NO_ANSWER.items()}
        answers["null_odds"] = odds
    return {
        name: tf.cast(value, tf.float32) if value.dtype == tf.float64 else value
        for name, value in answers.items()
    }


def _strip(spans: Spans, chars: CodePoints) -> Spans:
    """Strips white space around spans; drops spans of only white space."""
    offsets = tf.gather(code_points.get_row_limits(chars)[0], spans.questions)
    is_text = normalization_ops.get_spaces().look_up(chars.values) == 0
    starts = tf.gather(code_points.find_next(is_text), offsets + spans.starts)
    ends = tf.gather(code_points.find_previous(is_text), offsets + spans.ends) + 1
    stripped = spans._replace(starts=starts - offsets, ends=ends - offsets)
    return stripped.select(tf.where(starts < ends)[:, 0])


def _select_best(spans: Spans, chars: CodePoints, n_best_size: int) -> dict[str, tf.Tensor]:
    """The best answer to each question; "" if there is none. Equal texts count once."""
    texts = extract_texts(spans.questions, spans.starts, spans.ends, chars)
    keys = tf.strings.join([tf.strings.as_string(spans.questions), texts], separator=" ")
    values, kinds = tf.unique(keys)
    firsts = tf.math.unsorted_segment_min(tf.range(tf.size(keys)), kinds, tf.size(values))
    spans, texts = spans.select(firsts), tf.gather(texts, firsts)
    counts = tf.math.unsorted_segment_sum(
        tf.ones_like(spans.questions), spans.questions, chars.num_rows
    )
    begins = tf.cumsum(counts, exclusive=True)
    # The row after the last one means "no answer".
    best = tf.where(counts > 0, begins, tf.size(firsts))
    score = tf.gather(tf.concat([spans.scores, [-span_decoding.LIMIT]], axis=0), best)
    is_kept = tf.range(tf.size(firsts)) < tf.gather(begins, spans.questions) + n_best_size
    weights = tf.exp(spans.scores - tf.gather(score, spans.questions))
    total = tf.math.unsorted_segment_sum(
        tf.where(is_kept, weights, 0.0), spans.questions, chars.num_rows
    )
    return {
        "answer": tf.gather(tf.concat([texts, [""]], axis=0), best),
        "start": tf.gather(tf.concat([spans.starts, [0]], axis=0), best),
        "end": tf.gather(tf.concat([spans.ends, [0]], axis=0), best),
        "score": score,
        "probability": tf.where(counts > 0, 1 / total, 1.0),
    }


def extract_texts(
    rows: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor, chars: CodePoints
) -> tf.Tensor:
    """[N] the UTF-8 parts of texts, given their rows and their start and end characters."""
    offsets = tf.gather(code_points.get_row_limits(chars)[0], rows)
    places = tf.ragged.range(offsets + starts, offsets + ends)
    return tf.strings.unicode_encode(tf.gather(chars.values, places), "UTF-8")
