import dataclasses
import io
import json

import numpy as np
import pytest
import sentencepiece

from albert_tf.errors import UserError
from albert_tf.tokenizers import normalization, sentencepiece_tokenizer, tokenization
from albert_tf.tokenizers.tokenization import TokenizerConfig

PUBLISHED = TokenizerConfig()
# Characters of every digit-and-comma piece below, so that its parts exist.
WORDS = ["▁the", "▁cat", "s", "▁", "the", "e", "c", "a", "t", "h", *"0123456789,", "'", "▁9", "20"]
COMMA_PIECES = ["40,", "▁2011,", "s,"]


def serialized(pieces):
    """A model of exactly `pieces`: the trainer's frame, other contents."""
    from sentencepiece import sentencepiece_model_pb2 as pb

    model = pb.ModelProto()
    for piece, kind in pieces.items():
        # Longer pieces are likelier: the longest match wins.
        model.pieces.add(piece=piece, score=-20.0 + 3 * len(piece), type=kind)
    model.trainer_spec.model_type = 1
    model.trainer_spec.unk_id = list(pieces).index("<unk>")
    model.trainer_spec.pad_id = list(pieces).index("<pad>") if "<pad>" in pieces else -1
    model.trainer_spec.bos_id = model.trainer_spec.eos_id = -1
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.add_dummy_prefix = True
    model.normalizer_spec.remove_extra_whitespaces = True
    model.normalizer_spec.escape_whitespaces = True
    return model.SerializeToString()


def special(*, without=()):
    kinds = {"<pad>": 3, "<unk>": 2, "[CLS]": 3, "[SEP]": 3, "[MASK]": 3, "(": 4, '"': 4, ".": 4}
    return {piece: kind for piece, kind in kinds.items() if piece not in without}


def tokenizer(settings=PUBLISHED, words=(*WORDS, *COMMA_PIECES)):
    model = serialized({**special(), **dict.fromkeys(words, 1)})
    return tokenization.from_sentencepiece(model, settings)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "spiece.model").write_bytes(serialized({**special(), **dict.fromkeys(WORDS, 1)}))
    return tmp_path


