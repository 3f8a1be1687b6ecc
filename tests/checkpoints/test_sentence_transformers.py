"""Tests of folders of sentence-transformers by their files, without the package."""

import dataclasses
import json

import numpy as np
import pytest
import safetensors.numpy
import tiny_checkpoints

import albert_tf
from albert_tf.checkpoints import formats
from albert_tf.errors import UserError
from albert_tf.train_config import SentenceVectors

MEAN = SentenceVectors(pooling="mean", normalize=False, max_seq_length=16)
FIRST = SentenceVectors(pooling="first", normalize=True, max_seq_length=7)


@pytest.fixture
def written(tmp_path, vocabulary):
    def write(vectors=MEAN, **changes):
        folder = tmp_path / "folder"
        folder.mkdir()
        made = tiny_checkpoints.make(vocabulary, model="bare", **changes)
        made = dataclasses.replace(made, vectors=vectors)
        formats.get_writer("sentence_transformers")(made, str(folder))
        return folder, made

    return write


def read_json(path):
    return json.loads(path.read_text())


@pytest.mark.parametrize("vectors", [MEAN, FIRST, dataclasses.replace(MEAN, normalize=True)])
def test_a_written_folder_is_read_with_its_vectors(written, vectors):
    folder, made = written(vectors)
    assert formats.detect_format(str(folder)) == "sentence_transformers"
    checkpoint = formats.read(str(folder))
    tiny_checkpoints.assert_same(checkpoint, made)
    assert checkpoint.vectors == vectors
    model = albert_tf.load(folder)
    assert model.run_config.max_seq_length == vectors.max_seq_length
    assert model.run_config.pooling == vectors.pooling
    chosen = model.embed(["abcd"], pooling=vectors.pooling, normalize=vectors.normalize)
    np.testing.assert_array_equal(model.embed(["abcd"]), chosen)


def test_the_modules_of_the_pooled_first_token(written):
    folder, made = written(FIRST)
    modules = read_json(folder / "modules.json")
    assert [module["path"] for module in modules] == ["", "1_Pooling", "2_Dense", "3_Normalize"]
    assert modules[2]["type"] == "sentence_transformers.models.Dense"
    assert read_json(folder / "1_Pooling" / "config.json") == {
        "word_embedding_dimension": 8,
        "pooling_mode_cls_token": True,
        "pooling_mode_mean_tokens": False,
    }
    dense = safetensors.numpy.load_file(folder / "2_Dense" / "model.safetensors")
    kernel = made.weights["bert/pooler/dense/kernel"]
    np.testing.assert_array_equal(dense["linear.weight"], kernel.T)
    assert read_json(folder / "sentence_bert_config.json")["max_seq_length"] == 7


def test_the_folder_of_the_encoder_and_newer_names_are_read(written):
    folder, made = written()
    (folder / "0_Transformer").mkdir()
    for path in [path for path in folder.iterdir() if path.is_file()]:
        if path.name not in ("modules.json", "config_sentence_transformers.json"):
            path.rename(folder / "0_Transformer" / path.name)
    modules = read_json(folder / "modules.json")
    modules[0] |= {"path": "0_Transformer"}
    modules[1] |= {"type": "sentence_transformers.sentence_transformer.modules.pooling.Pooling"}
    (folder / "modules.json").write_text(json.dumps(modules))
    pooling = {"embedding_dimension": 8, "pooling_mode": "mean", "include_prompt": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    checkpoint = formats.read(str(folder))
    tiny_checkpoints.assert_same(checkpoint, made)
    assert checkpoint.vectors == MEAN


def test_flags_replace_what_the_source_says(written, tmp_path):
    folder, _ = written(FIRST)
    again = str(tmp_path / "again")
    wished = SentenceVectors(normalize=False, max_seq_length=9)
    formats.convert(str(folder), again, to_format="sentence_transformers", vectors=wished)
    expected = SentenceVectors(pooling="first", normalize=False, max_seq_length=9)
    assert formats.read(again).vectors == expected
    with pytest.raises(UserError, match="--normalize is for --to_format=sentence_transformers"):
        formats.convert(str(folder), str(tmp_path / "x"), vectors=wished)
    wished = SentenceVectors(max_seq_length=17)
    with pytest.raises(UserError, match="--max_seq_length: 17 is over the model's 16 positions"):
        formats.convert(
            str(folder), str(tmp_path / "x"), to_format="sentence_transformers", vectors=wished
        )
    assert not (tmp_path / "x").exists()


def change(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


SETTINGS, TEXTS = "config_sentence_transformers.json", "sentence_bert_config.json"


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (
            SETTINGS,
            {"prompts": {"q": "query: "}, "default_prompt_name": "q"},
            "default_prompt_name is 'q'; here it is always None",
        ),
        (SETTINGS, {"truncate_dim": 8}, "truncate_dim is 8; here it is always None"),
        (SETTINGS, {"model_type": "SparseEncoder"}, "model_type is 'SparseEncoder'"),
        (SETTINGS, {"other": 1}, "the key 'other' is unknown here"),
        (TEXTS, {"do_lower_case": True}, "do_lower_case is True"),
        (TEXTS, {"query_length": 5}, "query_length is 5"),
        (TEXTS, {"processing_kwargs": {"text": {"truncation": False}}}, "processing_kwargs is"),
        (TEXTS, {"transformer_task": "fill-mask"}, "transformer_task is 'fill-mask'"),
        (TEXTS, {"tokenizer_args": {"x": 1}}, "tokenizer_args is"),
        (TEXTS, {"other": None}, "the key 'other' is unknown here"),
        ("1_Pooling/config.json", {"other": 1}, "the key 'other' is unknown here"),
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, r"pooling \['cls', 'max'\]"),
        ("2_Dense/config.json", {"use_residual": True}, "use_residual is True"),
        ("2_Dense/config.json", {"bias": False}, "bias is False"),
        ("2_Dense/config.json", {"module_input_name": "token_embeddings"}, "module_input_name is"),
        ("3_Normalize/config.json", {"module_output_name": "other"}, "module_output_name is"),
        ("modules.json", None, "modules Transformer, mine.Pooling, Dense, Normalize"),
    ],
)
def test_what_would_change_vectors_is_refused_by_its_name(written, name, changes, message):
    folder, _ = written(FIRST)
    (folder / "cleaning.json").write_text('{"lower_case": false}')
    path = folder / name
    if changes is None:
        change_modules(folder, 1, type="mine.Pooling")
    else:
        change(path, **changes)
    (folder / "sha256.json").unlink(missing_ok=True)
    with pytest.raises(UserError, match=message) as caught:
        formats.read(str(folder))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        (SETTINGS, {"prompts": {"q": ""}, "default_prompt_name": "q"}),
        (SETTINGS, {"prompts": {"q": "query: "}, "similarity_fn_name": "dot"}),
        (TEXTS, {"do_lower_case": True, "unpad_inputs": True}),  # the vocabulary has lower case
        ("1_Pooling/config.json", {"include_prompt": False, "pooling_mode_max_tokens": False}),
        ("3_Normalize/config.json", {"module_input_name": "sentence_embedding"}),
    ],
)
def test_what_changes_nothing_is_read(written, name, changes):
    folder, made = written(FIRST)
    change(folder / name, **changes)
    checkpoint = formats.read(str(folder))
    tiny_checkpoints.assert_same(checkpoint, made)
    assert checkpoint.vectors == FIRST


