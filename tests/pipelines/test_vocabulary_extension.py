"""bin/extend_vocabulary: new pieces in a vocabulary and in its checkpoint."""

import json

import numpy as np
import pytest
import tiny_checkpoints
import vocabularies
from refusals import one_line
from repository import ROOT

import albert_tf
from albert_tf.checkpoints import formats, model_checkpoint
from albert_tf.pipelines import vocabulary_extension
from albert_tf.tokenizers import sentencepiece_proto, tokenization

PROGRAM = ROOT / "bin/extend_vocabulary"
WORDS, BIAS = "bert/embeddings/word_embeddings", "cls/predictions/output_bias"
WORDPIECES = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "heart", "##s", "a", "##o", "##rta", "the"),
    *("of", "##f", "o", "##rt", "##a", "-", "is", "."),
]
DOMAIN = ["the aorta of hearts", "aortas , the aorta", "cardio is of the aorta", "off ω"] * 30


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory, vocabulary):
    """{kind of vocabulary: folder of a checkpoint}"""
    root = tmp_path_factory.mktemp("checkpoints")
    (root / "vocab.txt").write_text("".join(f"{piece}\n" for piece in WORDPIECES))
    folders = {"sentencepiece": vocabulary, "wordpiece": str(root)}
    return {kind: write(root / kind, folder) for kind, folder in folders.items()}


def write(folder, vocabulary):
    """Writes a checkpoint with a vocabulary of any size."""
    made = tiny_checkpoints.make(vocabulary, vocab_size=tokenization.load(str(vocabulary)).size)
    return tiny_checkpoints.write(folder, made, "albert_tf")


@pytest.fixture
def extend(checkpoints, tmp_path):
    def extend(kind, pieces=None, text=None, name="out", **options):
        for file, content in (("pieces.txt", pieces), ("text.txt", text)):
            (tmp_path / file).write_text(content or "")
        if pieces is not None:
            options["pieces"] = str(tmp_path / "pieces.txt")
        if text is not None:
            options["input_files"] = [str(tmp_path / "text.txt")]
        vocabulary_extension.extend(checkpoints[kind], str(tmp_path / name), **options)
        return formats.read(str(tmp_path / name))

    return extend


def load(checkpoint):
    return model_checkpoint.load_tokenizer(checkpoint)


@pytest.mark.parametrize(
    ("kind", "pieces", "texts"),
    [
        ("sentencepiece", ["▁cardio", "▁cardiologist", "ology", "ω"], ["cardio", "cardiologist"]),
        ("wordpiece", ["aorta", "hearts", "##off", "ω"], ["aorta", "hearts"]),
    ],
)
def test_new_pieces_are_used_and_old_ones_stay(extend, checkpoints, kind, pieces, texts):
    before = formats.read(checkpoints[kind])
    after = extend(kind, "\n".join(pieces) + "\n\n")
    old, new = load(before), load(after)
    size = old.size
    assert new.size == size + len(pieces) == after.config.vocab_size
    names = [new.id_to_piece(k) for k in range(new.size)]
    assert names == [*(old.id_to_piece(k) for k in range(size)), *pieces]
    for number, text in enumerate(texts):
        assert new.encode(text) == [size + number]
        parts = old.encode(text)
        assert len(parts) > 1
        for name in (WORDS, BIAS):
            expected = before.weights[name][parts].mean(0)
            np.testing.assert_allclose(after.weights[name][size + number], expected, atol=1e-6)
    # A character without a piece was unknown.
    np.testing.assert_allclose(after.weights[WORDS][-1], before.weights[WORDS][old.unk_id])
    assert new.encode("ω")[-1] == new.size - 1
    for name, array in before.weights.items():
        np.testing.assert_array_equal(after.weights[name][: len(array)], array, err_msg=name)
    # What has no new piece is read as before.
    assert new.encode("the o is of") == old.encode("the o is of")


@pytest.mark.parametrize("kind", ["sentencepiece", "wordpiece"])
def test_pieces_are_learnt_from_text(extend, checkpoints, kind, capsys):
    after = extend(kind, text="\n".join(DOMAIN), num_pieces=4)
    old, new = load(formats.read(checkpoints[kind])), load(after)
    assert old.size < new.size <= old.size + 4
    names = [new.id_to_piece(k).removeprefix("▁") for k in range(old.size, new.size)]
    assert "aorta" in names
    before, now = (sum(map(len, x.encode_batch(DOMAIN))) for x in (old, new))
    assert now < before
    output = capsys.readouterr()
    words = sum(len(line.split()) for line in DOMAIN)
    shown = f"{words:,} words: {before / words:.4f} tokens a word before, {now / words:.4f} after"
    assert shown in output.out
    assert f"{old.size:,} + {len(names):,} = {new.size:,} pieces" in output.out


