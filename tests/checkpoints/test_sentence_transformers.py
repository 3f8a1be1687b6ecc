"""Tests of folders of sentence-transformers by their files, without the package."""

import dataclasses
import json

import numpy as np
import pytest
import safetensors.numpy
import tiny_checkpoints
from refusals import one_line

import albert_tf
from albert_tf.checkpoints import formats
from albert_tf.train_config import SentenceVectors

MEAN = SentenceVectors(pooling="mean", normalize=False, max_seq_length=16)
FIRST = SentenceVectors(pooling="pooler", normalize=True, max_seq_length=7)
MODULES, SETTINGS = "modules.json", "config_sentence_transformers.json"
TEXTS, POOLING = "sentence_bert_config.json", "1_Pooling/config.json"
DENSE, NORMALIZE = "2_Dense/config.json", "3_Normalize/config.json"


@pytest.fixture
def written(tmp_path, vocabulary):
    def write(vectors=MEAN):
        made = tiny_checkpoints.make(vocabulary, model="bare", vectors=vectors)
        tiny_checkpoints.write(tmp_path / "folder", made, "sentence_transformers")
        return tmp_path / "folder", made

    return write


def read_json(path):
    return json.loads(path.read_text())


def change(path, changes):
    """Changes keys of a file; of a list, those of the rows of these numbers."""
    values = read_json(path)
    for number, row in changes.items() if isinstance(values, list) else ():
        values[number] |= row
    path.write_text(json.dumps(values if isinstance(values, list) else values | changes))


@pytest.mark.parametrize("vectors", [FIRST, dataclasses.replace(MEAN, normalize=True)])
def test_a_written_folder_is_read_with_its_vectors(written, vectors):
    folder, made = written(vectors)
    assert formats.detect_format(str(folder)) == "sentence_transformers"
    checkpoint = formats.read(str(folder))
    tiny_checkpoints.assert_same(checkpoint, made)
    assert checkpoint.vectors == vectors
    model = albert_tf.load(folder)
    config = model.run_config
    assert (config.pooling, config.max_seq_length) == (vectors.pooling, vectors.max_seq_length)
    chosen = model.embed(["abcd"], pooling=vectors.pooling, normalize=vectors.normalize)
    np.testing.assert_array_equal(model.embed(["abcd"]), chosen)


def test_the_modules_of_the_pooled_first_token(written):
    folder, made = written(FIRST)
    modules = read_json(folder / MODULES)
    assert [module["path"] for module in modules] == ["", "1_Pooling", "2_Dense", "3_Normalize"]
    assert modules[2]["type"] == "sentence_transformers.models.Dense"
    modes = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    assert read_json(folder / POOLING) == {"word_embedding_dimension": 8, **modes}
    dense = safetensors.numpy.load_file(folder / "2_Dense" / "model.safetensors")
    kernel = made.weights["bert/pooler/dense/kernel"]
    np.testing.assert_array_equal(dense["linear.weight"], kernel.T)
    assert read_json(folder / TEXTS)["max_seq_length"] == 7


def test_the_folder_of_the_encoder_and_newer_names_are_read(written):
    folder, made = written()
    (folder / "0_Transformer").mkdir()
    for path in [path for path in folder.iterdir() if path.is_file()]:
        if path.name not in (MODULES, SETTINGS):
            path.rename(folder / "0_Transformer" / path.name)
    newer = "sentence_transformers.sentence_transformer.modules.pooling.Pooling"
    change(folder / MODULES, {0: {"path": "0_Transformer"}, 1: {"type": newer}})
    pooling = {"embedding_dimension": 8, "pooling_mode": "mean", "include_prompt": True}
    (folder / POOLING).write_text(json.dumps(pooling))
    checkpoint = formats.read(str(folder))
    tiny_checkpoints.assert_same(checkpoint, made)
    assert checkpoint.vectors == MEAN


def test_flags_replace_what_the_source_says(written, tmp_path):
    folder, _ = written(FIRST)

    def convert(target, name="sentence_transformers", **wished):
        vectors = SentenceVectors(**wished)
        formats.convert(str(folder), str(tmp_path / target), to_format=name, vectors=vectors)

    convert("again", normalize=False, max_seq_length=9)
    expected = SentenceVectors(pooling="pooler", normalize=False, max_seq_length=9)
    assert formats.read(str(tmp_path / "again")).vectors == expected
    with one_line("--normalize is only for --to_format=sentence_transformers"):
        convert("x", "albert_tf", normalize=False)
    with one_line("--max_seq_length: 17 is more than the model's 16 positions"):
        convert("x", max_seq_length=17)
    assert not (tmp_path / "x").exists()


