"""Whole words of Chinese are masked whole, by a segmenter."""

import itertools
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from refusals import one_line
from tiny_records import ALONE

from albert_tf.data_prep.pretraining_data import chinese_words, dataset
from albert_tf.data_prep.pretraining_data.data_config import DataConfig
from albert_tf.records import features
from albert_tf.tokenizers import tokenization

WORDS = ["我们", "在", "2021", "年", "发布", "了", "全词", "遮罩", "的", "BERT", "模型", "，"]
WORDS += ["unseen"]
TEXT = "我们在2021年发布了全词遮罩的BERT 模型，unseen"
CHARACTERS = sorted({c for word in WORDS for c in word if ord(c) > 127})
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *CHARACTERS]
PIECES += ["2021", "bert", "un", "##see", "##n"]


@pytest.fixture
def vocabulary(tmp_path):
    folder = tmp_path / "vocabulary"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    return folder


def cut(text):
    """Returns the one of WORDS at each place, or a character."""
    words = []
    while text:
        words.append(next((word for word in WORDS if text.startswith(word)), text[0]))
        text = text[len(words[-1]) :]
    return words


@pytest.fixture
def _segmenter(monkeypatch):
    monkeypatch.setitem(sys.modules, "rjieba", SimpleNamespace(cut=cut))


def test_pieces_within_a_chinese_word_continue_it(vocabulary):
    tokenizer = tokenization.load(str(vocabulary))
    [ids], continues = chinese_words.encode_batch([TEXT], tokenizer, cut)
    assert ids == tokenizer.encode(TEXT)
    starts = tokenizer.is_word_start[ids] & ~continues
    pieces = [tokenizer.id_to_piece(piece) for piece in ids]
    bounds = [*np.flatnonzero(starts), len(ids)]
    words = ["".join(pieces[begin:end]) for begin, end in itertools.pairwise(bounds)]
    assert " ".join(words) == "我们 在 2021 年 发布 了 全词 遮罩 的 bert 模型 ， un##see##n"


def create(config, vocabulary, folder, path):
    files = {"input_files": [str(path)], "vocabulary": str(vocabulary), "output_dir": str(folder)}
    dataset.create(config, workers=ALONE, **files)
    return folder


@pytest.mark.usefixtures("_segmenter")
def test_records_have_the_words(vocabulary, tmp_path):
    (tmp_path / "text.txt").write_text(f"{TEXT}\n" * 40, encoding="utf-8")
    shapes = {}
    for masking in ("static", "online"):
        changes = {"masking": masking, "dupe_factor": 1, "ngram": 1, "word_segmenter": "jieba"}
        config = DataConfig(max_seq_length=64, max_predictions_per_seq=10, **changes)
        folder = create(config, vocabulary, tmp_path / masking, tmp_path / "text.txt")
        raw = tf.data.TFRecordDataset([f"{folder}/train-00000-000-00.tfrecord"]).batch(99)
        spec = features.unmasked(64) if masking == "online" else features.pretraining(64, 10)
        batch = shapes[masking] = features.parse(next(iter(raw)), spec)
        assert int(tf.reduce_max(batch["input_ids"])) < len(PIECES)
    first = PIECES.index("我")
    is_first = shapes["online"]["input_ids"].numpy() == first
    following = shapes["online"]["token_boundary"].numpy()[:, 1:][is_first[:, :-1]]
    assert len(following) > 5
    assert not following.any()
    positions, labels = (shapes["static"][f"masked_lm_{x}"].numpy() for x in ("positions", "ids"))
    for row, place in zip(*np.nonzero(labels == first), strict=True):
        # Single words are masked: the other piece of the word is, too.
        assert positions[row, place + 1] == positions[row, place] + 1
        assert labels[row, place + 1] == PIECES.index("们")


def test_a_missing_segmenter_is_named(vocabulary, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "rjieba", None)
    with one_line(r"jieba needs rjieba: pip install rjieba"):
        create(DataConfig(word_segmenter="jieba"), vocabulary, tmp_path / "out", "none.txt")
    assert not (tmp_path / "out").exists()


def test_rjieba_cuts_a_text_into_all_its_parts():
    pytest.importorskip("rjieba", reason="the extra chinese is not installed")
    segment = chinese_words.load_segmenter("jieba")
    for text in (TEXT, "don't  worry 　。", ""):
        assert "".join(segment(text)) == text
    assert "我们" in segment(TEXT)
