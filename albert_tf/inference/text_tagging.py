"""Finds spans in texts of any length with a model in memory: tagged ones, and answers."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from albert_tf.data_prep.task_data import span_features, token_features
from albert_tf.data_prep.task_data.span_features import Question
from albert_tf.data_prep.task_data.token_tables import TaggedText
from albert_tf.kinds import token_lengths
from albert_tf.kinds.base import Kind, Prediction, Task
from albert_tf.kinds.spans import span_decoding, tag_decoding
from albert_tf.records import features
from albert_tf.tokenizers import text_words
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train_config import FinetuneConfig

# (number of windows, rows -> their features) -> outputs [N, ...]
_Run = Callable[[int, Callable[[slice], Mapping[str, np.ndarray]]], dict[str, np.ndarray]]


def predict(
    texts: Sequence[str], tokenizer: Tokenizer, config: FinetuneConfig, task: Task, run: _Run
) -> list[Prediction]:
    """Returns a prediction of `tag_decoding` for each text."""
    examples = [
        TaggedText(str(row), text, tuple(text_words.find_words(text)), None)
        for row, text in enumerate(texts)
    ]
    tokens, words = token_features.tokenize(examples, tokenizer)
    windows = token_features.split_into_windows(tokens, config)
    outputs = run(
        len(windows.unique_ids),
        lambda rows: token_features.make_features(rows, tokens, windows, config.max_seq_length),
    )
    rows_of_texts = [example._asdict() for example in examples]
    return [*tag_decoding.predict(outputs, windows, words, rows_of_texts, task.labels).values()]


def find_answers(
    inputs: Sequence[Sequence[str]],
    tokenizer: Tokenizer,
    config: FinetuneConfig,
    kind: Kind,
    run: _Run,
) -> list[Prediction]:
    """Returns a prediction of `span_decoding` for each question and context."""
    questions = [
        Question(str(row), question, context, (), False, False)
        for row, (question, context) in enumerate(inputs)
    ]
    tokens = span_features.tokenize(questions, tokenizer, config.max_query_length)
    cut = {"truncated_questions": tokens.num_truncated}
    token_lengths.warn_of_cuts(cut, len(questions), config)
    windows = span_features.split_into_windows(tokens, config)
    labels = span_features.label(questions, tokens, windows)
    outputs = run(
        len(windows.unique_ids),
        lambda rows: span_features.make_features(
            rows, tokens, windows, labels, config.max_seq_length
        ),
    )
    outputs[features.UNIQUE_IDS] = windows.unique_ids
    examples = [question._asdict() for question in questions]
    options = kind.make_options(config)
    return [*span_decoding.predict(outputs, windows, examples, options).values()]
