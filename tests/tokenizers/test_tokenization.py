import dataclasses
import json

import pytest
import sentencepiece
import vocabularies
from refusals import one_line
from vocabularies import LINES, PUBLISHED, add_special_pieces, serialize_model

from albert_tf.tokenizers import normalization, sentencepiece_tokenizer, tokenization
from albert_tf.tokenizers.tokenization import TokenizerConfig

# Characters of every digit-and-comma piece below, so that its parts exist.
WORDS = ["▁the", "▁cat", "s", "▁", "the", "e", "c", "a", "t", "h", *"0123456789,", "'", "▁9", "20"]
COMMA_PIECES = ["40,", "▁2011,", "s,"]
MODEL = serialize_model(add_special_pieces(WORDS))
LACKING = serialize_model({**add_special_pieces(without=("<pad>", "[SEP]")), "a": 1})


def make_tokenizer(config=PUBLISHED, words=(*WORDS, *COMMA_PIECES)):
    model = serialize_model(add_special_pieces(words))
    return tokenization.make_tokenizer(model, config)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "spiece.model").write_bytes(MODEL)
    return tmp_path


@pytest.mark.parametrize(
    ("overrides", "text", "normalized"),
    [
        ({}, "  Hello \t  World\n", "hello world"),
        ({}, "I was born, and this is Falsé ﬁ ２３", "i was born, and this is false fi 23"),
        ({}, "a\u2028b\u3000c\u00a0d", "a b c d"),
        ({}, "``quoted''", "``quoted''"),
        ({}, "İ", "i"),
        ({}, "가", "\u1100\u1161"),
        ({"lower_case": False}, "Élan", "Elan"),
        ({"keep_accents": True}, "Élan ガ 한국어 ﬁ", "élan ガ 한국어 fi"),
        ({"keep_accents": True, "unicode_form": "NFD"}, "Élan ﬁ 한국어", "élan ﬁ 한국어"),
        ({"unicode_form": "NFKC"}, "Élan 한국어 ２", "elan 한국어 2"),
        ({"unicode_form": "NFC"}, "Élan 한국어 ２", "elan 한국어 ２"),
        ({"unicode_form": "none"}, "É e\u0301", "é e"),
        ({"unicode_form": "none", "keep_accents": True}, "e\u0301", "e\u0301"),
    ],
)
def test_normalization(overrides, text, normalized):
    assert normalization.normalize(text, TokenizerConfig(**overrides)) == normalized


def test_word_starts_as_published():
    starts = ["▁", "▁the", "<unk>", "(", ".", "_", "40,000", "'s", "'", "<", "=", "é", "字", "€"]
    others = ["ing", "x", "ox", "[MASK]", "[CLS]", "s,", "--", "s."]
    found = [x for x in [*starts, *others] if sentencepiece_tokenizer.is_word_start(x)]
    assert found == starts


def test_encode_and_decode():
    tokenizer = make_tokenizer()
    ids = tokenizer.encode("The  Cats (the)")
    assert [tokenizer.id_to_piece(i) for i in ids][:3] == ["▁the", "▁cat", "s"]
    assert tokenizer.decode(ids[:3]) == "the cats"
    assert tokenizer.encode_batch(["The cats", "", "cat"]) == [ids[:3], [], [ids[1]]]
    assert tokenizer.decode([tokenizer.cls_id, *ids[:2], tokenizer.sep_id]) == "the cat"


@pytest.mark.parametrize("piece_type", [1, 3, 4], ids=["normal", "control", "user"])
def test_special_pieces_of_any_type_are_text(piece_type):
    pieces = add_special_pieces(["▁", *"[]SEPCLMASKpad<>"])
    pieces |= dict.fromkeys(("<pad>", "[CLS]", "[SEP]", "[MASK]"), piece_type)
    config = TokenizerConfig(lower_case=False)
    tokenizer = tokenization.make_tokenizer(serialize_model(pieces), config)
    for piece in ("<pad>", "[CLS]", "[SEP]", "[MASK]"):
        ids = tokenizer.encode(piece)
        assert [tokenizer.id_to_piece(i) for i in ids] == ["▁", *piece]
    ids = tokenizer.encode_with_masks("[SEP] [MASK]<pad>")
    assert [tokenizer.id_to_piece(i) for i in ids] == ["▁", *"[SEP]", "[MASK]", *"<pad>"]


def published_pieces(compat, text):
    """The published rule, piece by piece, as its code has it (`hf`: as transformers had it)."""
    model = serialize_model(add_special_pieces((*WORDS, *COMMA_PIECES)))
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    result = []
    for piece in processor.encode(text, out_type=str):
        if compat != "hf_fast" and len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
            parts = processor.encode(piece[:-1].replace("▁", ""), out_type=str)
            if compat == "hf" and piece[0] != "▁" and parts[0][0] == "▁":
                parts = parts[1:] if len(parts[0]) == 1 else [parts[0][1:], *parts[1:]]
            result += [*parts, piece[-1]]
        else:
            result.append(piece)
    return result


@pytest.mark.parametrize(
    ("compat", "number"),
    [
        ("google", ["▁9", "▁", "4", "0", ","]),
        ("hf", ["▁9", "4", "0", ","]),
        ("hf_fast", ["▁9", "40,"]),
    ],
)
def test_digits_before_a_comma(compat, number):
    tokenizer = make_tokenizer(TokenizerConfig(compat=compat))
    assert [tokenizer.id_to_piece(i) for i in tokenizer.encode("940,")] == number
    for text in ("2011, the 940, cats, 40,", "40,000", "the cat", "cats,"):
        expected = [tokenizer.piece_to_id(piece) for piece in published_pieces(compat, text)]
        assert tokenizer.encode(text) == expected


