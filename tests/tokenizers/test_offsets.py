"""Offsets of pieces refer to the text before normalization, whatever its length becomes."""

import dataclasses
import functools
import itertools
import random

import pytest
import sentencepiece
import vocabularies
from vocabularies import KEEPING, LINES, NASTY, PUBLISHED, SETTINGS, random_text

from albert_tf.tokenizers import normalization, sentencepiece_tokenizer, tokenization
from albert_tf.tokenizers.tokenization import TokenizerConfig


@functools.cache
def train_with_rule(config, rule="identity"):
    """Returns a serialised model whose own normaliser follows `rule`."""
    return vocabularies.train_model(
        [normalization.normalize(line, config) for line in LINES] * 9,
        vocab_size=170,
        hard_vocab_limit=False,
        # No comma is split off: numbers with a comma are pieces.
        user_defined_symbols=["(", ")", "▁2011,", "940,", "40,"],
        normalization_rule_name=rule,
    )


def one_sigma(text):
    """Which lower form a sigma takes depends on what follows it, in another span perhaps."""
    return text.replace("ς", "σ")


@pytest.mark.parametrize("config", SETTINGS, ids=str)
def test_the_origin_of_every_character(config):
    for text in make_lines(0, 400, longest=9):
        normalized, origin = normalization.normalize_with_origin(text, config)
        assert normalized == normalization.normalize(text, config)
        starts, ends = origin or ([*range(len(text))], [*range(1, len(text) + 1)])
        assert (starts, ends) == (sorted(starts), sorted(ends))
        rows = zip(starts, ends, normalized, strict=True)
        for (start, end), group in itertools.groupby(rows, lambda row: row[:2]):
            part = one_sigma("".join(c for _, _, c in group))
            normalized_part = one_sigma(normalization.normalize(text[start:end], config))
            assert normalized_part.strip() == part.strip(), (text, part)


BY_HAND = "▁the ▁cat ▁cafe s ▁ ▁한 국 ▁a ▁b ▁i \u0307 ▁f i ▁2011, 40, ▁20 11 , 4 0 x ▁x"
BY_HAND += " \u1112 \u1161 \u11ab \u1100 \u116e \u11a8"


@pytest.mark.parametrize(
    ("text", "overrides", "expected"),
    [
        (" The  Cats", {}, [("▁the", "The"), ("▁cat", "Cat"), ("s", "s")]),
        ("THE CAF\u0301E\u0301", {}, [("▁the", "THE"), ("▁cafe", "CAF\u0301E\u0301")]),
        ("the ﬁx", {}, [("▁the", "the"), ("▁f", "ﬁ"), ("i", "ﬁ"), ("x", "x")]),
        ("한국", {}, [("▁", ""), *(("", c) for c in "한한한국국국")]),
        ("한국", {"unicode_form": "NFKC"}, [("▁한", "한"), ("국", "국")]),
        ("İx", {"keep_accents": True}, [("▁i", "İ"), ("\u0307", "İ"), ("x", "x")]),
        ("a 2011, b", {}, [("▁a", "a"), *(("", t) for t in ("20", "11", ",")), ("▁b", "b")]),
        ("x40, b", {}, [*(("", t) for t in ("x", "", "4", "0", ",")), ("▁b", "b")]),
        ("x40, b", {"compat": "hf"}, [*(("", t) for t in "x40,"), ("▁b", "b")]),
        ("the   Ω", {}, [("▁the", "the"), ("▁", "   "), ("", "Ω")]),
    ],
)
def test_spans_by_hand(text, overrides, expected):
    """`expected`: (piece, its text before normalization); "" stands for any piece."""
    pieces = vocabularies.add_special_pieces(BY_HAND.split(), without=("(", '"', "."))
    model = vocabularies.serialize_model(pieces)
    tokenizer = tokenization.make_tokenizer(model, TokenizerConfig(**overrides))
    ids, spans = tokenizer.encode_batch_with_offsets([text])[0]
    pieces = [tokenizer.id_to_piece(i) for i in ids]
    expected_pieces = [piece or actual for (piece, _), actual in zip(expected, pieces, strict=True)]
    assert pieces == expected_pieces
    assert [text[start:end] for start, end in spans] == [part for _, part in expected]


def join_bytes(pieces, spans):
    """Makes one piece of the bytes of a character, which have the same span."""
    joined = []
    for piece, span in zip(pieces, spans, strict=True):
        byte = sentencepiece_tokenizer.BYTE_PIECE.fullmatch(piece)
        content = bytes.fromhex(byte[1]) if byte else piece.encode()
        if byte and 0x80 <= content[0] < 0xC0:
            before, other = joined.pop()
            assert span == other
            content = before + content
        joined.append((content, span))
    return [content.decode() for content, _ in joined], [span for _, span in joined]


