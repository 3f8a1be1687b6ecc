"""Our encoder and Keras Hub's `AlbertBackbone` compute the same with the same weights.

Skipped without environments/interop.txt. Both ways: presets that we write are loaded there, presets
that they write are read here.
"""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tiny
import tiny_checkpoints
import tiny_run
from optional import keras_hub as hub

from albert_tf.checkpoints import formats, keras_hub, model_checkpoint
from albert_tf.model import albert_model
from albert_tf.tokenizers import tokenization
from albert_tf.train_config import SentenceVectors

TOLERANCE = 2e-5
CASES = {
    "tiny": {},
    "groups": {"num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 2},
    "E=H": {"embedding_size": 8},
}
for_each_case = pytest.mark.parametrize("changes", CASES.values(), ids=CASES.keys())


@for_each_case
def test_the_outputs_of_the_encoder_are_equal(tmp_path, changes):
    config = tiny.config(**changes)
    network = albert_model.Albert(config)
    made = model_checkpoint.ModelCheckpoint(
        source="made", config=config, weights=tiny.fill(network)
    )
    keras_hub.write(made, str(tmp_path))
    theirs = hub.models.AlbertBackbone.from_preset(str(tmp_path))
    batch = tiny.batch()
    expected = theirs(
        {
            "token_ids": batch["input_ids"],
            "segment_ids": batch["segment_ids"],
            "padding_mask": batch["input_mask"],
        }
    )
    outputs = network(batch)
    for name in ("sequence_output", "pooled_output"):
        np.testing.assert_allclose(outputs[name], expected[name], rtol=0, atol=TOLERANCE)


def test_what_they_save_is_read_and_written_again_to_the_bit(tmp_path):
    vocabulary = tiny_run.write_vocabulary(str(tmp_path / "vocabulary"))
    sizes = {"vocabulary_size": 61, "embedding_dim": 6, "hidden_dim": 8, "intermediate_dim": 10}
    counts = {"num_layers": 4, "num_heads": 2, "num_groups": 2, "num_inner_repetitions": 3}
    theirs = hub.models.AlbertBackbone(**sizes, **counts, dropout=0.1, max_sequence_length=16)
    rng = np.random.default_rng(3)
    for weight in theirs.weights:
        weight.assign(rng.normal(0, 0.4, weight.shape))
    tokenizer = hub.models.AlbertTokenizer(proto=f"{vocabulary}/{tokenization.MODEL}")
    for item in (theirs, tokenizer):
        item.save_to_preset(str(tmp_path / "theirs"))
    checkpoint = formats.read(str(tmp_path / "theirs"))
    assert len(checkpoint.weights) == len(theirs.weights) == 105
    formats.convert(str(tmp_path / "theirs"), str(tmp_path / "ours"))
    formats.convert(str(tmp_path / "ours"), str(tmp_path / "back"), to_format="keras_hub")
    tiny_checkpoints.assert_same(formats.read(str(tmp_path / "back")), checkpoint)
    back = hub.models.AlbertBackbone.from_preset(str(tmp_path / "back"))
    for one, other in zip(theirs.weights, back.weights, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=one.path)
    for name in ("config.json", "tokenizer.json"):
        contents = [json.loads((tmp_path / f / name).read_text()) for f in ("theirs", "back")]
        assert contents[0]["config"].keys() == contents[1]["config"].keys()
    assert back.dtype_policy == keras.DTypePolicy("float32")


def test_their_tokenizer_normalizes_as_ours_and_their_preprocessor_cuts_there(tmp_path):
    vocabulary = tiny_run.write_vocabulary(str(tmp_path / "vocabulary"))
    made = tiny_checkpoints.make(vocabulary, model="bare")
    made = dataclasses.replace(made, vectors=SentenceVectors(max_seq_length=9))
    (tmp_path / "preset").mkdir()
    keras_hub.write(made, str(tmp_path / "preset"))
    ours = tokenization.load(vocabulary)
    preset = str(tmp_path / "preset")
    theirs = hub.models.AlbertTokenizer.from_preset(preset)
    for text in (
        "The CAT and\u00a0the d\u00f2g",
        "TH\u00c9 e\u0301 \ufb01ne \u0130",
        "\uff34he",
        "",
    ):
        assert list(theirs(text)) == ours.encode(text), text
    assert theirs.cls_token_id == ours.cls_id
    preprocessor = hub.models.AlbertTextClassifierPreprocessor.from_preset(preset)
    ids = [ours.cls_id, *ours.encode("the cat " * 9)[:7], ours.sep_id]
    assert preprocessor("The C\u00c1t " * 9)["token_ids"].numpy().tolist() == ids
    checkpoint = formats.read(preset)
    tiny_checkpoints.assert_same(checkpoint, made)
    assert checkpoint.vectors.max_seq_length == 9


def test_of_a_preset_of_others_the_ids_are_theirs(tmp_path):
    vocabulary = tiny_run.write_vocabulary(str(tmp_path / "vocabulary"))
    keras_hub.write(tiny_checkpoints.make(vocabulary, model="bare"), str(tmp_path))
    theirs = hub.models.AlbertTokenizer(proto=f"{vocabulary}/{tokenization.MODEL}")
    theirs.save_to_preset(str(tmp_path))
    for name in (tokenization.MODEL, tokenization.NORMALIZATION):
        (tmp_path / "assets" / "tokenizer" / name).unlink(missing_ok=True)
    ours = model_checkpoint.load_tokenizer(formats.read(str(tmp_path)))
    for text in ("The CAT and the d\u00f2g, 40, x", "the"):
        assert ours.encode(text) == list(theirs(text))
