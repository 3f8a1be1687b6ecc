"""Where in the text as given each piece came from, whatever cleaning did to its length."""

import dataclasses
import functools
import io
import itertools
import random
import sys
import unicodedata

import pytest
import sentencepiece

from albert_tf.tokenizers import normalization, tokenization
from albert_tf.tokenizers.normalization import TokenizerConfig

LINES = [
    "The cafe sold 2011, 940, and 40,000 offices; the difficult final figure was 1/2 of it.",
    "Ein Übergrößenträger aß früh an der Straße. Ο Σίσυφος και ο λόγος.",
    "한국어 문장을 읽고 쓴다. 책을 읽고 문장을 쓴다.",
    "ガギグ ｶﾞｷﾞ は かな です。 我爱北京天安门",
    "हिन्दी में लिखा है। ভাষা বাংলা কো",
]
NASTY = [
    "  The \t café\n sold\u00a0½ of\u3000it  ",
    "oﬃces ﬁnal diﬃcult ﬀ ㎏ ㌀ ﷺ x",
    "İstanbul İ ı ΣΑΣ ß ẞ ǅ Ⅻ",
    "한국어 각 \u1100\u1161\u11a8 \u1100\u0301\u1161 ﾡ ﾯ",
    "e\u0301\u0323 o\u0308\u0304x \u0301start a \u0301 b \u0344 \u0f73",
    "가나다 ｶﾞ ガ か\u3099 ÅÅÅ Ω½ ２３，４０，",
    "\u200bzero\ufeff width\u00ad \u2028\u2029\x1c\x85 end",
    "𝕏𝓎 😀👨‍👩‍👧 \U0001f1e9\U0001f1ea 日本 𐐀",
    "কো கொ කෝ \u09c7\u09be \u1025\u102e",
    "1,2,3, 40, 2011, x40, ٣, ⑩, ½,",
    "¨ ´ ` \u00b8\u037a x\u0345",
    "[CLS] <pad> ▁the ▁ ▁▁x",
    "",
    "   ",
    "\u0301",
    "\ufeff",
]
PUBLISHED = TokenizerConfig()
KEEPING = TokenizerConfig(keep_accents=True, unicode_form="none", lower_case=False)
SETTINGS = [
    TokenizerConfig(keep_accents=keep, unicode_form=form, lower_case=lower)
    for keep, form, lower in itertools.product(
        [False, True], normalization.UNICODE_FORMS, [True, False]
    )
]
# What cleaning changes: decompositions, marks, white space, letters with a lower form.
CHARACTERS = [
    c
    for c in map(chr, [*range(1, 0xD800), *range(0xE000, sys.maxunicode + 1)])
    if unicodedata.decomposition(c) or unicodedata.combining(c) or c.isspace() or c.lower() != c
]
OFTEN = "aA Σİͅéｶﾞ가각\u1100\u1161\u11a8\u0301\u0308ােো,,123  ﬃ½"


def random_text(rng, size):
    return "".join(rng.choice(rng.choice((CHARACTERS, OFTEN))) for _ in range(size))


@functools.cache
def trained(settings, rule="identity"):
    """A serialised model whose own normaliser follows `rule`."""
    cleaned = [normalization.normalize(line, settings) for line in LINES]
    writer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(cleaned * 9),
        model_writer=writer,
        vocab_size=170,
        hard_vocab_limit=False,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        # Not split off: numbers with a comma are pieces.
        user_defined_symbols=["(", ")", "▁2011,", "940,", "40,"],
        normalization_rule_name=rule,
        minloglevel=2,
    )
    return writer.getvalue()


def one_sigma(text):
    """Which lower form a sigma takes depends on what follows it, in another span perhaps."""
    return text.replace("ς", "σ")


def assert_origin_is_right(text, settings):
    cleaned, origin = normalization.normalize_with_origin(text, settings)
    assert cleaned == normalization.normalize(text, settings)
    starts, ends = origin or (list(range(len(text))), list(range(1, len(text) + 1)))
    assert len(starts) == len(ends) == len(cleaned)
    assert starts == sorted(starts)
    assert ends == sorted(ends)
    for (start, end), group in itertools.groupby(
        zip(starts, ends, cleaned, strict=True), lambda item: item[:2]
    ):
        part = "".join(c for _, _, c in group)
        found = normalization.normalize(text[start:end], settings)
        assert one_sigma(found.strip()) == one_sigma(part.strip()), (text, part)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_origin_of_every_character(settings):
    rng = random.Random(0)
    for text in [*NASTY, *LINES, *(random_text(rng, rng.randint(1, 9)) for _ in range(400))]:
        assert_origin_is_right(text, settings)