def test_the_length_is_that_of_their_first_file_that_has_one(written):
    folder, _ = written(FIRST)
    change(folder / "tokenizer_config.json", model_max_length=5)
    assert formats.read(str(folder)).vectors.max_seq_length == 7
    (folder / TEXTS).rename(folder / "sentence_albert_config.json")
    assert formats.read(str(folder)).vectors.max_seq_length == 7
    (folder / "sentence_albert_config.json").unlink()
    assert formats.read(str(folder)).vectors.max_seq_length == 5


def test_without_a_mode_the_pooling_is_the_mean(written):
    folder, _ = written(MEAN)
    change(folder / "1_Pooling" / "config.json", pooling_mode_mean_tokens=False)
    assert formats.read(str(folder)).vectors.pooling == "mean"


def test_models_without_vocabulary_are_refused(tmp_path):
    formats.get_writer("albert_tf")(tiny_checkpoints.make(), str(tmp_path))
    target = str(tmp_path / "out")
    with pytest.raises(UserError, match="has no vocabulary beside it"):
        formats.convert(str(tmp_path), target, to_format="sentence_transformers")
    assert not (tmp_path / "out").exists()


def change_modules(folder, number, **changes):
    modules = read_json(folder / "modules.json")
    modules[number] |= changes
    (folder / "modules.json").write_text(json.dumps(modules))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "modules.json").write_text(""), r"modules\.json"),
        (lambda f: (f / "modules.json").write_text("[]"), "is no list of modules with type"),
        (lambda f: (f / "modules.json").write_text('[{"type": 3}]'), "is no list of modules"),
        (lambda f: (f / "model.safetensors").unlink(), "neither model.safetensors nor pytorch"),
        (lambda f: change_modules(f, 0, path="0_Transformer"), r"no file '.*0_Transformer/config"),
        (
            lambda f: change_modules(f, 0, type="sentence_transformers.models.StaticEmbedding"),
            "is StaticEmbedding, no Trans",
        ),
        (
            lambda f: change_modules(f, 1, type="sentence_transformers.models.LSTM"),
            "modules Transformer, LSTM, Dense, Norm",
        ),
        (
            lambda f: change_modules(f, 2, type="sentence_transformers.models.Normalize"),
            "modules Transformer, Pooling, Norm",
        ),
        (lambda f: (f / "1_Pooling" / "config.json").unlink(), r"no file '.*1_Pooling/config"),
        (
            lambda f: (f / "1_Pooling" / "config.json").write_text('{"pooling_mode": "max"}'),
            "pooling 'max' is not one of mean, cls",
        ),
        (
            lambda f: (f / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean"}'),
            "the mean token with a Dense layer is no pooling",
        ),
        (lambda f: (f / "2_Dense" / "config.json").write_text("{}"), "Dense layer is not the pool"),
        (
            lambda f: (f / "2_Dense" / "model.safetensors").write_bytes(b"x"),
            r"2_Dense/model\.safetensors: a damaged file",
        ),
    ],
)
def test_other_and_damaged_folders_are_refused_in_one_line(written, damage, message):
    folder, _ = written(FIRST)
    damage(folder)
    with pytest.raises(UserError, match=message) as caught:
        formats.read(str(folder))
    assert "\n" not in str(caught.value)
