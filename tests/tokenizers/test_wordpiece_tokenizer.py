import pathlib
import random

import numpy as np
import pytest
import tiny_records
import vocabularies
from refusals import one_line

from albert_tf.tokenizers import tokenization
from albert_tf.tokenizers.tokenization import WordPieceConfig

vocabulary_dir = tiny_records.vocabulary_dir

_PIECES = (
    "[PAD] [unused1] [unused2] [UNK] [CLS] [SEP] [MASK] <S> <T> the cafe café The ##s un ##want"
)
_PIECES += (
    " ##ed ##ing runn , . 我 爱 ##爱 北 京 i ##x f ##f ##i [ ] cl ss a ##a σ ##σ ##ς ß 한 ##국"
)
PIECES = [*_PIECES.split(), "mask", "가", "each", "##\u0301", "\u2028"]
PUBLISHED = WordPieceConfig()
CASED = WordPieceConfig(lower_case=False)


def make_tokenizer(config=PUBLISHED, pieces=PIECES):
    return tokenization.make_tokenizer("\n".join([*pieces, ""]).encode(), config)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*PIECES, ""]))
    return tmp_path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("UNwanted,running", "un ##want ##ed , runn ##ing"),
        ("The  CAFÉ\tthe\u2028cafe\u0301s", "the cafe the cafe ##s"),
        ("我爱北京.", "我 爱 北 京 ."),
        ("a我a", "a 我 a"),
        ("thexyz the", "[UNK] the"),
        ("İx ix", "i ##x i ##x"),
        ("the\x00ca\u200bfe\ufffd.", "[UNK] ."),
        ("cafe\u00ads the\u200ds", "cafe ##s the ##s"),
        ("the\ue000 the 我\U000f0000爱 \u0378", "[UNK] the 我 [UNK] 爱 [UNK]"),
        ("the\x7f\x1f\x85 ca\u0890fe\U000e0001", "the cafe"),
        ("[CLS] [MASK]", "[ cl ##s ] [ mask ]"),
        ("ß", "ß"),
        ("", ""),
        (" \u0301 ", ""),
    ],
)
def test_pieces_by_hand(text, expected):
    tokenizer = make_tokenizer()
    assert [tokenizer.id_to_piece(i) for i in tokenizer.encode(text)] == expected.split()


@pytest.mark.parametrize(
    ("config", "text", "expected"),
    [
        (CASED, "The the café", "The the café"),
        (WordPieceConfig(keep_accents=True), "The CAFÉ", "the café"),
        (WordPieceConfig(lower_case=False, keep_accents=False), "The café", "The cafe"),
        (WordPieceConfig(split_chinese=False), "我爱", "我 ##爱"),
        (WordPieceConfig(compat="hf"), "the\ue000 ca\x00fe\U000f0000", "the cafe"),
    ],
)
def test_settings(config, text, expected):
    tokenizer = make_tokenizer(config)
    assert [tokenizer.id_to_piece(i) for i in tokenizer.encode(text)] == expected.split()


@pytest.mark.parametrize(("compat", "longest"), [("google", 200), ("hf", 100)])
def test_words_that_are_too_long_are_unknown(compat, longest):
    tokenizer = make_tokenizer(WordPieceConfig(compat=compat))
    assert len(tokenizer.encode("a" * longest)) == longest
    assert tokenizer.encode("a" * (longest + 1)) == [tokenizer.unk_id]
    # Characters, not bytes.
    assert len(tokenizer.encode("σ" * longest)) == longest


def test_decode_and_masks():
    tokenizer = make_tokenizer()
    ids = [tokenizer.cls_id, *tokenizer.encode("Unwanted cafés, xyz"), tokenizer.sep_id]
    assert tokenizer.decode([*ids, tokenizer.pad_id]) == "unwanted cafes , [UNK]"
    the, mask = tokenizer.piece_to_id("the"), tokenizer.mask_id
    assert tokenizer.encode_with_masks("The [MASK] the[MASK][MASK]") == [the, mask, the, mask, mask]


def test_the_last_of_equal_rows_counts():
    tokenizer = make_tokenizer(pieces=[*PIECES, "[MASK]", "the", "[UNK]"])
    ids = [len(PIECES) + 1, len(PIECES), len(PIECES) + 2]
    assert tokenizer.encode_with_masks("the [MASK] →") == ids
    assert [tokenizer.mask_id, tokenizer.unk_id] == ids[1:]
    assert tokenizer.size == len(PIECES) + 3
    replaced = [*range(9, len(PIECES)), len(PIECES) + 1]
    assert tokenizer.replacement_ids.tolist() == replaced
    continuing = [PIECES[i] for i in np.flatnonzero(~tokenizer.is_word_start)]
    assert continuing == [piece for piece in PIECES if piece.startswith("##")]


