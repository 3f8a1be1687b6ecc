"""Tests of reading and writing folders of transformers without PyTorch."""

import json
import sys

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
import tiny_checkpoints
import tiny_run

from albert_tf.checkpoints import formats, hugging_face, model_checkpoint
from albert_tf.errors import UserError
from albert_tf.tasks import finetuned_model

WORDS = "albert.embeddings.word_embeddings.weight"


def written(folder, made=None, **changes):
    """A folder in the format `hugging_face`, and its tensors."""
    folder.mkdir(exist_ok=True)
    made = made or tiny_checkpoints.make(**changes)
    formats.get_writer("hugging_face")(made, str(folder))
    return made, safetensors.numpy.load_file(folder / "model.safetensors")


def save(folder, tensors):
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")


def change_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_kernels_are_transposed_and_class_weights_are_not(tmp_path):
    made, tensors = written(tmp_path, **tiny_checkpoints.GROUPED)
    block = "bert/encoder/transformer/group_1/inner_group_2/"
    theirs = "albert.encoder.albert_layer_groups.1.albert_layers.2."
    for name, other in {
        f"{block}ffn_1/intermediate/output/dense/kernel": f"{theirs}ffn_output.weight",
        "bert/encoder/embedding_hidden_mapping_in/kernel": (
            "albert.encoder.embedding_hidden_mapping_in.weight"
        ),
        "bert/pooler/dense/kernel": "albert.pooler.weight",
    }.items():
        np.testing.assert_array_equal(tensors[other], made.weights[name].T)
    for name, other in {
        "cls/seq_relationship/output_weights": "sop_classifier.classifier.weight",
        f"{block}LayerNorm_1/gamma": f"{theirs}full_layer_layer_norm.weight",
        "bert/embeddings/word_embeddings": WORDS,
    }.items():
        np.testing.assert_array_equal(tensors[other], made.weights[name])


def test_the_config_has_the_keys_of_transformers(tmp_path):
    written(tmp_path, hidden_dropout_prob=0.25)
    values = json.loads((tmp_path / "config.json").read_text())
    expected = {
        "architectures": ["AlbertForPreTraining"],
        "model_type": "albert",
        "hidden_act": "gelu_new",
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
        "bos_token_id": 2,
        "eos_token_id": 3,
        "tie_word_embeddings": True,
        "hidden_dropout_prob": 0.25,
        "classifier_dropout_prob": 0.1,
    }
    assert expected.items() <= values.items()
    assert "cross_layer_sharing" not in values


def test_equal_sizes_get_a_mapping_that_changes_nothing(tmp_path):
    made, tensors = written(tmp_path, **tiny_checkpoints.SQUARE)
    mapping = "albert.encoder.embedding_hidden_mapping_in"
    np.testing.assert_array_equal(tensors[f"{mapping}.weight"], np.eye(8, dtype=np.float32))
    assert not tensors[f"{mapping}.bias"].any()
    checkpoint = formats.read(str(tmp_path))
    assert list(checkpoint.skipped.values()) == ["changes nothing"] * 2
    assert checkpoint.weights.keys() == made.weights.keys()
    save(tmp_path, tensors | {f"{mapping}.bias": np.full(8, 0.5, np.float32)})
    with pytest.raises(UserError, match="but the mapping between them is trained"):
        formats.read(str(tmp_path))


@pytest.mark.parametrize(
    ("model", "architecture"),
    [
        (None, "AlbertForPreTraining"),
        ("classifier", "AlbertForSequenceClassification"),
        ("squad1", "AlbertForQuestionAnswering"),
        ("token_classifier", "AlbertForTokenClassification"),
        ("masked_lm", "AlbertForMaskedLM"),
        ("bare", "AlbertModel"),
    ],
)
def test_heads_decide_the_class(tmp_path, model, architecture):
    made, tensors = written(tmp_path, model=model)
    values = json.loads((tmp_path / "config.json").read_text())
    assert values["architectures"] == [architecture]
    assert len(values.get("id2label", range(5))) == 5
    assert len(tensors) == len(made.weights)
    tiny_checkpoints.assert_same(formats.read(str(tmp_path)), made)


NAMES = {"10": "k", "2": "c", **{str(i): "abcdefghijk"[i] for i in (0, 1, 3, 4, 5, 6, 7, 8, 9)}}
CLASSES = ["AlbertForSequenceClassification"]


