"""Tests of translating the normalization of transformers and ours."""

import json

import pytest
import tiny_checkpoints
import tiny_run

from albert_tf.checkpoints import hugging_face_vocabulary, model_checkpoint
from albert_tf.errors import UserError

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
    assert [line.split(" and ")[0] for line in lines] == [
        f"transformers has no {setting}" for setting in lost
    ]
    assert hugging_face_vocabulary.read(str(tmp_path)) == made.vocabulary
    (tmp_path / "cleaning.json").unlink()  # transformers reads the other files
    checkpoint = holding(hugging_face_vocabulary.read(str(tmp_path)))
    same = (
        model_checkpoint.load_tokenizer(checkpoint).config
        == model_checkpoint.load_tokenizer(made).config
    )
    assert same == (not lost)


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


def test_a_vocabulary_that_is_not_read_is_noted(tmp_path, capsys, pieces):
    def log_notes():
        hugging_face_vocabulary.read(str(tmp_path))
        return capsys.readouterr().err

    assert log_notes() == ""
    (tmp_path / "tokenizer.json").write_text("{}")
    expected = "tokenizer.json is not read; for a vocabulary, put spiece.model"
    assert log_notes().startswith(expected)
    (tmp_path / SPIECE).write_bytes(pieces[SPIECE])
    assert log_notes() == ""
