"""Answers questions about contexts, inside a graph: decoding is that of `span_decoding`.

W windows, S tokens of an input, Q questions. Beams: K starts of each window, M ends for each of
them.
"""

from collections.abc import Callable

import tensorflow as tf

from albert_tf.export.graph_tokenizer import code_points, normalization_ops
from albert_tf.export.graph_tokenizer.code_points import CodePoints
from albert_tf.export.graph_tokenizer.graph_tokenizer import GraphTokenizer
from albert_tf.export.requests import window_ops
from albert_tf.export.requests.packing import Batch
from albert_tf.kinds.spans import span_decoding
from albert_tf.kinds.spans.qa_windows import AnswerOptions
from albert_tf.kinds.spans.span_decoding import Outputs, Spans
from albert_tf.records import features
from albert_tf.train_config import Lengths

# Windows that the model reads at once.
_BATCH = 32


def make_reader(
    run: Callable[[Batch], Outputs],
    tokenizer: GraphTokenizer,
    lengths: Lengths,
    options: AnswerOptions,
    *,
    null_threshold: float = 0.0,
) -> Callable[[tf.Tensor, tf.Tensor], dict[str, tf.Tensor]]:
    """Returns the function that finds answers in contexts.

    Args:
        run: input_ids, input_mask, segment_ids and p_mask, [W, S] int32 -> start_logits and
            end_logits [W, S], or the beams of SQuAD 2.0's head: start_top_log_probs and
            start_top_index [W, K], end_top_log_probs and end_top_index [W, K * M], cls_logits [W].
        null_threshold: null odds above it mean that there is no answer.

    Returns:
        questions [Q], contexts [Q] -> for each question `answer`, its text; `start` and `end`, its
        characters in the context, int32; `score` and `probability`; and if it may be none,
        `null_odds`: the higher, the more likely there is no answer. Above the threshold `answer` is
        "", from 0 to 0; the score and the probability are those of the best span all the same.
    """

    def read(questions: tf.Tensor, contexts: tf.Tensor) -> dict[str, tf.Tensor]:
        windows, batch = window_ops.pack(questions, contexts, tokenizer, lengths)
        outputs = run(batch)
        chars = code_points.decode(contexts)
        spans = _strip(span_decoding.rank_spans(outputs, windows, options), chars)
        answers = _select_best(spans, chars, options.n_best_size)
        if options.may_be_none:
            odds = span_decoding.compute_null_odds(outputs, windows, answers["score"])
            empty = {"answer": "", "start": 0, "end": 0}
            is_none = odds > null_threshold
            answers |= {name: tf.where(is_none, x, answers[name]) for name, x in empty.items()}
            answers["null_odds"] = odds
        return {
            name: tf.cast(value, tf.float32) if value.dtype == tf.float64 else value
            for name, value in answers.items()
        }

    return read


def run_in_batches(run: Callable[[Batch], Outputs], batch: Batch) -> Outputs:
    """Runs the windows in batches, so that long contexts need no more memory.

    Left to itself, a loop in a graph starts ten rounds at once, and the first before it begins.
    """
    size = tf.shape(batch[features.INPUT_IDS])[0]

    def run_batch(begin: tf.Tensor | int) -> Outputs:
        return run({name: rows[begin : begin + _BATCH] for name, rows in batch.items()})

    def append_batch(begin, outputs):
        more = run_batch(begin)
        return begin + _BATCH, {
            name: tf.concat([rows, more[name]], axis=0) for name, rows in outputs.items()
        }

    first = run_batch(0)
    shapes = {name: tf.TensorShape([None, *rows.shape[1:]]) for name, rows in first.items()}
    with tf.control_dependencies(list(first.values())):
        begin = tf.identity(_BATCH)
    invariants = (tf.TensorShape([]), shapes)
    return tf.while_loop(
        lambda begin, _: begin < size,
        append_batch,
        (begin, first),
        invariants,
        parallel_iterations=1,
    )[1]


def _strip(spans: Spans, chars: CodePoints) -> Spans:
    """The spans without white space around; what is white space alone is no span."""
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
    # The row after the last one stands for no answer.
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
    """[N] the UTF-8 parts of texts: their rows, first characters and the ones after the last."""
    offsets = tf.gather(code_points.get_row_limits(chars)[0], rows)
    places = tf.ragged.range(offsets + starts, offsets + ends)
    return tf.strings.unicode_encode(tf.gather(chars.values, places), "UTF-8")