def test_encode_with_masks():
    tokenizer = make_tokenizer()
    mask = tokenizer.mask_id
    the, cat, s = (tokenizer.piece_to_id(piece) for piece in ("▁the", "▁cat", "s"))
    assert tokenizer.encode_with_masks("The [MASK]s.") == [the, mask, s, tokenizer.piece_to_id(".")]
    assert tokenizer.encode_with_masks("[MASK][MASK] cat [MASK]") == [mask, mask, cat, mask]
    space, unk = tokenizer.piece_to_id("▁"), tokenizer.unk_id
    assert tokenizer.encode_with_masks("[MASK] Ω[MASK]") == [mask, space, unk, mask]
    assert tokenizer.encode_with_masks("the “[MASK]” cat") == [the, space, unk, mask, unk, cat]
    # Characters that end as a space, or in which a mark before a space is dropped.
    assert tokenizer.encode_with_masks("the\u00a0[MASK]\u3000cat") == [the, mask, cat]
    assert tokenizer.encode_with_masks("the[MASK]\u0301 cat") == [the, mask, cat]
    assert tokenizer.encode_with_masks("[mask]\ufdd0") == tokenizer.encode("[mask]\ufdd0")
    text = "The cats, 2011, the 940,"
    assert tokenizer.encode_with_masks(text) == tokenizer.encode(text)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"normalization_rule_name": "nmt_nfkc"},
        {"model_type": "bpe", "vocab_size": 190, "hard_vocab_limit": True},
        {"byte_fallback": True},
        {"add_dummy_prefix": False},
    ],
    ids=str,
)
def test_a_mask_is_a_place_in_the_text(options):
    """As if the mask was a symbol of the model, which takes the space of its word along."""
    options = {"vocab_size": 420, "hard_vocab_limit": False, **options}
    model = vocabularies.train_model(LINES * 9, user_defined_symbols=["☃"], **options)
    tokenizer = tokenization.make_tokenizer(model, PUBLISHED)
    symbol, space = map(tokenizer.piece_to_id, ("☃", "▁"))
    for text in vocabularies.random_masked_texts(0, 150):
        ids = tokenizer.encode(text.replace("[MASK]", "☃"))
        lost = {i - 1 for i, index in enumerate(ids) if index == symbol}
        kept = [x for i, x in enumerate(ids) if x != space or i not in lost]
        expected = [tokenizer.mask_id if index == symbol else index for index in kept]
        assert tokenizer.encode_with_masks(text) == expected, text
        assert expected.count(tokenizer.mask_id) == text.count("[MASK]")


def test_special_pieces_anywhere_in_the_vocabulary():
    pieces = {"▁a": 1, **add_special_pieces(), "b": 1}
    tokenizer = tokenization.make_tokenizer(serialize_model(pieces), PUBLISHED)
    assert (tokenizer.mask_id, tokenizer.size) == (5, len(pieces))
    assert tokenizer.replacement_ids.tolist() == [0, 6, 7, 8, 9]


def test_load_and_copy(folder, tmp_path):
    config = TokenizerConfig(keep_accents=True)
    (folder / "cleaning.json").write_text(json.dumps(dataclasses.asdict(config)))
    loaded = tokenization.load(str(folder))
    assert loaded.config == config
    assert len({loaded.sha256, make_tokenizer().sha256, make_tokenizer(config).sha256}) == 3
    target = tmp_path / "deep" / "copy"
    for source in (folder, target):
        tokenization.copy_vocabulary(str(source), str(target))
    names = ["cleaning.json", "sha256.json", "spiece.model"]
    assert sorted(path.name for path in target.iterdir()) == names
    assert tokenization.load(str(target)).sha256 == loaded.sha256


@pytest.mark.parametrize("name", ["spiece.model", "cleaning.json"])
def test_a_flipped_bit_is_noticed(folder, tmp_path, name):
    (folder / "cleaning.json").write_text('{"lower_case": true}')
    tokenization.write_hashes(str(folder))
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    with one_line(rf"{name} is damaged: it does not match its hash in"):
        tokenization.copy_vocabulary(str(folder), str(tmp_path / "copy"))
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("spiece.model", b"", "is not a SentencePiece model"),
        ("spiece.model", b"Ein Text.\n" * 99, "is not a SentencePiece model"),
        ("spiece.model", MODEL.replace("▁".encode(), b"\xe2\xff\x81"), "is not a SentencePiece m"),
        ("spiece.model", LACKING, r"lacks the special tokens <pad>, \[SEP\]\."),
        ("cleaning.json", b'{"unicode_form": "NFX"}', "unicode_form: 'NFX' is not one of NFKD"),
        ("cleaning.json", b'{"compat": "bing"}', "compat: 'bing' is not one of google, hf, hf_fa"),
        ("cleaning.json", b'{"lowercase": true}', "unknown key 'lowercase'"),
        ("cleaning.json", b"[]", "cleaning.json does not hold a JSON object"),
        ("vocab.txt", b"", r"holds spiece\.model and vocab\.txt: remove"),
    ],
    ids=range(9),
)
def test_what_is_wrong_in_a_folder_is_one_line(folder, name, content, message):
    (folder / name).write_bytes(content)
    with one_line(message):
        tokenization.load(str(folder))
    with one_line(r"is not a folder with one of spiece\.model"):
        tokenization.load(str(folder / name))
