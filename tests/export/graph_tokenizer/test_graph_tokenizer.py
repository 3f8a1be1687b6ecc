import pytest
import tensorflow as tf
import tiny_texts
import vocabularies
from python_reference import is_in_canonical_order
from refusals import one_line
from vocabularies import KEEPING, PUBLISHED, SETTINGS, add_special_pieces, serialize_model

from albert_tf.export.graph_tokenizer import graph_tokenizer
from albert_tf.tokenizers import tokenization
from albert_tf.tokenizers.normalization import COMPATS
from albert_tf.tokenizers.tokenization import TokenizerConfig, WordPieceConfig


def assert_same(tokenizer, lines):
    in_graph, expected = (f(tokenizer, lines) for f in (tiny_texts.in_graph, tiny_texts.in_python))
    for line, a, b in zip(lines, in_graph, expected, strict=True):
        assert a == b, line


@pytest.mark.parametrize(
    "compat", [COMPATS[0], *(pytest.param(name, marks=pytest.mark.full) for name in COMPATS[1:])]
)
def test_ids_and_spans_are_those_of_python(compat):
    assert_same(tiny_texts.sentencepieces(TokenizerConfig(compat=compat)), tiny_texts.texts(0, 200))


@pytest.mark.full
@pytest.mark.parametrize(
    ("config", "rule"),
    [
        *((config, None) for config in SETTINGS[::9]),  # test_normalization_ops has more
        *((PUBLISHED, "nmt_nfkc"), (KEEPING, "nfkc_cf")),  # models that normalise themselves
    ],
    ids=str,
)
def test_settings_and_rules(config, rule):
    rules = {"rule": rule} if rule else {}
    assert_same(tiny_texts.sentencepieces(config, **rules), tiny_texts.texts(1, 300))


@pytest.mark.full
@pytest.mark.parametrize(
    "config",
    [{}, {"lower_case": False, "compat": "hf"}, {"keep_accents": True, "split_chinese": False}],
    ids=str,
)
def test_wordpieces(config):
    tokenizer = tiny_texts.wordpieces(WordPieceConfig(**config))
    lines = tiny_texts.texts(3, 400)
    for size in (99, 100, 101, 200, 201):
        lines.append(b"a" * size + b" the " + "\u00e9".encode() * size)
    assert_same(tokenizer, [line for line in lines if is_in_canonical_order(line)])
    ids = tiny_texts.graph(tokenizer).tokenize(tf.constant(lines)).to_list()
    assert ids == tokenizer.encode_batch([line.decode(errors="replace") for line in lines])


def by_hand(pieces):
    return tokenization.make_tokenizer(serialize_model(pieces), PUBLISHED)


def test_unknown_characters_count_once_however_long_they_are():
    # As likely: "x" and two unknown ones, or "xy" and one. Bytes would count three each.
    pieces = add_special_pieces(["▁", "x", "中y", "y", "x中"])
    assert_same(by_hand(pieces), ["x中y 中 中中y x中中yé–(中".encode()])


def test_equal_scores():
    pieces = add_special_pieces(["▁", "#", "##", "###", "a", "b", "ab", "ba"])
    lines = [("#" * i + "ab" * i + "a" * i).encode() for i in range(1, 60)]
    assert_same(by_hand(pieces), lines)


def test_no_text_becomes_a_special_piece():
    pieces = {**add_special_pieces(), "▁": 1, "x": 1, "y": 5, "z": 3, "xy": 1, "c": 1, "▁[": 1}
    lines = ["[CLS] <unk> x y xy yx z xz [MASK]"]
    (ids, spans, _), *_ = tiny_texts.in_graph(by_hand(pieces), lines)
    assert [(ids, spans)] == by_hand(pieces).encode_batch_with_offsets(lines)


def test_long_texts_and_large_batches():
    tokenizer = by_hand(add_special_pieces(["▁the", "▁cat", "s", "▁", "中"]))
    lines = ["the cats " * 4000, "中" * 40000, "", "the", *["cats "] * 9000, "s" * 32001]
    ids = tiny_texts.graph(tokenizer).tokenize(tf.constant(lines))
    assert ids.to_list() == tokenizer.encode_batch(lines)


def test_empty_batches():
    for tokenizer in (tiny_texts.sentencepieces(), tiny_texts.wordpieces()):
        made = tiny_texts.graph(tokenizer)
        for lines in ([], ["", "  "]):
            actual = made.tokenize_with_offsets(tf.constant(lines, tf.string))
            assert [values.to_list() for values in actual] == [[[]] * len(lines)] * 3


def test_a_model_that_a_graph_cannot_follow_is_refused():
    tokenizer = tokenization.make_tokenizer(vocabularies.train_kind("bpe"), PUBLISHED)
    with one_line(r"^a graph cannot .* from a unigram model.*--text=false"):
        graph_tokenizer.make_tokenizer(tokenizer)


def test_pieces_of_several_words():
    tokenizer = tokenization.make_tokenizer(vocabularies.train_kind("across"), PUBLISHED)
    lines = [line.encode() for line in (*vocabularies.LINES, "of it of it", "x ㊿ of the")]
    assert_same(tokenizer, lines)