@pytest.mark.parametrize(
    ("model", "config", "kind", "labels"),
    [
        ("classifier", {"id2label": NAMES}, "classification", tuple("abcdefghijk")),
        (
            "classifier",
            {"id2label": None},
            "classification",
            tuple(f"LABEL_{i}" for i in range(11)),
        ),
        ("classifier", {"architectures": None, "id2label": NAMES}, "classification", NAMES),
        (
            "classifier",
            {"id2label": NAMES, "problem_type": "multi_label_classification"},
            "multi_label",
            NAMES,
        ),
        ("token_classifier", {"id2label": NAMES}, "token_classification", NAMES),
        ("squad1", {}, "span", ()),
        (None, {"id2label": {"0": "a"}}, None, ()),
    ],
)
def test_the_task_and_its_labels_are_those_of_the_folder(
    tmp_path, monkeypatch, model, config, kind, labels
):
    monkeypatch.setattr(tiny_checkpoints, "CLASSES", 11)
    written(tmp_path, model=model)
    change_config(tmp_path, **config)
    checkpoint = formats.read(str(tmp_path))
    task = finetuned_model.infer_task(checkpoint)
    assert (task and task.kind.name) == kind
    assert (task.labels if task else ()) == (tuple("abcdefghijk") if labels is NAMES else labels)
    if labels:
        again = str(tmp_path / "again")
        formats.convert(str(tmp_path), again, to_format="hugging_face")
        assert finetuned_model.infer_task(formats.read(again)) == task


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"id2label": {"0": "a", "1": "b"}}, "id2label does not name the 5 outputs"),
        ({"id2label": {str(i): None for i in range(5)}}, "id2label does not name the 5 outputs"),
        ({"problem_type": "regression"}, "problem_type is 'regression' of a head of 5 outputs"),
    ],
)
def test_a_head_that_its_config_does_not_describe_is_refused(tmp_path, config, message):
    written(tmp_path, model="classifier")
    change_config(tmp_path, **config)
    with pytest.raises(UserError, match=message):
        formats.read(str(tmp_path))


@pytest.mark.parametrize("prefix", ["module.", "module.model.", "_orig_mod."])
@pytest.mark.parametrize("encoder", ["albert.", "bert.", ""])
def test_prefixes_of_wrappers_are_stripped(tmp_path, prefix, encoder):
    made, tensors = written(tmp_path, model="classifier")
    names = {name: prefix + name.replace("albert.", encoder, 1) for name in tensors}
    save(tmp_path, {names[name]: tensor for name, tensor in tensors.items()})
    tiny_checkpoints.assert_same(formats.read(str(tmp_path)), made)
    save(tmp_path, tensors | {f"module.{WORDS}": tensors[WORDS]})
    with pytest.raises(UserError, match="has weights twice, with several prefixes"):
        formats.read(str(tmp_path))


def test_rows_for_no_piece_are_left_out(tmp_path):
    vocabulary = tiny_run.write_vocabulary(str(tmp_path / "vocabulary"))
    made = tiny_checkpoints.make(vocabulary)
    _, tensors = written(tmp_path / "in", made)
    for size in (64, 128):
        padded = {
            name: np.pad(tensors[name], [(0, size - 61)] + [(0, 0)] * (tensors[name].ndim - 1))
            for name in (WORDS, "predictions.bias")
        }
        save(tmp_path / "in", tensors | padded)
        change_config(tmp_path / "in", vocab_size=size)
        tiny_checkpoints.assert_same(formats.read(str(tmp_path / "in")), made)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"remove_space": False}, "remove_space is False; here it is always True"),
        ({"sp_model_kwargs": {"enable_sampling": True}}, "sp_model_kwargs is"),
        ({"cls_token": {"content": "<s>"}}, "cls_token is '<s>'"),
        ({"split_special_tokens": True}, "split_special_tokens is True"),
        ({"tokenizer_class": "XLMRobertaTokenizer"}, "tokenizer_class is 'XLMRobertaTokenizer'"),
        ({"auto_map": {"AutoTokenizer": ["a.B", None]}}, "auto_map is"),
        ({"additional_special_tokens": [{"content": "<x>"}]}, "adds pieces .* such as '<x>'"),
        ({"extra_special_tokens": {"image": "<x>"}}, "adds pieces .* such as '<x>'"),
        ({"added_tokens_decoder": {"61": {"content": "<x>"}}}, "adds pieces .* such as '<x>'"),
    ],
)
def test_switches_of_the_tokenizer_that_are_not_applied_are_refused(tmp_path, config, message):
    vocabulary = tiny_run.write_vocabulary(str(tmp_path / "vocabulary"))
    written(tmp_path / "in", tiny_checkpoints.make(vocabulary))
    path = tmp_path / "in" / "tokenizer_config.json"
    (tmp_path / "in" / "cleaning.json").unlink(missing_ok=True)
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    with pytest.raises(UserError, match=message):
        formats.read(str(tmp_path / "in"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("added_tokens.json", {"[MASK]": 4, "<x>": 61}, "adds pieces .* such as '<x>'"),
        ("tokenizer.json", {"added_tokens": [{"content": "<x>"}]}, "adds pieces .* such as '<x>'"),
        ("special_tokens_map.json", {"mask_token": "<mask>"}, "mask_token is '<mask>'"),
    ],
)
def test_pieces_that_a_file_beside_the_vocabulary_adds_are_refused(
    tmp_path, name, content, message
):
    vocabulary = tiny_run.write_vocabulary(str(tmp_path / "vocabulary"))
    written(tmp_path / "in", tiny_checkpoints.make(vocabulary))
    (tmp_path / "in" / "tokenizer_config.json").unlink()
    (tmp_path / "in" / name).write_text(json.dumps(content))
    with pytest.raises(UserError, match=message):
        formats.read(str(tmp_path / "in"))