def test_a_new_piece_is_the_best_split_of_itself(extend):
    """A long word whose parts are new pieces, too, and likelier together."""
    new = load(extend("sentencepiece", "▁cardio\n▁cardiology\nlog\nlogy"))
    assert [new.id_to_piece(k) for k in new.encode("cardiology")] == ["▁cardiology"]
    content = new.backend.processor.serialized_model_proto()
    model = sentencepiece_proto.ModelProto.FromString(content)
    assert model.pieces[-1].type == sentencepiece_proto.NORMAL


def test_the_folder_is_a_checkpoint_with_its_vocabulary(extend, tmp_path):
    extend("sentencepiece", "▁cardio\n▁aorta\n")
    model = albert_tf.load(str(tmp_path / "out"))
    assert model.embed(["cardio aorta"]).shape == (1, 8)
    [[guesses]] = model.fill_mask(["cardio [MASK]"], top_k=63)
    assert {"▁cardio", "▁aorta"} <= {guess.piece for guess in guesses}
    vocabulary = tmp_path / "out" / "vocabulary"
    assert "spiece.model" in json.loads((vocabulary / "sha256.json").read_text())
    assert tokenization.load(str(vocabulary)).size == 63


@pytest.mark.parametrize(
    ("kind", "pieces", "message"),
    [
        ("sentencepiece", " \n\n", "pieces.txt is empty. Write one token per line."),
        ("sentencepiece", "▁a b\n", "line 1: '▁a b' never occurs: .* turns it into 'a b'"),
        ("sentencepiece", "▁x▁y\n", "line 1: '▁x▁y' never occurs: .* turns it into 'x y'"),
        ("sentencepiece", "▁new\n▁Herz\n", "line 2: '▁Herz' never occurs: .* turns it into 'herz'"),
        ("sentencepiece", "▁new\n\n▁new\n", "line 3: '▁new' occurs twice"),
        ("sentencepiece", "(\n", r"line 1: '\(' is already in the vocabulary: "),
        ("sentencepiece", "▁2011,\n", "line 1: '▁2011,' never occurs: .* turns it into '2011 ,'"),
        ("wordpiece", "heart\n", "line 1: 'heart' is already in the vocabulary: 5"),
        ("wordpiece", "covid-19\n", "line 1: 'covid-19' never occurs: .* into 'covid - 19'"),
        ("wordpiece", "##\n", "line 1: '##' never occurs"),
        ("sentencepiece", None, "pass either --pieces"),
    ],
)
def test_a_bad_list_is_one_line_and_nothing_is_written(extend, tmp_path, kind, pieces, message):
    with one_line(message):
        extend(kind, pieces)
    assert not (tmp_path / "out").exists()


def test_other_mistakes_are_one_line(extend, tmp_path):
    with one_line(r"text.txt has no text"):
        extend("sentencepiece", text="")
    (tmp_path / "there").mkdir()
    with one_line("there already exists"):
        extend("sentencepiece", "▁new\n", name="there")
    with one_line("gives no new tokens"):
        extend("wordpiece", text="the of is\n" * 200, name="none")


def test_a_piece_that_the_vocabulary_would_not_use_is_refused(tmp_path):
    """The rules of the model itself, which others trained, change its text."""
    folder = tmp_path / "vocabulary"
    folder.mkdir()
    (folder / tokenization.MODEL).write_bytes(vocabularies.train_kind("folding"))
    pieces = tmp_path / "pieces.txt"
    pieces.write_text("▁aς\n", encoding="utf-8")
    source = write(tmp_path / "in", folder)
    with one_line("never produces '▁aς'"):
        vocabulary_extension.extend(source, str(tmp_path / "out"), pieces=str(pieces))


def test_the_program(run_program, checkpoints, tmp_path, capsys):
    (tmp_path / "pieces.txt").write_text("\ufeff▁große\n", encoding="utf-8")
    command = [PROGRAM, f"--checkpoint={checkpoints['sentencepiece']}"]
    command += [f"--output_dir={tmp_path}/out", f"--pieces={tmp_path}/pieces.txt"]
    assert not run_program(*command)
    assert capsys.readouterr().out == f"{tmp_path}/out: 61 + 1 = 62 pieces\n"