@pytest.mark.parametrize(
    ("settings", "text", "cleaned"),
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
def test_cleaning(settings, text, cleaned):
    assert normalization.normalize(text, TokenizerConfig(**settings)) == cleaned


@pytest.mark.parametrize("text", ["Ünïcödé ﬁ２ 한국어", "ÅNGSTRÖM Σας", "Straße  a\u0300", "ǅ ガ"])
@pytest.mark.parametrize("form", normalization.UNICODE_FORMS)
@pytest.mark.parametrize("keep", [False, True])
def test_cleaning_twice_changes_nothing(text, form, keep):
    settings = TokenizerConfig(unicode_form=form, keep_accents=keep)
    once = normalization.normalize(text, settings)
    assert normalization.normalize(once, settings) == once


@pytest.mark.parametrize(
    ("starts", "pieces"),
    [
        (
            True,
            ["▁", "▁the", "<unk>", "(", ".", "_", "40,000", "'s", "'", "<", "=", "é", "字", "€"],
        ),
        (False, ["ing", "x", "ox", "[MASK]", "[CLS]", "s,", "--", "s."]),
    ],
)
def test_word_starts_as_published(starts, pieces):
    assert [sentencepiece_tokenizer.is_word_start(piece) for piece in pieces] == [starts] * len(
        pieces
    )


def test_encode_and_decode():
    found = tokenizer()
    ids = found.encode("The  Cats (the)")
    assert [found.id_to_piece(i) for i in ids][:3] == ["▁the", "▁cat", "s"]
    assert found.decode(ids[:3]) == "the cats"
    assert found.encode_batch(["The cats", "", "cat"]) == [ids[:3], [], [ids[1]]]
    assert found.decode([found.cls_id, *ids[:2], found.sep_id]) == "the cat"


def test_special_pieces_in_text_are_text():
    found = tokenizer()
    assert not {found.cls_id, found.mask_id} & set(found.encode("[CLS] [MASK]"))


def published_pieces(compat, text):
    """The published rule, piece by piece, as its code has it (`hf`: as transformers had it)."""
    model = serialized({**special(), **dict.fromkeys((*WORDS, *COMMA_PIECES), 1)})
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


@pytest.mark.parametrize("compat", normalization.COMPATS)
@pytest.mark.parametrize("text", ["2011, the 940, cats, 40,", "40,000", "the cat", "cats,"])
def test_digits_before_a_comma(compat, text):
    found = tokenizer(TokenizerConfig(compat=compat))
    expected = [found.piece_to_id(piece) for piece in published_pieces(compat, text)]
    assert found.encode(text) == expected


def test_compats_differ_inside_a_number():
    pieces = {
        compat: [tokenizer(TokenizerConfig(compat=compat)).id_to_piece(i) for i in ids]
        for compat in normalization.COMPATS
        for ids in [tokenizer(TokenizerConfig(compat=compat)).encode("940,")]
    }
    assert pieces == {
        "google": ["▁9", "▁", "4", "0", ","],
        "hf": ["▁9", "4", "0", ","],
        "hf_fast": ["▁9", "40,"],
    }


def test_encode_with_masks():
    found = tokenizer()
    mask = found.mask_id
    the, cat, s = (found.piece_to_id(piece) for piece in ("▁the", "▁cat", "s"))
    assert found.encode_with_masks("The [MASK]s.") == [the, mask, s, found.piece_to_id(".")]
    assert found.encode_with_masks("[MASK][MASK] cat [MASK]") == [mask, mask, cat, mask]
    assert found.encode_with_masks("[MASK] Ω[MASK]") == [mask, mask]
    text = "The cats, 2011, the 940,"
    assert found.encode_with_masks(text) == found.encode(text)


def test_tables():
    found = tokenizer()
    assert found.size == len(special()) + len(WORDS) + len(COMMA_PIECES)
    assert (found.pad_id, found.unk_id, found.cls_id, found.sep_id, found.mask_id) == (
        0,
        1,
        2,
        3,
        4,
    )
    assert found.is_word_start.shape == (found.size,)
    assert found.replacement_ids.tolist() == list(range(5, found.size))
    assert bool(found.is_word_start[found.piece_to_id("▁the")])
    assert not found.is_word_start[found.piece_to_id("s")]


def test_special_pieces_anywhere_in_the_vocabulary():
    pieces = {"▁a": 1, **special(), "b": 1}
    found = tokenization.from_sentencepiece(serialized(pieces), PUBLISHED)
    assert found.mask_id == 5
    assert found.replacement_ids.tolist() == [0, 6, 7, 8, 9]


def test_load_and_copy(folder, tmp_path):
    settings = TokenizerConfig(keep_accents=True)
    (folder / "cleaning.json").write_text(json.dumps(dataclasses.asdict(settings)))
    loaded = tokenization.load(str(folder))
    assert loaded.config == settings
    target = tmp_path / "deep" / "copy"
    tokenization.copy_vocabulary(str(folder), str(target))
    tokenization.copy_vocabulary(str(target), str(target))
    assert {path.name for path in target.iterdir()} == {"spiece.model", "cleaning.json"}
    assert tokenization.load(str(target)).sha256 == loaded.sha256


def test_sha256_tells_settings_and_models_apart(folder):
    before = tokenization.load(str(folder))
    assert before.config == PUBLISHED  # a model alone is a published one
    hashes = {before.sha256, tokenizer().sha256, tokenizer(TokenizerConfig(compat="hf")).sha256}
    assert len(hashes) == 3


def test_missing_folder():
    with pytest.raises(UserError, match=r"there is no file 'nowhere/spiece\.model'"):
        tokenization.load("nowhere")


@pytest.mark.parametrize("content", [b"", b"not a model", b"Ein Text.\n" * 99])
def test_not_a_model(tmp_path, content):
    (tmp_path / "spiece.model").write_bytes(content)
    with pytest.raises(UserError, match="is not a SentencePiece model"):
        tokenization.load(str(tmp_path))


def test_missing_special_pieces(tmp_path):
    pieces = special(without=("<pad>", "[SEP]"))
    (tmp_path / "spiece.model").write_bytes(serialized({**pieces, "a": 1}))
    with pytest.raises(UserError, match=r"lacks the special pieces <pad>, \[SEP\]\."):
        tokenization.load(str(tmp_path))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"unicode_form": "NFX"}, "unicode_form: 'NFX' is not one of NFKD"),
        ({"compat": "bing"}, "compat: 'bing' is not one of google, hf, hf_fast"),
        ({"lowercase": True}, "unknown key 'lowercase'"),
        ([], "cleaning.json does not hold a JSON object"),
    ],
)
def test_bad_settings(folder, values, message):
    (folder / "cleaning.json").write_text(json.dumps(values))
    with pytest.raises(UserError, match=message):
        tokenization.load(str(folder))


def test_a_trained_model_gives_the_same_one_by_one_and_in_a_batch():
    lines = [f"number {i}, {i * 37},{i % 7}00 of the series" for i in range(300)]
    writer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=writer,
        vocab_size=90,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        minloglevel=2,
    )
    found = tokenization.from_sentencepiece(writer.getvalue(), PUBLISHED)
    assert found.encode_batch(lines) == [found.encode(line) for line in lines]
    assert np.mean([found.unk_id in ids for ids in found.encode_batch(lines)]) == 0