def test_ids_of_a_word_piece_vocabulary(tmp_path):
    pieces = ["[PAD]", *(f"x{i}" for i in range(56)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    made = tiny_checkpoints.make()
    made = model_checkpoint.ModelCheckpoint(
        source="made",
        config=made.config,
        weights=made.weights,
        vocabulary={"vocab.txt": "\n".join(pieces).encode()},
    )
    written(tmp_path, made)
    values = json.loads((tmp_path / "config.json").read_text())
    assert [values[f"{name}_token_id"] for name in ("pad", "bos", "eos")] == [0, 58, 59]


def test_copies_and_buffers_are_skipped(tmp_path):
    made, tensors = written(tmp_path)
    more = {
        "predictions.decoder.weight": tensors[WORDS].copy(),
        "predictions.decoder.bias": tensors["predictions.bias"].copy(),
        "albert.embeddings.position_ids": np.arange(16)[None],
    }
    save(tmp_path, tensors | more)
    checkpoint = formats.read(str(tmp_path))
    assert checkpoint.skipped.keys() == more.keys()
    tiny_checkpoints.assert_same(checkpoint, made)
    save(tmp_path, tensors | more | {"predictions.decoder.weight": tensors[WORDS] + 1})
    with pytest.raises(UserError, match=r"predictions\.decoder\.weight is not equal to albert\."):
        formats.read(str(tmp_path))


@pytest.mark.parametrize("dtype", [np.float16, tf.bfloat16.as_numpy_dtype])
def test_halves_are_read_exactly(tmp_path, dtype):
    _, tensors = written(tmp_path)
    halves = {name: array.astype(dtype) for name, array in tensors.items()}
    save(tmp_path, halves)
    weights = formats.read(str(tmp_path)).weights
    for ours, theirs in hugging_face.map_names(tiny_run.albert()).items():
        if ours in weights and not ours.endswith("kernel"):
            np.testing.assert_array_equal(weights[ours], halves[theirs].astype(np.float32))


@pytest.mark.parametrize("dtype", [np.float64, np.int8])
def test_other_types_are_refused(tmp_path, dtype):
    _, tensors = written(tmp_path)
    save(tmp_path, tensors | {WORDS: tensors[WORDS].astype(dtype)})
    with pytest.raises(UserError, match=r"word_embeddings.* is \w+, not \w+\. Use the original"):
        formats.read(str(tmp_path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "bert"}, "model_type is 'bert', not 'albert'"),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps is 1e-05; here it is always 1e-12"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings is False"),
        ({"auto_map": {"AutoModel": "x.Y"}}, "auto_map is .* here it is always None"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads is"),
        ({"is_decoder": True}, "is_decoder is True"),
        ({"hidden_act": ["gelu"]}, r"hidden_act \['gelu'\] is not one of gelu_new"),
        ({"hidden_act": "silu"}, "hidden_act 'silu' is not one of gelu_new, gelu_pytorch_tanh"),
        ({"num_attention_heads": 3}, "hidden_size 8 is not a multiple of num_attention_heads 3"),
    ],
)
def test_other_models_are_refused(tmp_path, changes, message):
    written(tmp_path)
    change_config(tmp_path, **changes)
    with pytest.raises(UserError, match=message) as caught:
        formats.read(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_the_wrong_gelu_of_v1_is_warned_of(tmp_path, capsys):
    written(tmp_path)
    change_config(tmp_path, hidden_act="gelu")
    checkpoint = formats.read(str(tmp_path))
    assert checkpoint.config.hidden_act == "gelu"
    assert json.loads(written_again(checkpoint, tmp_path))["hidden_act"] == "gelu_new"
    warning = "warning: hidden_act 'gelu' is read as its tanh approximation"
    assert capsys.readouterr().err.startswith(warning)


def written_again(checkpoint, folder):
    (folder / "model.safetensors").unlink()  # a folder to write to is empty
    hugging_face.write(checkpoint, str(folder))
    return (folder / "config.json").read_text()


@pytest.mark.parametrize(
    ("theirs", "ours", "again"),
    [
        ("gelu", "gelu_erf", "gelu"),
        ("gelu_python", "gelu_erf", "gelu"),
        ("gelu_fast", "gelu", "gelu_new"),
        ("gelu_pytorch_tanh", "gelu", "gelu_new"),
    ],
)
def test_what_transformers_has_saved_means_what_it_says(tmp_path, capsys, theirs, ours, again):
    written(tmp_path)
    change_config(tmp_path, hidden_act=theirs, transformers_version="4.57.0")
    checkpoint = formats.read(str(tmp_path))
    assert checkpoint.config.hidden_act == ours
    assert json.loads(written_again(checkpoint, tmp_path))["hidden_act"] == again
    assert formats.read(str(tmp_path)).config == checkpoint.config
    assert "gelu" not in capsys.readouterr().err


def test_a_folder_needs_config_and_weights(tmp_path):
    written(tmp_path)
    (tmp_path / "config.json").rename(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=r"there is no file .*config\.json"):
        formats.read(str(tmp_path))
    (tmp_path / "elsewhere").rename(tmp_path / "config.json")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"neither model\.safetensors nor pytorch_model\.bin"):
        hugging_face.read(str(tmp_path))