@pytest.mark.parametrize(
    ("text", "settings", "expected"),
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
def test_spans_by_hand(text, settings, expected):
    """`expected`: pieces ("" is any) and what text they came from."""
    found = by_hand(TokenizerConfig(**settings))
    ids, spans = found.encode_with_offsets(text)
    pieces = [found.id_to_piece(i) for i in ids]
    wanted = [piece or seen for (piece, _), seen in zip(expected, pieces, strict=True)]
    assert pieces == wanted
    assert [text[start:end] for start, end in spans] == [part for _, part in expected]


def by_hand(settings):
    from sentencepiece import sentencepiece_model_pb2 as pb

    special = {"<pad>": 3, "<unk>": 2, "[CLS]": 3, "[SEP]": 3, "[MASK]": 3}
    words = ["▁the", "▁cat", "▁cafe", "s", "▁", "▁한", "국", "▁a", "▁b", "▁i", "\u0307", "▁f", "i"]
    words += ["▁2011,", "40,", "▁20", "11", ",", "4", "0", "x", "▁x", *"\u1112\u1161\u11ab"]
    words += [*"\u1100\u116e\u11a8"]
    model = pb.ModelProto()
    for piece, kind in {**special, **dict.fromkeys(words, 1)}.items():
        model.pieces.add(piece=piece, score=-20.0 + 3 * len(piece), type=kind)
    model.trainer_spec.unk_id, model.trainer_spec.pad_id = 1, 0
    model.trainer_spec.bos_id = model.trainer_spec.eos_id = -1
    model.normalizer_spec.name = "identity"
    return tokenization.from_sentencepiece(model.SerializeToString(), settings)


def assert_spans_are_right(found, text, normalize):
    ids, spans = found.encode_with_offsets(text)
    assert ids == found.encode(text)
    assert len(ids) == len(spans)
    starts, ends = [s for s, _ in spans], [e for _, e in spans]
    assert starts == sorted(starts)
    assert ends == sorted(ends)
    for i, (index, (start, end)) in enumerate(zip(ids, spans, strict=True)):
        assert 0 <= start <= end <= len(text)
        bare = one_sigma(found.id_to_piece(index).removeprefix("▁"))
        others = [*spans[:i], *spans[i + 1 :]]
        is_shared = any(start < other[1] and other[0] < end for other in others)
        # To SentencePiece a ▁ that was typed is a space.
        part = one_sigma(normalize(text[start:end])).strip(" ▁")
        if bare:
            assert start < end
            assert not text[start].isspace()
        if index == found.unk_id:
            continue
        assert bare in part if is_shared else part == bare, (text, bare, part)


@pytest.mark.parametrize("settings", SETTINGS[::2], ids=str)
def test_the_text_of_a_span_cleans_to_its_piece(settings):
    rng = random.Random(1)
    texts = [*NASTY, *LINES, *(random_text(rng, rng.randint(1, 30)) for _ in range(150))]
    for compat in normalization.COMPATS:
        settings = dataclasses.replace(settings, compat=compat)
        found = tokenization.from_sentencepiece(trained(settings), settings)
        for text in texts:
            assert_spans_are_right(found, text, found.normalize)


@pytest.mark.parametrize("settings", [PUBLISHED, KEEPING], ids=str)
def test_models_that_normalise_themselves(settings):
    """As the published ones do: nmt_nfkc composes again, and drops what nobody sees."""
    model = trained(settings, "nmt_nfkc")
    found = tokenization.from_sentencepiece(model, settings)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)

    def normalize(text):
        return processor.normalize(found.normalize(text)).removeprefix("▁")

    rng = random.Random(2)
    for text in [*NASTY, *LINES, *(random_text(rng, rng.randint(1, 30)) for _ in range(300))]:
        assert_spans_are_right(found, text, normalize)


def test_a_batch_is_the_same_as_one_by_one():
    found = tokenization.from_sentencepiece(trained(PUBLISHED), PUBLISHED)
    texts = [*NASTY, *LINES]
    batch = found.encode_batch_with_offsets(texts)
    assert batch == [found.encode_with_offsets(text) for text in texts]
    assert [ids for ids, _ in batch] == found.encode_batch(texts)


def test_plain_text_needs_no_tracing():
    assert normalization.normalize_with_origin("The cat, 2011", PUBLISHED) == (
        "the cat, 2011",
        None,
    )
    assert normalization.normalize_with_origin("a  b", PUBLISHED)[1] == ([0, 1, 3], [1, 3, 4])
