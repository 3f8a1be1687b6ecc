"""Records of tagged texts: the tokens of words, their windows and labels."""

import json

import numpy as np
import pytest

from albert_tf.data_prep.task_data import task_cache
from albert_tf.kinds import task_table
from albert_tf.kinds.spans import qa_windows, token_features
from albert_tf.kinds.spans.token_features import TaggedText
from albert_tf.tokenizers import text_words
from albert_tf.train_config import Lengths

LABELS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
TASK = task_table.make_own("token_classification", LABELS)


def tag(text, *spans, name="0"):
    return TaggedText(name, text, tuple(text_words.find_words(text)), tuple(spans))


def test_every_word_is_labelled_once_in_windows_that_overlap(tokenizer):
    example = tag(" ".join(["ab", "cde", "f,"] * 30), (0, 6, "PER"))
    lengths = Lengths(max_seq_length=11, doc_stride=100)
    tokens, words = token_features.tokenize([example], tokenizer)
    windows = token_features.split_into_windows(tokens, lengths)
    steps = np.diff(windows.tokens)
    assert len(windows.questions) > 9
    assert (steps == 4).all()  # half of what a window has room for
    labels, _ = token_features.label_tokens([example], tokens, words, LABELS, "first")
    assert np.count_nonzero(labels) == len(example.words) == len(set(words.tokens.tolist()))
    batch = token_features.make_features(slice(None), tokens, windows, 11, labels)
    assert np.count_nonzero(batch["label_ids"]) == len(example.words)
    # The labels stand at the tokens they belong to, in order.
    labelled = batch["label_ids"] > 0
    np.testing.assert_array_equal(batch["input_ids"][labelled], tokens.ids[words.tokens])
    np.testing.assert_array_equal(batch["label_ids"][labelled], labels[labels > 0])
    assert (batch["input_ids"][:, 0] == tokenizer.cls_id).all()
    assert (batch["input_ids"] == tokenizer.sep_id).sum(1).tolist() == [1] * len(steps) + [1]


@pytest.mark.parametrize("label_pieces", ["first", "all"])
def test_the_pieces_of_a_word(tokenizer, label_pieces):
    example = tag("unbelievableness goes", (0, 16, "PER"))
    tokens, words = token_features.tokenize([example], tokenizer)
    options = (tokens, words, LABELS, label_pieces)
    labels, num_inexact = token_features.label_tokens([example], *options)
    begin, second = words.tokens.tolist()
    pieces = tokens.ends[begin:second] > tokens.starts[begin:second]  # no lone word start
    assert pieces.sum() > 1
    inside = 5 if label_pieces == "all" else 0
    assert labels[begin:second].tolist() == [4, *(inside * pieces[1:])]
    assert labels[second] == 1
    assert num_inexact == 0


def test_words_without_tokens_and_texts_without_words(tokenizer):
    tokens, words = token_features.tokenize([tag(""), tag("\u200b a"), tag("a")], tokenizer)
    assert words.texts.tolist() == [1, 1, 2]
    assert words.tokens[1:].tolist() == [int(tokens.begins[2]) - 1, int(tokens.begins[2])]
    windows = token_features.split_into_windows(tokens, Lengths(max_seq_length=9))
    assert windows.questions.tolist() == [0, 1, 2]


def test_a_folder(tokenizer, tmp_path):
    examples = [tag("ab cd", (0, 2, "PER")), tag("ef"), TaggedText("x", "gh", ((0, 2),), None)]
    lengths = Lengths(max_seq_length=16)
    records = TASK.kind.data.encode(examples, tokenizer, TASK.labels, lengths)
    task_cache.write(records, str(tmp_path), lengths)
    counts = records.counts
    assert (records.size, counts["words"], counts["inexact_spans"]) == (3, 4, 0)
    rows = [json.loads(line) for line in (tmp_path / "examples.jsonl").read_text().splitlines()]
    assert rows[0]["spans"] == [[0, 2, "PER"]]
    assert [row["labelled"] for row in rows] == [True, True, False]
    assert len(qa_windows.read(str(tmp_path / "windows.npz")).questions) == 3
    assert qa_windows.read(str(tmp_path / "words.npz")).texts.tolist() == [0, 0, 1, 2]
