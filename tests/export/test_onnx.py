"""bin/export --format=onnx: the names of transformers, each weight once, the network's numbers."""

import json
import os
import sys

import numpy as np
import pytest
import tiny_exports
from repository import ROOT

from albert_tf.checkpoints import formats
from albert_tf.kinds import task_table

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from albert_tf.export.export_config import SourceConfig  # noqa: E402
from albert_tf.export.onnx import onnx_folder, onnx_graph, onnx_runtime  # noqa: E402

PROGRAM = ROOT / "bin/export --format=onnx"
IDS = ["input_ids", "attention_mask", "token_type_ids"]
OUTPUTS = {
    "encoder": ["last_hidden_state", "pooler_output"],
    "sentence_embedding": ["last_hidden_state", "sentence_embedding"],
    "span": ["start_logits", "end_logits"],
    "span_or_none": [
        *("start_top_log_probs", "start_top_index", "end_top_log_probs", "end_top_index"),
        "cls_logits",
    ],
}


@pytest.mark.parametrize("kind", task_table.MODELS)
def test_outputs_are_those_of_the_network(kind, tmp_path):
    model = tiny_exports.source(kind)
    path = onnx_folder.save_graph(model, str(tmp_path))
    assert onnx_runtime.check(model, path)[0] > 0  # or it raises
    session = onnx_runtime.open_session(path)
    more = ["p_mask"] if kind == "span_or_none" else []
    assert [x.name for x in session.get_inputs()] == IDS + more
    assert [x.name for x in session.get_outputs()] == OUTPUTS.get(kind, ["logits"])
    if kind == "span_or_none":
        ids = tiny_exports.ids(model)
        outputs = onnx_runtime.run(session, onnx_runtime.to_inputs(model, ids))
        outputs = {k: x.astype(np.int32) if "index" in k else x for k, x in outputs.items()}
        tiny_exports.assert_same(outputs, tiny_exports.expected(model, ids))


def test_vector_stores_find_the_graph_and_the_vectors_of_tokens(tmp_path, vocabulary):
    """pymilvus-model and fastembed take the mean of the first output by themselves."""
    source = SourceConfig(
        checkpoint=tiny_exports.write_checkpoint(tmp_path / "in", "encoder", vocabulary),
        kind="sentence_embedding",
    )
    folder = onnx_folder.export(source, str(tmp_path / "out"), "root")
    session = onnx_runtime.open_session(os.path.join(folder, "model.onnx"))
    assert [x.name for x in session.get_inputs()] == IDS
    assert session.get_outputs()[0].name == "last_hidden_state"
    with open(os.path.join(folder, "tokenizer_config.json")) as file:
        assert json.load(file)["model_max_length"] == 16
    assert os.path.exists(os.path.join(folder, "tokenizer.json"))


CHANGES = [
    {"num_hidden_layers": 7, "num_hidden_groups": 2, "inner_group_num": 2},
    {"cross_layer_sharing": "attention", "hidden_act": "relu"},
    {"hidden_act": "gelu_erf"},
    {"hidden_act": "linear", "type_vocab_size": 1},
    {"hidden_act": "tanh", "embedding_size": 12, "hidden_size": 12, "num_attention_heads": 3},
]


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_every_config_and_each_weight_once(changes, tmp_path):
    checkpoint = tiny_exports.contents("encoder", **changes)
    path = str(tmp_path / "checkpoint")
    formats.write_folder(checkpoint, path)
    model = tiny_exports.read(path, "encoder", text=False)
    assert onnx_runtime.check(model, onnx_folder.save_graph(model, str(tmp_path)))[0] > 0
    made = onnx_graph.make(model, IDS)
    onnx.checker.check_model(made, full_check=True)
    graph = made.graph
    sizes = [np.prod(x.dims) for x in graph.initializer if len(x.dims) > 1]
    assert {x.name for x in graph.initializer} <= {x for node in graph.node for x in node.input}
    assert sum(sizes) == sum(x.size for x in checkpoint.weights.values() if x.ndim > 1)


def test_the_program_writes_a_folder_of_transformers(run_program, vocabulary, tmp_path):
    checkpoint = tiny_exports.contents("classification", vocabulary)
    source, target = str(tmp_path / "checkpoint"), tmp_path / "größe ½"
    formats.write_folder(checkpoint, source)
    flags = [f"--checkpoint={source}", f"--output_dir={target}", "--kind=classification"]
    flags.append("--labels=bad,fine,good")
    assert not run_program(PROGRAM, *flags)
    config = json.loads((target / "config.json").read_text())
    assert config["architectures"] == ["AlbertForSequenceClassification"]
    assert config["id2label"] == {"0": "bad", "1": "fine", "2": "good"}
    names = {*os.listdir(target)}
    assert {"onnx", "tokenizer.json", "tokenizer_config.json", "MODEL.md", "sha256.json"} < names
    card = (target / "MODEL.md").read_text()
    assert "| out | `logits` | batch, 3 |" in card
    assert "ORTModelForSequenceClassification" in card
    message = run_program(PROGRAM, *flags)
    assert (
        message
        == f"export: --output_dir: {target} already exists. Remove it, or use another folder."
    )


MISTAKES = {
    "kind": "transformers has no such head",
    "package": "pip install onnx onnxruntime",
    "outputs": "nothing is written",
}


@pytest.mark.parametrize(("wrong", "sentence"), MISTAKES.items(), ids=MISTAKES)
def test_mistakes_are_one_line(run_program, tmp_path, monkeypatch, wrong, sentence):
    kind = "span_or_none" if wrong == "kind" else "encoder"
    source, target = str(tmp_path / "checkpoint"), tmp_path / "folder"
    formats.write_folder(tiny_exports.contents(kind), source)
    if wrong == "package":
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
    if wrong == "outputs":
        monkeypatch.setattr(onnx_graph, "_ACTIVATIONS", dict.fromkeys(onnx_graph._ACTIVATIONS))
    flags = [f"--checkpoint={source}", f"--output_dir={target}", f"--kind={kind}"]
    message = run_program(PROGRAM, *flags)
    assert sentence in message
    assert "\n" not in message
    assert os.listdir(tmp_path) == ["checkpoint"]
