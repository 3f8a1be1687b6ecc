"""Tests of translating the normalization of transformers and ours."""

import json
import random
import re

import pytest
import tiny_checkpoints
import tiny_run
import tiny_texts
import tokenizers
import vocabularies
from optional import transformers
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers, processors

from albert_tf.checkpoints import (
    hugging_face_tokenizer,
    hugging_face_vocabulary,
    model_checkpoint,
)
from albert_tf.errors import UserError
from albert_tf.tokenizers import sentencepiece_proto as proto
from albert_tf.tokenizers import tokenization
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
    (WORDPIECE, {"lower_case": False, "keep_accents": False, "split_chinese": False}, []),
    (WORDPIECE, {"compat": "hf"}, ["compat 'hf'"]),
]


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """The two kinds of vocabularies."""
    folder = tiny_run.write_vocabulary(str(tmp_path_factory.mktemp("vocabulary")))
    vocabulary = tiny_checkpoints.make(folder).vocabulary
    return {SPIECE: vocabulary[SPIECE], WORDPIECE: "\n".join(WORDPIECES).encode()}


def holding(vocabulary):
    made = tiny_checkpoints.make()
    return model_checkpoint.ModelCheckpoint(
        source="made", config=made.config, weights=made.weights, vocabulary=vocabulary
    )


@pytest.mark.parametrize(("kind", "config_values", "lost"), CASES)
def test_settings_that_transformers_lacks_are_noted_and_the_others_are_kept(
    tmp_path, capsys, pieces, kind, config_values, lost
):
    made = holding({kind: pieces[kind], "cleaning.json": json.dumps(config_values).encode()})
    hugging_face_vocabulary.write(made, str(tmp_path))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(";")[0] for line in lines if line.startswith("tokenizer_config")] == [
        f"tokenizer_config.json has no {setting}" for setting in lost
    ]
    assert hugging_face_vocabulary.read(str(tmp_path)) == made.vocabulary
    (tmp_path / "cleaning.json").unlink()  # transformers reads the other files
    checkpoint = holding(hugging_face_vocabulary.read(str(tmp_path)))
    same = (
        model_checkpoint.load_tokenizer(checkpoint).config
        == model_checkpoint.load_tokenizer(made).config
    )
    assert same == (not lost)


WORDS = [
    *("x1x2", "(x3)", "well-known", "1,234,", "2011,", "café", "Ünï", "e\u0301", "``x``", "''"),
    *(
        "ΟΔΟΣ",
        "İ",
        "ﬁn",
        "½",
        "-",
        ".",
        "–",
        "£5",
        "天安门",
        "한국어",
        "हिन्दी",
        "\x1c",
        "<x>",
        "\u3000",
    ),
]


def make_lines(count=300):
    rng = random.Random(0)
    return [
        "".join(rng.choice(WORDS) + rng.choice(["", " "]) for _ in range(9)) for _ in range(count)
    ]


def make_masked_lines():
    """Lines with [MASK], without the pieces that are special in transformers and not here."""
    lines = vocabularies.random_masked_texts(0, 400)
    return [line for line in lines if not re.search(r"\[(SEP|CLS|UNK)\]|<(pad|unk)>", line)]


def write_fast(folder, pieces, kind, settings):
    made = holding({kind: pieces[kind], "cleaning.json": json.dumps(settings).encode()})
    hugging_face_vocabulary.write(made, str(folder))
    return model_checkpoint.load_tokenizer(made)


@pytest.mark.parametrize(("kind", "settings"), [case[:2] for case in CASES])
def test_tokenizer_json_gives_our_ids(tmp_path, pieces, kind, settings):
    ours = write_fast(tmp_path, pieces, kind, settings)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for line in (*make_lines(), *vocabularies.make_piece_lines(ours), "", " "):
        assert theirs.encode(line, add_special_tokens=False).ids == ours.encode(line), line
    for line in make_masked_lines():
        ids = ours.encode_with_masks(line)
        assert theirs.encode(line, add_special_tokens=False).ids == ids, line
    row = theirs.encode("x1 x2", "x3")
    first, second = ours.encode("x1 x2"), ours.encode("x3")
    assert row.ids == [ours.cls_id, *first, ours.sep_id, *second, ours.sep_id]
    assert row.type_ids == [0] * (len(first) + 2) + [1] * (len(second) + 1)


