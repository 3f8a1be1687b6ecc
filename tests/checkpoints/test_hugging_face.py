"""Tests of reading and writing folders of transformers without PyTorch."""

import dataclasses
import json
import re
import shutil
import sys

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
import tiny_checkpoints
import tiny_run
from refusals import one_line

import albert_tf
from albert_tf.checkpoints import formats, hugging_face
from albert_tf.checkpoints import hugging_face_architectures as architectures
from albert_tf.tasks import finetuned_model

WORDS = "albert.embeddings.word_embeddings.weight"


def written(folder, made=None, **changes):
    """A folder in the format `hugging_face`, and its tensors."""
    made = made or tiny_checkpoints.make(**changes)
    tiny_checkpoints.write(folder, made, "hugging_face")
    return made, safetensors.numpy.load_file(folder / "model.safetensors")


def save(folder, tensors):
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")


def change(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_kernels_are_transposed_and_class_weights_are_not(tmp_path):
    made, tensors = written(tmp_path, **tiny_checkpoints.GROUPED)
    block = "bert/encoder/transformer/group_1/inner_group_2/"
    theirs = "albert.encoder.albert_layer_groups.1.albert_layers.2."
    mapping = "encoder{}embedding_hidden_mapping_in{}".format
    for name, other in {
        f"{block}ffn_1/intermediate/output/dense/kernel": f"{theirs}ffn_output.weight",
        f"bert/{mapping('/', '/kernel')}": f"albert.{mapping('.', '.weight')}",
        "bert/pooler/dense/kernel": "albert.pooler.weight",
    }.items():
        np.testing.assert_array_equal(tensors[other], made.weights[name].T)
    for name, other in {
        "cls/seq_relationship/output_weights": "sop_classifier.classifier.weight",
        f"{block}LayerNorm_1/gamma": f"{theirs}full_layer_layer_norm.weight",
        "bert/embeddings/word_embeddings": WORDS,
    }.items():
        np.testing.assert_array_equal(tensors[other], made.weights[name])


def test_the_config_has_the_keys_of_transformers():
    made = tiny_checkpoints.make(hidden_dropout_prob=0.25)
    pieces = ["[PAD]", *(f"x{i}" for i in range(56)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    own = dataclasses.replace(made, vocabulary={"vocab.txt": "\n".join(pieces).encode()})
    for checkpoint, ids in ((made, (0, 2, 3)), (own, (0, 58, 59))):
        values = hugging_face.make_config(checkpoint, "ForPreTraining")
        expected = {"architectures": ["AlbertForPreTraining"], "model_type": "albert"}
        expected |= {"hidden_act": "gelu_new", "layer_norm_eps": 1e-12, "tie_word_embeddings": True}
        expected |= {"hidden_dropout_prob": 0.25, "classifier_dropout_prob": 0.1}
        expected |= {f"{x}_token_id": i for x, i in zip(("pad", "bos", "eos"), ids, strict=True)}
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
    with one_line("but the mapping between them is trained"):
        formats.read(str(tmp_path))


NAMES = {"10": "k", "2": "c", **{str(i): "abcdefghijk"[i] for i in (0, 1, 3, 4, 5, 6, 7, 8, 9)}}
LETTERS, NUMBERS = tuple("abcdefghijk"), tuple(f"LABEL_{i}" for i in range(11))
MULTI, NAMED = {"problem_type": "multi_label_classification"}, {"id2label": NAMES}
SEQUENCE, TAGS = "AlbertForSequenceClassification", ("token_classification", LETTERS)


@pytest.mark.parametrize(
    ("model", "architecture", "config", "kind", "labels"),
    [
        (None, "AlbertForPreTraining", {"id2label": {"0": "a"}}, None, ()),
        ("masked_lm", "AlbertForMaskedLM", {}, None, ()),
        ("bare", "AlbertModel", {}, None, ()),
        ("squad1", "AlbertForQuestionAnswering", {}, "span", ()),
        ("classifier", SEQUENCE, NAMED, "classification", LETTERS),
        ("classifier", SEQUENCE, {"id2label": None}, "classification", NUMBERS),
        ("classifier", SEQUENCE, {"architectures": None, **NAMED}, "classification", LETTERS),
        ("classifier", SEQUENCE, {**NAMED, **MULTI}, "multi_label", LETTERS),
        ("token_classifier", "AlbertForTokenClassification", NAMED, *TAGS),
    ],
)
def test_heads_decide_the_class(tmp_path, monkeypatch, model, architecture, config, kind, labels):
    monkeypatch.setattr(tiny_checkpoints, "CLASSES", 11)
    made, tensors = written(tmp_path, model=model)
    values = json.loads((tmp_path / "config.json").read_text())
    assert values["architectures"] == [architecture]
    assert len(values.get("id2label", range(11))) == 11
    assert len(tensors) == len(made.weights)
    change(tmp_path / "config.json", **config)
    checkpoint = formats.read(str(tmp_path))
    tiny_checkpoints.assert_same(checkpoint, made)
    task = finetuned_model.infer_task(checkpoint)
    assert (task and task.kind.name) == kind
    assert (task.labels if task else ()) == labels


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
    written(tmp_path, tiny_checkpoints.make_one_output(is_regression=is_regression))
    config = json.loads((tmp_path / "config.json").read_text())
    kind = "SequenceClassification" if is_regression else "MultipleChoice"
    assert config["architectures"] == [f"AlbertFor{kind}"]
    (tmp_path / "config.json").write_text(json.dumps({**config, **values}))
    assert formats.read(str(tmp_path)).is_regression is is_regression


WRAPPED = [("module.", "bert."), ("module.model.", ""), ("_orig_mod.", "albert.")]


@pytest.mark.parametrize(("prefix", "encoder"), WRAPPED)
def test_prefixes_of_wrappers_are_stripped(tmp_path, prefix, encoder):
    made, tensors = written(tmp_path, model="classifier")
    save(tmp_path, {prefix + x.replace("albert.", encoder, 1): y for x, y in tensors.items()})
    tiny_checkpoints.assert_same(formats.read(str(tmp_path)), made)
    save(tmp_path, tensors | {f"module.{WORDS}": tensors[WORDS]})
    with one_line("has weights twice, with different prefixes"):
        formats.read(str(tmp_path))


def test_rows_for_no_piece_are_left_out(tmp_path, vocabulary):
    made, tensors = written(tmp_path, tiny_checkpoints.make(vocabulary))
    words, bias = tensors[WORDS], tensors["predictions.bias"]
    for size in (64, 128):
        padded = {WORDS: np.pad(words, [(0, size - 61), (0, 0)])}
        save(tmp_path, tensors | padded | {"predictions.bias": np.pad(bias, (0, size - 61))})
        change(tmp_path / "config.json", vocab_size=size)
        tiny_checkpoints.assert_same(formats.read(str(tmp_path)), made)


def test_copies_and_buffers_are_skipped(tmp_path, capsys):
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
    read = formats.read(str(tmp_path))
    kept = {name: x for name, x in made.weights.items() if "cls/predictions" not in name}
    tiny_checkpoints.assert_same(read, dataclasses.replace(made, weights=kept))
    assert "predictions.decoder.weight is not equal to albert." in capsys.readouterr().err


def test_halves_are_read_exactly_and_other_types_are_refused(tmp_path):
    _, tensors = written(tmp_path)
    for dtype in (np.float16, tf.bfloat16.as_numpy_dtype):
        halves = {name: array.astype(dtype) for name, array in tensors.items()}
        save(tmp_path, halves)
        weights = formats.read(str(tmp_path)).weights
        for ours, theirs in architectures.map_names(tiny_run.albert()).items():
            if ours in weights and not ours.endswith("kernel"):
                np.testing.assert_array_equal(weights[ours], halves[theirs].astype(np.float32))
    for dtype in (np.float64, np.int64):
        save(tmp_path, tensors | {WORDS: tensors[WORDS].astype(dtype)})
        with one_line(r"word_embeddings.* is \w+, not \w+\. Use the original"):
            formats.read(str(tmp_path))


def test_the_older_names_of_layer_norm_are_read(tmp_path):
    made, tensors = written(tmp_path)
    renamed = {}
    for name, tensor in tensors.items():
        older = re.sub(r"(LayerNorm|layer_norm)\.weight$", r"\1.gamma", name)
        renamed[re.sub(r"(LayerNorm|layer_norm)\.bias$", r"\1.beta", older)] = tensor
    assert renamed.keys() != tensors.keys()
    save(tmp_path, renamed)
    tiny_checkpoints.assert_same(formats.read(str(tmp_path)), made)


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
    with one_line(r"index\.json: its files lack other\. Download"):
        formats.read(str(tmp_path))
    index.write_text(json.dumps({"weight_map": {**shards, names[0]: "none.safetensors"}}))
    with one_line(r"there is no file '.*none\.safetensors'"):
        formats.read(str(tmp_path))


@pytest.mark.parametrize(
    ("theirs", "version", "ours", "again"),
    [
        ("gelu", None, "gelu", "gelu_new"),  # the wrong one of version 1
        ("gelu", "4.57.0", "gelu_erf", "gelu"),
        ("gelu_python", "4.57.0", "gelu_erf", "gelu"),
        ("gelu_fast", "4.57.0", "gelu", "gelu_new"),
        ("gelu_pytorch_tanh", "4.57.0", "gelu", "gelu_new"),
    ],
)
def test_an_activation_means_what_its_version_means(capsys, theirs, version, ours, again):
    values = hugging_face.make_config(tiny_checkpoints.make(), "Model")
    values |= {"hidden_act": theirs} | ({"transformers_version": version} if version else {})
    config = hugging_face.to_config(values, "x")
    assert config.hidden_act == ours
    written = hugging_face.to_values(config)
    assert written["hidden_act"] == again
    assert hugging_face.to_config(values | written, "x") == config
    warning = "warning: hidden_act 'gelu' is read as its tanh approximation"
    assert (warning in capsys.readouterr().err) is (version is None)


BERT = {"model_type": "bert", "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 10}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"hidden_act": "gelu_erf", "vocab_size": 30522, "classifier_dropout_prob": 0.1}),
        ({"hidden_dropout_prob": 0.2}, {"classifier_dropout_prob": 0.2}),
        ({"classifier_dropout": 0.3}, {"classifier_dropout_prob": 0.3}),
        ({"classifier_dropout": None}, {"classifier_dropout_prob": 0.1}),
        ({"hidden_act": "gelu_new"}, {"hidden_act": "gelu"}),
        ({"model_type": None}, {"num_hidden_layers": 12}),  # as older files of BioBERT
        ({"use_cache": True, "gradient_checkpointing": False}, {"hidden_size": 8}),
    ],
)
def test_the_config_of_a_bert(changes, expected):
    values = {key: x for key, x in {**BERT, **changes}.items() if key != "model_type" or x}
    config = hugging_face.to_config(values, "x")
    assert config.is_bert
    assert (config.embedding_size, config.num_groups("ffn")) == (8, 12)
    assert expected.items() <= vars(config).items()
    written = hugging_face.to_values(config) | {"model_type": "bert"}
    assert hugging_face.to_config(written, "x") == config
    assert not {"embedding_size", "num_hidden_groups", "cross_layer_sharing"} & written.keys()


@pytest.mark.parametrize(
    "changes",
    [{"position_embedding_type": "relative_key"}, {"add_cross_attention": True}, {"is_decoder": 1}],
)
def test_a_bert_that_computes_something_else_is_refused(changes):
    with one_line(f"{next(iter(changes))} is "):
        hugging_face.to_config(BERT | changes, "x")


def test_the_folder_of_a_bert(tmp_path):
    pieces = ["[PAD]", *(f"x{i}" for i in range(56)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    sizes = {**tiny_checkpoints.SQUARE, "num_hidden_layers": 2, "cross_layer_sharing": "none"}
    made = tiny_checkpoints.make(**sizes)
    vocabulary = {"vocab.txt": "\n".join(pieces).encode(), "cleaning.json": b'{"compat": "hf"}'}
    made = dataclasses.replace(made, vocabulary=vocabulary)
    _, tensors = written(tmp_path, made)
    query = "bert/encoder/transformer/group_1/inner_group_0/attention_1/self/query/kernel"
    theirs = tensors["bert.encoder.layer.1.attention.self.query.weight"]
    np.testing.assert_array_equal(theirs, made.weights[query].T)
    values = json.loads((tmp_path / "config.json").read_text())
    assert values["architectures"] == ["BertForPreTraining"]
    tokenizer = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert tokenizer["tokenizer_class"] == "BertTokenizer"
    tiny_checkpoints.assert_same(formats.read(str(tmp_path)), made)
    # As saved with add_pooling_layer=False.
    heads = ("cls.", "bert.pooler.")
    save(tmp_path, {name: x for name, x in tensors.items() if not name.startswith(heads)})
    model = albert_tf.load(tmp_path)
    assert model.embed(["x1 x2"]).shape == model.embed(["x1 x2"], pooling="cls").shape == (1, 8)
    with one_line("has no pooler. Use pooling='mean' or 'cls'"):
        model.embed(["x1 x2"], pooling="pooler")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory, vocabulary):
    folder = tmp_path_factory.mktemp("classifier")
    written(folder, tiny_checkpoints.make(vocabulary, model="classifier"))
    (folder / "cleaning.json").unlink(missing_ok=True)
    return folder


CONFIG, TOKENIZER = "config.json", "tokenizer_config.json"
ADDED = "adds tokens .* such as '<x>'"


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        (CONFIG, {"model_type": "roberta"}, "model_type: 'roberta' is not one of albert, bert"),
        (CONFIG, {"layer_norm_eps": 1e-5}, "layer_norm_eps is 1e-05; here it is always 1e-12"),
        (CONFIG, {"position_embedding_type": "relative_key"}, "position_embedding_type is 'rel"),
        (CONFIG, {"auto_map": {"AutoModel": "x.Y"}}, "auto_map is .* here it is always None"),
        (CONFIG, {"quantization_config": {"bits": 4}}, "quantization_config is"),
        (CONFIG, {"pruned_heads": {"0": [1]}}, "pruned_heads is"),
        (CONFIG, {"is_decoder": True}, "is_decoder is True"),
        (CONFIG, {"hidden_act": "silu"}, "hidden_act 'silu' is not one of gelu_new, gelu_pytorch"),
        (CONFIG, {"id2label": {"0": "a", "1": "b"}}, "id2label does not name the 5 outputs"),
        (
            CONFIG,
            {"problem_type": "regression"},
            "problem_type is 'regression' for a head with 5 out",
        ),
        (CONFIG, {"id2label": 5}, r"\.json is damaged: .*, got `int` - at `\$\.id2label`"),
        (CONFIG, {"problem_type": []}, r"got `array` - at `\$\.problem_type`"),
        (CONFIG, None, r"there is no file .*config\.json"),
        ("model.safetensors", None, r"neither model\.safetensors nor pytorch_model\.bin"),
        (TOKENIZER, {"model_input_names": 5}, r"got `int` - at `\$\.model_input_names`"),
        (TOKENIZER, {"remove_space": False}, "remove_space is False; here it is always True"),
        (TOKENIZER, {"sp_model_kwargs": {"enable_sampling": True}}, "sp_model_kwargs is"),
        (TOKENIZER, {"cls_token": {"content": "<s>"}}, "cls_token is '<s>'"),
        (TOKENIZER, {"split_special_tokens": True}, "split_special_tokens is True"),
        (TOKENIZER, {"tokenizer_class": "XLMRobertaTokenizer"}, "tokenizer_class is 'XLMRoberta"),
        (TOKENIZER, {"auto_map": {"AutoTokenizer": ["a.B", None]}}, "auto_map is"),
        (TOKENIZER, {"additional_special_tokens": [{"content": "<x>"}]}, ADDED),
        (TOKENIZER, {"extra_special_tokens": {"image": "<x>"}}, ADDED),
        (TOKENIZER, {"added_tokens_decoder": {"61": {"content": "<x>"}}}, ADDED),
        (TOKENIZER, {"added_tokens_decoder": 5}, r"got `int` - at `\$\.added_tokens_decoder`"),
        (
            TOKENIZER,
            {"additional_special_tokens": [[]]},
            r"at `\$\.additional_special_tokens\[0\]`",
        ),
        ("added_tokens.json", {"[MASK]": 4, "<x>": 61}, ADDED),
        ("tokenizer.json", {"added_tokens": [{"content": "<x>"}]}, ADDED),
        ("special_tokens_map.json", {"mask_token": "<mask>"}, "mask_token is '<mask>'"),
    ],
)
def test_other_models_and_vocabularies_are_refused(tmp_path, classifier, file, changes, message):
    folder = tmp_path / "in"
    shutil.copytree(classifier, folder)
    path = folder / file
    if changes is None:
        path.unlink()
    else:
        values = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(values | changes))
    if file == "special_tokens_map.json":
        (folder / TOKENIZER).unlink()
    with one_line(message):
        formats.FORMATS["hugging_face"].read(str(folder))


def test_a_pickle_without_pytorch(tmp_path, monkeypatch):
    written(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    monkeypatch.setitem(sys.modules, "torch", None)
    with one_line(r"needs PyTorch \(pip install torch\)"):
        formats.read(str(tmp_path))