STATIC, LSTM = (f"sentence_transformers.models.{x}" for x in ("StaticEmbedding", "LSTM"))


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (SETTINGS, {"prompts": {"q": "query: "}, "default_prompt_name": "q"}, "default_prompt_n"),
        (SETTINGS, {"prompts": 5}, r"got `int` - at `\$\.prompts`"),
        (SETTINGS, {"truncate_dim": 8}, "truncate_dim is 8; here it is always None"),
        (SETTINGS, {"model_type": "SparseEncoder"}, "model_type is 'SparseEncoder'"),
        (SETTINGS, {"other": 1}, "the key 'other' is unknown here"),
        (TEXTS, {"do_lower_case": True}, "do_lower_case is True"),
        (TEXTS, {"query_length": 5}, "query_length is 5"),
        (TEXTS, {"processing_kwargs": {"text": {"truncation": False}}}, "processing_kwargs is"),
        (TEXTS, {"transformer_task": "fill-mask"}, "transformer_task is 'fill-mask'"),
        (TEXTS, {"tokenizer_args": {"x": 1}}, "tokenizer_args is"),
        (TEXTS, {"other": None}, "the key 'other' is unknown here"),
        (POOLING, {"other": 1}, "the key 'other' is unknown here"),
        (POOLING, {"pooling_mode_max_tokens": True}, r"pooling: \['cls', 'max'\]"),
        (POOLING, {"pooling_mode": "max"}, "pooling: 'max' is not one of mean, cls"),
        (POOLING, {"pooling_mode": "mean"}, "the pooler is for the pooling cls, not mean"),
        (DENSE, {"use_residual": True}, "use_residual is True"),
        (DENSE, {"bias": False}, "bias is False"),
        (DENSE, {"module_input_name": "token_embeddings"}, "module_input_name is"),
        (DENSE, {"activation_function": "x"}, "Dense layer is neither the model's pooler"),
        (NORMALIZE, {"module_output_name": "other"}, "module_output_name is"),
        (MODULES, {0: {"path": "0_Transformer"}}, r"no file '.*0_Transformer/config"),
        (MODULES, {0: {"type": 5}}, r"Expected `str`, got `int` - at `\$\[0\]\.type`"),
        (MODULES, {0: {"type": STATIC}}, "modules StaticEmbedding, Pooling, Dense"),
        (MODULES, {1: {"type": LSTM}}, "modules Transformer, LSTM, Dense, Normalize"),
        (MODULES, {1: {"type": "mine.Pooling"}}, "modules Transformer, mine.Pooling, Dense"),
    ],
)
def test_what_would_change_vectors_is_refused_by_its_name(written, name, changes, message):
    folder, _ = written(FIRST)
    (folder / "cleaning.json").write_text('{"lower_case": false}')
    change(folder / name, changes)
    with one_line(message):
        formats.read(str(folder))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        (SETTINGS, {"prompts": {"q": ""}, "default_prompt_name": "q"}),
        (SETTINGS, {"prompts": {"q": "query: "}, "similarity_fn_name": "dot"}),
        (TEXTS, {"do_lower_case": True, "unpad_inputs": True}),  # the vocabulary has lower case
        (POOLING, {"include_prompt": False, "pooling_mode_max_tokens": False}),
        (NORMALIZE, {"module_input_name": "sentence_embedding"}),
        ("tokenizer_config.json", {"model_max_length": 5}),  # the first file that has a length
    ],
)
def test_what_changes_nothing_is_read(written, name, changes):
    folder, made = written(FIRST)
    change(folder / name, changes)
    checkpoint = formats.read(str(folder))
    tiny_checkpoints.assert_same(checkpoint, made)
    assert checkpoint.vectors == FIRST


def test_files_of_other_names_and_without_a_mode(written):
    folder, _ = written(MEAN)
    change(folder / POOLING, {"pooling_mode_mean_tokens": False})
    change(folder / TEXTS, {"max_seq_length": 7})
    change(folder / "tokenizer_config.json", {"model_max_length": 5})
    (folder / TEXTS).rename(folder / "sentence_albert_config.json")
    vectors = formats.read(str(folder)).vectors
    assert (vectors.pooling, vectors.max_seq_length) == ("mean", 7)
    (folder / "sentence_albert_config.json").unlink()
    assert formats.read(str(folder)).vectors.max_seq_length == 5


def test_models_without_vocabulary_are_refused(tmp_path):
    with one_line("has no vocabulary next to it"):
        formats.get_writer("sentence_transformers")(tiny_checkpoints.make(), str(tmp_path))