@pytest.mark.parametrize(
    ("text", "config", "parts"),
    [
        ("The  Cafe\u0301\u0323s 我爱", PUBLISHED, ["The", "Cafe\u0301\u0323", "s", "我", "爱"]),
        ("\u0301the the\u0301", PUBLISHED, ["the", "the\u0301"]),
        ("İx.", PUBLISHED, ["İ", "x", "."]),
        ("café The", CASED, ["café", "The"]),
        ("a\u0301", WordPieceConfig(keep_accents=True), ["a", "\u0301"]),
        ("ca\u0301 fé", PUBLISHED, ["ca\u0301", "fé"]),
        (" \u0301 ", PUBLISHED, []),
    ],
)
def test_spans_by_hand(text, config, parts):
    tokenizer = make_tokenizer(config)
    ids, spans = tokenizer.encode_batch_with_offsets([text])[0]
    assert ids == tokenizer.encode(text)
    assert [text[start:end] for start, end in spans] == parts


OFTEN = "aThe sxiσΣİ我爱한국가\u0301\u0301,.  cafe"


@pytest.mark.parametrize("config", [PUBLISHED, CASED, WordPieceConfig(keep_accents=True)])
def test_the_text_of_a_span_cleans_to_its_piece(config):
    rng, known = random.Random(0), 0
    tokenizer = make_tokenizer(config, [*PIECES, *(f"##{c}" for c in "thecaf")])
    for _ in range(500):
        parts = (vocabularies.CHARACTERS, OFTEN, OFTEN)
        text = "".join(rng.choice(rng.choice(parts)) for _ in range(20))
        ids, spans = tokenizer.encode_batch_with_offsets([text])[0]
        assert ids == tokenizer.encode(text)
        assert all([*ends] == sorted(ends) for ends in zip(*spans, strict=True))
        for index, (start, end) in zip(ids, spans, strict=True):
            assert 0 <= start < end <= len(text)
            if index != tokenizer.unk_id:
                known += 1
                bare = tokenizer.id_to_piece(index).removeprefix("##")
                assert bare in tokenizer.normalize(text[start:end]), (text, bare)
    assert known > 1000


@pytest.mark.parametrize(
    ("published", "ours"),
    [("vocab_chinese.txt", "vocab.txt"), ("30k-clean.model", "spiece.model")],
)
def test_published_names(folder, vocabulary_dir, published, ours):
    source, target = folder / "source", folder / "target"
    source.mkdir()
    place = folder if ours == "vocab.txt" else pathlib.Path(vocabulary_dir)
    (source / published).write_bytes((place / ours).read_bytes())
    tokenization.copy_vocabulary(str(source), str(target))
    assert {path.name for path in target.iterdir()} == {ours, "sha256.json"}
    assert tokenization.load(str(source)).sha256 == tokenization.load(str(target)).sha256


@pytest.mark.parametrize("end", ["\n", "\r\n", "\tsecond column\n", " \n"])
def test_rows_are_read_as_published(end):
    content = "".join(f"{piece}{end}" for piece in PIECES).encode()
    assert tokenization.make_tokenizer(content, PUBLISHED).encode("The cafe") == [9, 10]


def test_a_byte_order_mark_is_no_part_of_the_first_piece(folder):
    expected = tokenization.load(str(folder))
    (folder / "vocab.txt").write_text("\ufeff" + (folder / "vocab.txt").read_text())
    found = tokenization.load(str(folder))
    assert found.backend.pieces == PIECES
    assert found.sha256 == expected.sha256


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocab.txt", "▁the\t-2.9\n", "lacks the special tokens"),
        ("vocab.txt", b"\xff\xfe\x00", "vocab.txt is UTF-16: convert it"),
        ("vocab.txt", b"the\n\xff\n", "vocab.txt, line 2: this is not UTF-8"),
        ("vocab.txt", "the\n", r"lacks the special tokens \[PAD\], \[UNK\], \[CLS\], \[SEP\], \["),
        ("cleaning.json", '{"compat": "bing"}', "compat: 'bing' is not one of google, hf"),
        ("cleaning.json", '{"unicode_form": "NFC"}', "unknown key 'unicode_form'"),
    ],
)
def test_what_is_wrong_in_a_folder_is_one_line(folder, name, content, message):
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with one_line(message):
        tokenization.load(str(folder))