@pytest.mark.parametrize("kind", [SPIECE, WORDPIECE])
def test_transformers_reads_tokenizer_json(tmp_path, pieces, kind):
    ours = write_fast(tmp_path, pieces, kind, {})
    (tmp_path / "config.json").write_text('{"model_type": "albert"}')
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    for line in make_lines(100):
        assert theirs.encode(line, add_special_tokens=False) == ours.encode(line), line
    for line in make_masked_lines():
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


def test_where_ids_differ_is_said_on_the_terminal(tmp_path, capsys, pieces):
    write_fast(tmp_path, pieces, SPIECE, {})
    [line] = capsys.readouterr().err.splitlines()
    assert line == (
        "tokenizer.json gives other ids than this project for <pad>, <unk>, [CLS], [SEP] "
        "or [MASK] in a text, for some letters with marks that the model's own rules change, and "
        "where two ways to cut a word are equally likely"
    )


@pytest.mark.parametrize("has_prefix", [True, False])
def test_a_mask_is_a_place_in_the_text(has_prefix):
    model = vocabularies.train_model(
        vocabularies.LINES * 9,
        vocab_size=190,
        hard_vocab_limit=False,
        add_dummy_prefix=has_prefix,
        normalization_rule_name="identity",
    )
    ours = tokenization.make_tokenizer(model, TokenizerConfig(compat="hf_fast"))
    theirs = hugging_face_tokenizer.build(ours, model)
    for line in (*make_masked_lines(), "\u0301a", " a", "a", "^a", "[MASK]^", ""):
        ids = theirs.encode(line, add_special_tokens=False).ids
        assert ids == ours.encode_with_masks(line), line


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
    different = [
        line
        for line in (*vocabularies.make_piece_lines(ours), *make_lines(), *extra)
        if theirs.encode(line, add_special_tokens=False).ids != ours.encode(line)
    ]
    if kind == "folding":  # transformers does not fold a letter with marks
        assert 0 < len(different) < 10
        return
    for line in different:  # two ways to cut a word are equally likely
        assert kind not in ("bpe", "char", "bpe_bytes")
        both = theirs.encode(line, add_special_tokens=False).ids, ours.encode(line)
        score = ours.backend.processor.get_score
        first, second = (sum(map(score, ids)) for ids in both)
        assert first == pytest.approx(second, abs=1e-3), line


def test_a_folder_that_needs_a_tokenizer_is_refused(tmp_path):
    made = holding({SPIECE: vocabularies.train_kind("word")})
    with pytest.raises(
        UserError, match=r"with pieces that are whole words\. Take another --to_format"
    ):
        hugging_face_vocabulary.write(made, str(tmp_path), needs_tokenizer=True)


def test_digits_before_a_comma_are_all_that_may_differ(tmp_path, capsys):
    """English, Chinese and Korean, with a vocabulary of pieces such as "▁2011,"."""
    ours = tiny_texts.sentencepieces()
    content = ours.backend.processor.serialized_model_proto()
    theirs = hugging_face_tokenizer.build(ours, content)
    rng = random.Random(1)
    words = [word for line in vocabularies.LINES for word in line.split()]
    lines = [" ".join(rng.choices([*words, *WORDS, "(2", "x40,"], k=9)) for _ in range(600)]
    different = [
        line
        for line in lines
        if theirs.encode(line, add_special_tokens=False).ids != ours.encode(line)
    ]
    assert different
    assert all(re.search("[0-9],", line) for line in different)
    hugging_face_vocabulary.write(holding({SPIECE: content}), str(tmp_path))
    assert " in a text, for some digits before a comma, and where" in capsys.readouterr().err


def test_without_a_vocabulary_nothing_is_written(tmp_path, capsys):
    hugging_face_vocabulary.write(holding({}), str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], r"/tokenizer_config\.json does not hold a JSON object"),
        ({"do_lower_case": "yes"}, r"config\.json: do_lower_case must be true or false, not 'yes'"),
        ({"keep_accents": 1}, r"config\.json: keep_accents must be true or false, not 1"),
        ({"strip_accents": []}, r"config\.json: strip_accents must be true or false, not \[\]"),
    ],
)
def test_switches_of_a_wrong_type_are_errors(tmp_path, pieces, values, message):
    (tmp_path / SPIECE).write_bytes(pieces[SPIECE])
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(values))
    with pytest.raises(UserError, match=message):
        hugging_face_vocabulary.read(str(tmp_path))


