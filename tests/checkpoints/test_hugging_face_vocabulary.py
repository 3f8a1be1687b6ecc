"""Tests of translating the normalization of transformers and ours."""

import dataclasses
import json
import random
import re

import pytest
import tiny_checkpoints
import tiny_texts
import tokenizers
import vocabularies
from optional import transformers
from refusals import one_line
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers, processors

from albert_tf.checkpoints import hugging_face_vocabulary, model_checkpoint
from albert_tf.tokenizers import fast_tokenizer, tokenization
from albert_tf.tokenizers import sentencepiece_proto as proto
from albert_tf.tokenizers.tokenization import TokenizerConfig

WORDPIECES = ["[PAD]", *(f"x{i}" for i in range(56)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SPIECE, WORDPIECE = "spiece.model", "vocab.txt"
CASES = [
    (SPIECE, {}, []),
    (SPIECE, {"lower_case": False}, []),
    (SPIECE, {"keep_accents": True, "unicode_form": "none"}, []),
    (SPIECE, {"keep_accents": True}, ["unicode_form 'NFKD'"]),
    (SPIECE, {"keep_accents": True, "unicode_form": "NFC"}, ["unicode_form 'NFC'"]),
    (SPIECE, {"unicode_form": "none"}, ["unicode_form 'none'"]),
    (SPIECE, {"unicode_form": "NFKC", "compat": "hf"}, ["unicode_form 'NFKC'", "compat 'hf'"]),
    (
        WORDPIECE,
        {"lower_case": False, "keep_accents": False, "split_chinese": False, "compat": "hf"},
        [],
    ),
    (WORDPIECE, {}, ["compat 'google'"]),
]


@pytest.fixture(scope="module")
def pieces(vocabulary):
    """The two kinds of vocabularies."""
    files = tokenization.read_files(vocabulary)
    return {SPIECE: files[SPIECE], WORDPIECE: "\n".join(WORDPIECES).encode()}


def holding(vocabulary):
    return dataclasses.replace(tiny_checkpoints.make(), vocabulary=vocabulary)


WORDS = [
    *("x1x2", "(x3)", "well-known", "1,234,", "2011,", "café", "Ünï", "e\u0301", "``x``", "''"),
    *("ΟΔΟΣ", "İ", "ﬁn", "½", "-", ".", "–", "£5", "天安门", "한국어", "हिन्दी", "\x1c"),
    *("<x>", "\u3000"),
]


def make_lines(count=300):
    rng, ends = random.Random(0), ["", " "]
    drawn = ([rng.choice(WORDS) + rng.choice(ends) for _ in range(9)] for _ in range(count))
    return [*map("".join, drawn)]


def make_masked_lines():
    """Lines with [MASK], without the pieces that are special in transformers and not here."""
    lines = vocabularies.random_masked_texts(0, 300)
    return [line for line in lines if not re.search(r"\[(SEP|CLS|UNK)\]|<(pad|unk)>", line)]


def encode(theirs, lines):
    return [x.ids for x in theirs.encode_batch(lines, add_special_tokens=False)]


def assert_masked_ids_are_ours(theirs, ours, lines):
    for line, ids in zip(lines, encode(theirs, lines), strict=True):
        assert ids == ours.encode_with_masks(line), line


@pytest.mark.parametrize(("kind", "settings", "lost"), CASES)
def test_tokenizer_json_gives_our_ids(tmp_path, capsys, pieces, kind, settings, lost):
    made = holding({kind: pieces[kind], "cleaning.json": json.dumps(settings).encode()})
    hugging_face_vocabulary.write(made, str(tmp_path))
    lines = capsys.readouterr().err.splitlines()
    named = [line.split(";")[0] for line in lines if line.startswith("tokenizer_config")]
    assert named == [f"tokenizer_config.json cannot store {setting}" for setting in lost]
    ours = model_checkpoint.load_tokenizer(made)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    texts = [*make_lines(), *vocabularies.make_piece_lines(ours), "", " "]
    assert encode(theirs, texts) == ours.encode_batch(texts)
    assert_masked_ids_are_ours(theirs, ours, make_masked_lines())
    row = theirs.encode("x1 x2", "x3")
    first, second = ours.encode("x1 x2"), ours.encode("x3")
    assert row.ids == [ours.cls_id, *first, ours.sep_id, *second, ours.sep_id]
    assert row.type_ids == [0] * (len(first) + 2) + [1] * (len(second) + 1)
    assert hugging_face_vocabulary.read(str(tmp_path)) == made.vocabulary
    (tmp_path / "cleaning.json").unlink()  # transformers reads the other files
    checkpoint = holding(hugging_face_vocabulary.read(str(tmp_path)))
    assert (model_checkpoint.load_tokenizer(checkpoint).config == ours.config) == (not lost)
    (tmp_path / kind).unlink()  # it saves tokenizer.json alone
    read = tokenization.from_files(hugging_face_vocabulary.read(str(tmp_path)), "read")
    assert read.encode_batch(texts) == ours.encode_batch(texts)


@pytest.mark.parametrize("kind", [SPIECE, WORDPIECE])
def test_transformers_reads_tokenizer_json(tmp_path, capsys, pieces, kind):
    made = holding({kind: pieces[kind]})
    hugging_face_vocabulary.write(made, str(tmp_path))
    if kind == SPIECE:
        assert capsys.readouterr().err == (
            "tokenizer.json gives other ids than this project for <pad>, <unk>, [CLS], [SEP] "
            "or [MASK] in a text, for some letters with marks that the model's own rules change, "
            "and where two ways to cut a word are equally likely\n"
        )
    ours = model_checkpoint.load_tokenizer(made)
    (tmp_path / "config.json").write_text('{"model_type": "albert"}')
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    for line in [*make_lines(50), *make_masked_lines()]:
        ids = ours.encode_with_masks(line)
        assert theirs.encode(line, add_special_tokens=False) == ids, line
        if ours.unk_id not in ids:
            assert theirs.decode(ids, skip_special_tokens=True) == ours.decode(ids), line
    row = theirs("x1", "x2")
    first, second = ours.encode("x1"), ours.encode("x2")
    assert row["input_ids"] == [ours.cls_id, *first, ours.sep_id, *second, ours.sep_id]
    assert sum(row["token_type_ids"]) == len(second) + 1
    ids = [theirs.pad_token_id, theirs.unk_token_id, theirs.mask_token_id]
    assert ids == [ours.pad_id, ours.unk_id, ours.mask_id]
    assert len(theirs) == ours.size


@pytest.mark.parametrize("has_prefix", [True, False])
def test_a_mask_is_a_place_in_the_text(has_prefix):
    model = train(add_dummy_prefix=has_prefix)
    ours = tokenization.make_tokenizer(model, TokenizerConfig(compat="hf_fast"))
    theirs = fast_tokenizer.build(ours, model)
    lines = [*make_masked_lines(), "\u0301a", " a", "a", "^a", "[MASK]^", ""]
    assert_masked_ids_are_ours(theirs, ours, lines)


@pytest.mark.parametrize("kind", vocabularies.KINDS)
def test_every_kind_of_vocabulary_gives_our_ids_or_is_left_out(tmp_path, capsys, kind):
    content = vocabularies.train_kind(kind)
    ours = tokenization.make_tokenizer(content, TokenizerConfig(compat="hf_fast"))
    settings = b'{"compat": "hf_fast"}'
    made = holding({SPIECE: content, "cleaning.json": settings})
    hugging_face_vocabulary.write(made, str(tmp_path))
    line, *_ = capsys.readouterr().err.splitlines()
    if not (tmp_path / "tokenizer.json").exists():
        assert kind in ("word", "bpe_symbols", "nfkc_symbols")
        assert line.startswith("warning: transformers has no tokenizer for a vocabulary with ")
        assert not list(tmp_path.iterdir())
        return
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    extra = [*vocabularies.LINES, "a covid-19 of of <br>of the", "aaaaa eeeeeee ....... -----"]
    lines = [*vocabularies.make_piece_lines(ours), *make_lines(), *extra]
    pairs = zip(encode(theirs, lines), ours.encode_batch(lines), strict=True)
    different = [pair for pair in pairs if pair[0] != pair[1]]
    if kind == "folding":  # transformers does not fold a letter with marks
        assert 0 < len(different) < 10
        return
    score = ours.backend.processor.get_score
    for both in different:  # two ways to cut a word are equally likely
        assert kind not in ("bpe", "char", "bpe_bytes")
        first, second = (sum(map(score, ids)) for ids in both)
        assert first == pytest.approx(second, abs=1e-3)


def test_a_folder_that_needs_a_tokenizer_is_refused_and_others_need_no_vocabulary(tmp_path):
    hugging_face_vocabulary.write(holding({}), str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    made = holding({SPIECE: vocabularies.train_kind("word")})
    with one_line(r"with pieces that are whole words\. Use another --to_format"):
        hugging_face_vocabulary.write(made, str(tmp_path), needs_tokenizer=True)


def test_digits_before_a_comma_are_all_that_may_differ(tmp_path, capsys):
    """English, Chinese and Korean, with a vocabulary of pieces such as "▁2011,"."""
    ours = tiny_texts.sentencepieces()
    content = ours.backend.processor.serialized_model_proto()
    theirs = fast_tokenizer.build(ours, content)
    rng = random.Random(1)
    words = [word for line in vocabularies.LINES for word in line.split()]
    lines = [" ".join(rng.choices([*words, *WORDS, "(2", "x40,"], k=9)) for _ in range(600)]
    rows = zip(lines, encode(theirs, lines), ours.encode_batch(lines), strict=True)
    different = [line for line, a, b in rows if a != b]
    assert different
    assert all(re.search("[0-9],", line) for line in different)
    hugging_face_vocabulary.write(holding({SPIECE: content}), str(tmp_path))
    assert " in a text, for some digits before a comma, and where" in capsys.readouterr().err


def finish(built, special):
    built.add_special_tokens([AddedToken(x, normalized=False) for x in special])
    ids = [(x, built.token_to_id(x)) for x in ("[CLS]", "[SEP]")]
    texts = "[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1"
    built.post_processor = processors.TemplateProcessing(*texts, ids)
    return built


def train(rules="identity", **options):
    """A model without "00": it and "0" are as likely as "0" and it."""
    options |= {"vocab_size": 190, "hard_vocab_limit": False, "normalization_rule_name": rules}
    content = vocabularies.train_model(vocabularies.LINES * 9, **options)
    model = proto.ModelProto.FromString(content)
    for place in reversed(range(len(model.pieces))):
        if "00" in model.pieces[place].piece:
            del model.pieces[place]
    return model.SerializeToString()


def make_theirs(content, steps, *, added=(), has_bytes=False):
    """The tokenizer that transformers 5 makes of a SentencePiece model."""
    model = proto.ModelProto.FromString(content)
    vocabulary = [(x.piece, x.score) for x in model.pieces]
    vocabulary += [(f"<0x{i:02X}>", 0.0) for i in range(256)] * has_bytes
    built = tokenizers.Tokenizer(models.Unigram(vocabulary, 1, byte_fallback=has_bytes))
    charsmap = model.normalizer_spec.precompiled_charsmap
    quotes = [normalizers.Replace(x, '"') for x in ("``", "''")]
    own = [normalizers.Precompiled(charsmap)] if charsmap else []
    spaces = normalizers.Replace(Regex(" {2,}"), " ")
    built.normalizer = normalizers.Sequence([*quotes, *steps, *own, spaces])
    words = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace("▁", "always")]
    built.pre_tokenizer = pre_tokenizers.Sequence(words)
    built.add_tokens([AddedToken(x, normalized=False) for x in added])
    return finish(built, ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"])


NO_ACCENTS = [normalizers.NFKD(), normalizers.StripAccents()]
UNCASED = [*NO_ACCENTS, normalizers.Lowercase()]
# Special in transformers alone, white space in Python alone, and two marks, of which one is lost.
NOT_THEIRS = re.compile(r"\[(SEP|CLS|UNK|MASK)\]|<(pad|unk)>|[\x0b\x1c-\x1f]|o\u0308\u0304")


def make_odd_lines():
    lines = [*make_lines(), *vocabularies.LINES, *vocabularies.NASTY, "``x'' '''", "ΟΔΟΣ"]
    return [line for line in lines if not NOT_THEIRS.search(line)]


def read_theirs(folder, theirs):
    """Reads the tokenizer as a folder has it, where texts are padded and cut."""
    theirs.enable_padding(length=128)
    theirs.enable_truncation(64)
    theirs.save(str(folder / "tokenizer.json"))
    theirs.no_padding()
    theirs.no_truncation()
    return tokenization.from_files(hugging_face_vocabulary.read(str(folder)), "read")


def assert_ids_are_theirs(read, theirs, lines):
    ours = read.encode_batch(lines)
    assert [*zip(lines, ours, strict=True)] == [*zip(lines, encode(theirs, lines), strict=True)]


@pytest.mark.parametrize(
    ("steps", "rules"),
    [
        (UNCASED, "identity"),
        (UNCASED, "nmt_nfkc"),
        (NO_ACCENTS, "nmt_nfkc_cf"),
        ([normalizers.Lowercase()], "nmt_nfkc"),
        ([], "identity"),
    ],
)
def test_a_folder_of_transformers_5_has_the_ids_of_its_tokenizer(tmp_path, steps, rules):
    content = train(rules)
    theirs = make_theirs(content, steps)
    read = read_theirs(tmp_path, theirs)
    lines = make_odd_lines() + vocabularies.make_piece_lines(read) * ("StripAccents" in str(steps))
    assert_ids_are_theirs(read, theirs, lines)
    if steps == UNCASED and rules == "identity":  # where transformers does as SentencePiece does
        same = tokenization.make_tokenizer(content, TokenizerConfig(compat="hf_fast"))
        lines = [line for line in lines if not re.search("Σ|[\u0900-\u0dff]|``|''", line)]
        assert read.encode_batch(lines) == same.encode_batch(lines)


def test_bytes_are_read_and_what_was_read_is_written_with_its_ids(tmp_path):
    theirs = make_theirs(train("nmt_nfkc"), UNCASED, has_bytes=True)
    read = read_theirs(tmp_path, theirs)
    assert_ids_are_theirs(read, theirs, make_odd_lines())
    made = holding(hugging_face_vocabulary.read(str(tmp_path)))
    hugging_face_vocabulary.write(made, str(tmp_path))
    written = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert_ids_are_theirs(read, written, make_odd_lines())


@pytest.mark.parametrize(
    "switches", [{}, {"lowercase": False}, {"strip_accents": False, "handle_chinese_chars": False}]
)
def test_a_folder_of_transformers_5_with_wordpieces(tmp_path, switches):
    vocabulary = {piece: i for i, piece in enumerate([*WORDPIECES, *"aeéστο天安", "##σ", "##ς"])}
    theirs = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    theirs.normalizer = normalizers.BertNormalizer(**switches)
    theirs.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    read = read_theirs(tmp_path, finish(theirs, WORDPIECES[-4:]))
    assert read.backend.pieces == list(vocabulary)
    assert_ids_are_theirs(read, theirs, [*make_odd_lines(), "x" * 150])


def test_user_defined_symbols_that_transformers_adds_are_noted(tmp_path, capsys):
    content = train(user_defined_symbols=["(", ")"])
    make_theirs(content, UNCASED, added=["(", ")"]).save(str(tmp_path / "tokenizer.json"))
    (tmp_path / SPIECE).write_bytes(content)
    read = tokenization.from_files(hugging_face_vocabulary.read(str(tmp_path)), "read")
    assert "removes a space before each added token, such as '('" in capsys.readouterr().err
    same = tokenization.make_tokenizer(content, TokenizerConfig())
    assert read.encode_batch(make_lines()) == same.encode_batch(make_lines())


def test_symbols_that_transformers_adds_are_words_where_its_file_is_all(tmp_path):
    symbols = ["(", ")", ".", "-", "<2>"]
    theirs = make_theirs(train(user_defined_symbols=symbols), UNCASED, added=symbols)
    read = read_theirs(tmp_path, theirs)
    lines = ["(a)b ( c ) -d- e<2>f. .g", "(", "a...", "天（a）b…c", *make_odd_lines()]
    assert_ids_are_theirs(read, theirs, [line for line in lines if not re.search(" …", line)])
    theirs.add_tokens(["<extra>"])
    with one_line("adds tokens to its vocabulary, such as '<extra>'"):
        read_theirs(tmp_path, theirs)


def test_a_symbol_that_other_text_becomes_is_named(tmp_path, capsys):
    theirs = make_theirs(train(user_defined_symbols=["<br>"]), UNCASED, added=["<br>"])
    theirs.save(str(tmp_path / "tokenizer.json"))
    assert hugging_face_vocabulary.read(str(tmp_path)) == {}
    assert "has an added token '<br>' that '<" in capsys.readouterr().err


BPE = {"type": "BPE", "vocab": {}, "merges": []}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"normalizer": {"type": "Nmt"}}, "has the normalizer Nmt, which is not supported here"),
        ({"post_processor": None}, "has another post-processor than [CLS] A [SEP] B [SEP], which"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "has the pre-tokenizer Whitespace, which"),
        ({"pre_tokenizer": None}, "has the pre-tokenizer none, which"),
        (
            {"model": BPE},
            "has a BPE model, which is not supported here: the vocabulary is left out",
        ),
        ({"model": {}}, "is not a file of the tokenizers library"),
    ],
)
def test_a_tokenizer_json_that_is_not_computed_is_named(tmp_path, capsys, pieces, changes, message):
    values = json.loads(make_theirs(pieces[SPIECE], UNCASED).to_str())
    (tmp_path / "tokenizer.json").write_text(json.dumps(values | changes))
    assert hugging_face_vocabulary.read(str(tmp_path)) == {}
    assert message in capsys.readouterr().err