def test_weights_and_models_without_place_in_transformers(tmp_path):
    heads = {"start_logits/dense/kernel": (8, 1), "answer_class/dense_1/kernel": (8, 1)}
    made = tiny_checkpoints.make(more=heads)
    assert made.weights.keys() - hugging_face.choose_class(made)[1] == heads.keys()
    with pytest.raises(UserError, match="14 groups in 18 layers are rounded otherwise"):
        made = tiny_checkpoints.make(num_hidden_layers=18, num_hidden_groups=14)
        hugging_face.write(made, str(tmp_path))
    with pytest.raises(UserError, match="cross_layer_sharing 'ffn' is this project's alone"):
        hugging_face.write(tiny_checkpoints.make(cross_layer_sharing="ffn"), str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_pickle_without_pytorch(tmp_path, monkeypatch):
    written(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UserError, match=r"needs PyTorch to be read \(pip install torch\)"):
        formats.read(str(tmp_path))


def test_shards_are_read_as_one_file(tmp_path):
    made, tensors = written(tmp_path)
    names = sorted(tensors)
    shards = {name: f"model-{i % 2 + 1:05d}-of-00002.safetensors" for i, name in enumerate(names)}
    for shard in set(shards.values()):
        part = {name: tensors[name] for name in names if shards[name] == shard}
        safetensors.numpy.save_file(part, tmp_path / shard)
    (tmp_path / "model.safetensors").unlink()
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    tiny_checkpoints.assert_same(formats.read(str(tmp_path)), made)
    index.write_text(json.dumps({"weight_map": {**shards, "other": shards[names[0]]}}))
    with pytest.raises(UserError, match=r"index\.json: its files lack other\. Download"):
        formats.read(str(tmp_path))
    index.write_text(json.dumps({"weight_map": {**shards, names[0]: "none.safetensors"}}))
    with pytest.raises(UserError, match=r"there is no file '.*none\.safetensors'"):
        formats.read(str(tmp_path))
    index.write_text("[]")
    with pytest.raises(UserError, match="has no weight_map of names and files"):
        formats.read(str(tmp_path))


def test_the_older_names_of_layer_norm_are_read(tmp_path):
    made, tensors = written(tmp_path)
    older = {"weight": "gamma", "bias": "beta"}
    renamed = {}
    for name, tensor in tensors.items():
        stem, _, last = name.rpartition(".")
        is_norm = stem.endswith(("LayerNorm", "layer_norm"))
        renamed[f"{stem}.{older[last]}" if is_norm else name] = tensor
    assert renamed.keys() != tensors.keys()
    save(tmp_path, renamed)
    tiny_checkpoints.assert_same(formats.read(str(tmp_path)), made)


@pytest.mark.parametrize(
    ("values", "is_regression"),
    [
        ({"architectures": ["AlbertForSequenceClassification"]}, True),
        ({"architectures": ["TFAlbertForSequenceClassification"]}, True),
        ({"architectures": None, "problem_type": "regression"}, True),
        ({"architectures": ["AlbertForMultipleChoice"]}, False),
        ({"architectures": ["AlbertForMultipleChoice"], "problem_type": "regression"}, False),
        ({"architectures": None}, False),
    ],
)
def test_a_head_of_one_output_is_what_its_class_is(tmp_path, values, is_regression):
    written(tmp_path, tiny_checkpoints.make_one_output())
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
    assert formats.read(str(tmp_path)).is_regression is is_regression