@pytest.mark.parametrize(("kind", "settings"), [case[:2] for case in CASES])
def test_a_folder_of_ours_is_read_from_tokenizer_json_alone(tmp_path, pieces, kind, settings):
    ours = write_fast(tmp_path, pieces, kind, settings)
    for name in (kind, "cleaning.json"):
        (tmp_path / name).unlink()
    read = tokenization.from_files(hugging_face_vocabulary.read(str(tmp_path)), "read")
    lines = [*make_lines(), *vocabularies.make_piece_lines(ours), "", " "]
    assert read.encode_batch(lines) == ours.encode_batch(lines)


def finish(built, special):
    built.add_special_tokens([AddedToken(x, normalized=False) for x in special])
    built.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(x, built.token_to_id(x)) for x in ("[CLS]", "[SEP]")],
    )
    return built


def train(rules="identity", **options):
    """A model without "00": it and "0" are as likely as "0" and it."""
    options = {"vocab_size": 190, "hard_vocab_limit": False, **options}
    content = vocabularies.train_model(
        vocabularies.LINES * 9, normalization_rule_name=rules, **options
    )
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
    spaces = normalizers.Replace(Regex(" {2,}"), " ")
    built.normalizer = normalizers.Sequence(
        [*quotes, *steps, *([normalizers.Precompiled(charsmap)] if charsmap else []), spaces]
    )
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
    for line in lines:
        assert read.encode(line) == theirs.encode(line, add_special_tokens=False).ids, line


@pytest.mark.parametrize("rules", ["identity", "nmt_nfkc", "nmt_nfkc_cf"])
@pytest.mark.parametrize("steps", [UNCASED, NO_ACCENTS, [normalizers.Lowercase()], []])
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


def test_what_was_read_from_tokenizer_json_is_written_with_its_ids(tmp_path):
    theirs = make_theirs(train("nmt_nfkc"), UNCASED)
    read = read_theirs(tmp_path, theirs)
    made = holding(hugging_face_vocabulary.read(str(tmp_path)))
    hugging_face_vocabulary.write(made, str(tmp_path))
    written = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert_ids_are_theirs(read, written, make_odd_lines())


def test_bytes_are_read(tmp_path):
    theirs = make_theirs(train(), UNCASED, has_bytes=True)
    assert_ids_are_theirs(read_theirs(tmp_path, theirs), theirs, make_odd_lines())


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
    with pytest.raises(UserError, match="adds pieces to its vocabulary, such as '<extra>'"):
        read_theirs(tmp_path, theirs)


def test_a_symbol_that_other_text_becomes_is_named(tmp_path, capsys):
    theirs = make_theirs(train(user_defined_symbols=["<br>"]), UNCASED, added=["<br>"])
    theirs.save(str(tmp_path / "tokenizer.json"))
    assert hugging_face_vocabulary.read(str(tmp_path)) == {}
    assert "has an added token '<br>' that '<" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"normalizer": {"type": "Nmt"}}, "has the normalizer Nmt, which is not computed here"),
        ({"post_processor": None}, "has another post-processor than [CLS] A [SEP] B [SEP], which"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "has the pre-tokenizer Whitespace, which"),
        ({"pre_tokenizer": None}, "has the pre-tokenizer none, which"),
        (
            {"model": {"type": "BPE", "vocab": {}, "merges": []}},
            "has a BPE model, which is not computed here: the vocabulary is left out",
        ),
        ({"model": {}}, "is not a file of the library tokenizers"),
    ],
)
def test_a_tokenizer_json_that_is_not_computed_here_is_named(
    tmp_path, capsys, pieces, changes, message
):
    values = json.loads(make_theirs(pieces[SPIECE], UNCASED).to_str())
    (tmp_path / "tokenizer.json").write_text(json.dumps(values | changes))
    assert hugging_face_vocabulary.read(str(tmp_path)) == {}
    assert message in capsys.readouterr().err