def assert_spans_are_right(tokenizer, text, normalize):
    ids, spans = tokenizer.encode_batch_with_offsets([text])[0]
    assert ids == tokenizer.encode(text)
    assert len(ids) == len(spans)
    assert all([*ends] == sorted(ends) for ends in zip(*spans, strict=True))
    pieces = [tokenizer.id_to_piece(i) for i in ids]
    pieces, spans = join_bytes(pieces, spans)
    for i, (piece, (start, end)) in enumerate(zip(pieces, spans, strict=True)):
        assert 0 <= start <= end <= len(text)
        bare = one_sigma(piece.strip("▁").replace("▁", " "))
        others = [*spans[:i], *spans[i + 1 :]]
        is_shared = any(start < other[1] and other[0] < end for other in others)
        # To SentencePiece a ▁ that was typed is a space.
        part = one_sigma(normalize(text[start:end])).replace("▁", " ").strip()
        if bare:
            assert start < end
            assert not text[start].isspace() and not text[end - 1].isspace()
        if piece == "<unk>":
            continue
        assert bare in part if is_shared else part == bare, (text, bare, part)


def make_lines(seed, count, parts=1, longest=30):
    """Lines by hand and random ones, each of some parts."""
    rng = random.Random(seed)
    made = ([random_text(rng, rng.randint(1, longest)) for _ in range(parts)] for _ in range(count))
    return [*NASTY, *LINES, *map(" ".join, made)]


@pytest.mark.parametrize("config", SETTINGS[::2], ids=str)
def test_the_text_of_a_span_is_normalized_to_its_piece(config):
    for compat in normalization.COMPATS:
        config = dataclasses.replace(config, compat=compat)
        tokenizer = tokenization.make_tokenizer(train_with_rule(config), config)
        for text in make_lines(1, 150):
            assert_spans_are_right(tokenizer, text, tokenizer.normalize)


def assert_spans_of_a_model_are_right(content, config, lines):
    """Of a model that may normalise, too."""
    tokenizer = tokenization.make_tokenizer(content, config)
    processor = sentencepiece.SentencePieceProcessor(model_proto=content)

    def normalize(text):
        return processor.normalize(tokenizer.normalize(text)).removeprefix("▁")

    for text in lines:
        assert_spans_are_right(tokenizer, text, normalize)


@pytest.mark.parametrize("config", [PUBLISHED, KEEPING], ids=str)
def test_models_that_normalise_themselves(config):
    """As the published ones do: nmt_nfkc composes again, and drops what nobody sees."""
    content = train_with_rule(config, "nmt_nfkc")
    assert_spans_of_a_model_are_right(content, config, make_lines(2, 300))


@pytest.mark.parametrize("kind", vocabularies.KINDS)
@pytest.mark.parametrize("config", [PUBLISHED, KEEPING], ids=str)
def test_spans_of_every_kind_of_vocabulary(kind, config):
    lines = [*make_lines(3, 150, 6, 5), "x <br>covid-19 of of the ofx", ", 가２ ⑭ό x ㊿ y㊿ z"]
    assert_spans_of_a_model_are_right(vocabularies.train_kind(kind), config, lines)


@pytest.mark.parametrize(
    ("kind", "text", "parts"),
    [
        ("bpe_bytes", "the 鱻b", ["the", " ", "鱻", "鱻", "鱻", "b"]),
        ("symbols", "s of <br>b", ["s", "of", "<br>", "b"]),
        ("bpe", "the ⑩,", ["the", "⑩", "⑩", "⑩", ","]),
    ],
)
def test_spans_of_other_kinds_by_hand(kind, text, parts):
    tokenizer = tokenization.make_tokenizer(vocabularies.train_kind(kind), PUBLISHED)
    _, spans = tokenizer.encode_batch_with_offsets([text])[0]
    assert [text[start:end] for start, end in spans] == parts


def test_the_word_start_before_a_text_has_no_character():
    """Also where the model's own normalizer makes two characters of one."""
    tokenizer = tokenization.make_tokenizer(vocabularies.train_kind("folding"), KEEPING)
    for text in ("Voilà", "Voilà ﬁne"):
        ids, spans = tokenizer.encode_batch_with_offsets([text])[0]
        assert tokenizer.id_to_piece(ids[0]) == "▁"
        assert spans[:2] == [(0, 0), (0, 1)]


def test_a_batch_is_the_same_as_one_by_one():
    tokenizer = tokenization.make_tokenizer(train_with_rule(PUBLISHED), PUBLISHED)
    texts = [*NASTY, *LINES]
    batch = tokenizer.encode_batch_with_offsets(texts)
    assert batch == [tokenizer.encode_batch_with_offsets([text])[0] for text in texts]
    assert [ids for ids, _ in batch] == tokenizer.encode_batch(texts)
