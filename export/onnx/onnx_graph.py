"""Makes a model's ONNX graph from its weights, each stored once, however often it is used.

For shapes, see `albert_tf.model.layers`. The layers are unrolled: in ONNX Runtime a loop is not
faster, and tools that quantize or convert graphs do not support loops.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from albert_tf.export.model_kinds import ExportedModel
from albert_tf.model import weight_names
from albert_tf.model.ops import LAYER_NORM_EPSILON
from albert_tf.records import features

OPSET, _IR_VERSION = 20, 9  # from 2023; the first with Gelu
_ACTIVATIONS: Mapping[str, tuple[str, dict[str, Any]] | None] = {
    "gelu": ("Gelu", {"approximate": "tanh"}),
    "gelu_erf": ("Gelu", {}),
    "relu": ("Relu", {}),
    "tanh": ("Tanh", {}),
    "linear": None,
}
_EMBEDDINGS, _TRANSFORM = "bert/embeddings/", "cls/predictions/transform/"
# Axes of outputs, after the batch axis.
_TOKENS, _VECTORS = ["sequence"], ["sequence", "hidden"]


class _Head(NamedTuple):
    """What a kind adds to the encoder: {output: axes after the batch}, created by `make`."""

    make: Any
    outputs: Mapping[str, list[str]]


def make(model: ExportedModel, inputs: Iterable[str]) -> onnx.ModelProto:
    """Returns the graph: int64 `inputs` [B, S] ([B, C, S] for choices) -> transformers' outputs."""
    head = _HEADS[_choose_head(model)]
    graph = _Graph(model)
    outputs = head.make(graph)
    for name, made in outputs.items():
        graph.add("Identity", made, outputs=[name])
    axes = ["batch", *(["choices"] if model.answer.rank == 3 else []), "sequence"]
    types = {name: TensorProto.INT64 for name in outputs if name.endswith("_index")}
    proto = helper.make_graph(
        graph.nodes,
        "albert",
        [helper.make_tensor_value_info(name, TensorProto.INT64, axes) for name in inputs],
        [
            helper.make_tensor_value_info(
                name, types.get(name, TensorProto.FLOAT), ["batch", *head.outputs[name]]
            )
            for name in outputs
        ],
        [numpy_helper.from_array(array, name) for name, array in graph.constants.items()],
    )
    opset = helper.make_opsetid("", OPSET)
    made = helper.make_model(proto, opset_imports=[opset], ir_version=_IR_VERSION)
    made.producer_name = "albert-tf"
    return made


def _choose_head(model: ExportedModel) -> str:
    parts = model.answer.parts
    known = {weight_names.SQUAD1: "span", weight_names.SQUAD2: "span_or_none"}
    known |= {weight_names.CLASSIFIER: "classifier", weight_names.TOKEN_CLASSIFIER: "tags"}
    return next((head for part, head in known.items() if part in parts), model.options.kind)


class _Graph:
    """Collects nodes and constants. Methods return names of tensors."""

    def __init__(self, model: ExportedModel):
        self.config, self.options = model.config, model.options
        self.has_choices = model.answer.rank == 3
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.weights = {
            name: x.numpy() for name, x in weight_names.weights_by_name(model.network).items()
        }

    def add(
        self, operation: str, *inputs: Any, outputs: list[str] | None = None, **attributes
    ) -> Any:
        """Adds a node; inputs are names or arrays. Returns its output, or all named outputs."""
        number = len(self.nodes)
        names = [x if isinstance(x, str) else self.keep(x) for x in inputs]
        results = outputs or [f"{operation}_{number}"]
        name = f"{operation}_{number}"
        self.nodes.append(helper.make_node(operation, names, results, name=name, **attributes))
        return results if outputs else results[0]

    def keep(self, value: Any, name: str | None = None) -> str:
        """Stores a constant once; numbers without a name are named by their value."""
        array = np.asarray(value)
        name = name or f"{array.dtype}_{'_'.join(map(str, array.reshape(-1)))}_{array.ndim}"
        self.constants.setdefault(name, array)
        return name

    def weight(self, name: str) -> str:
        return self.keep(self.weights[name], name)

    def dense(self, x: str, name: str) -> str:
        """[..., in] -> [..., out]"""
        return self.affine(x, self.weight(f"{name}/kernel"), self.weight(f"{name}/bias"))

    def affine(self, x: str, kernel: str, bias: str) -> str:
        return self.add("Add", self.add("MatMul", x, kernel), bias)

    def add_dense(self, x: str, y: str, name: str) -> str:
        """Returns x + dense(y). The bias comes last.

        If x came last, ONNX Runtime would fuse a SkipLayerNormalization, five times slower on CPUs.
        """
        total = self.add("Add", x, self.add("MatMul", y, self.weight(f"{name}/kernel")))
        return self.add("Add", total, self.weight(f"{name}/bias"))

    def score(self, x: str, scope: str) -> str:
        """[..., D] -> [..., C]"""
        kernel = self.keep(self.weights[f"{scope}output_weights"].T, f"{scope}output_weights")
        return self.affine(x, kernel, self.weight(f"{scope}output_bias"))

    def norm(self, x: str, name: str) -> str:
        gamma, beta = self.weight(f"{name}/gamma"), self.weight(f"{name}/beta")
        return self.add("LayerNormalization", x, gamma, beta, epsilon=LAYER_NORM_EPSILON)

    def activate(self, x: str) -> str:
        if (activation := _ACTIVATIONS[self.config.hidden_act]) is None:
            return x
        operation, attributes = activation
        return self.add(operation, x, **attributes)

    def read(self, name: str) -> str:
        """Returns an input as [B, S], or [B * C, S] for choices."""
        if not self.has_choices:
            return name
        length = self.add("Shape", name, start=2)
        return self.add("Reshape", name, self.add("Concat", _ints(-1), length, axis=0))

    def encode(self) -> str:
        """-> [B, S, D]"""
        config = self.config
        ids, mask = self.read(features.INPUT_IDS), self.read("attention_mask")
        x = self.add("Gather", self.weight(f"{_EMBEDDINGS}word_embeddings"), ids)
        types = self.weight(f"{_EMBEDDINGS}token_type_embeddings")
        x = self.add("Add", x, self.add("Gather", types, self.read("token_type_ids")))
        table = self.weight(f"{_EMBEDDINGS}position_embeddings")
        length = self.add("Shape", ids, start=1)
        x = self.add("Add", x, self.add("Slice", table, _ints(0), length, _ints(0)))
        x = self.norm(x, f"{_EMBEDDINGS}LayerNorm")
        if config.embedding_size != config.hidden_size:
            x = self.dense(x, weight_names.MAPPING)
        padding = self.add("Sub", np.float32(1), self.add("Cast", mask, to=TensorProto.FLOAT))
        bias = self.add("Mul", padding, np.float32(-10000))
        bias = self.add("Unsqueeze", bias, _ints(1, 2))  # [B, 1, 1, S]
        steps = zip(config.group_of_step("attention"), config.group_of_step("ffn"), strict=True)
        for attention, ffn in steps:
            for inner in range(config.inner_group_num):
                x = self.attend(x, bias, weight_names.BLOCK.format(attention, inner))
                x = self.feed_forward(x, weight_names.BLOCK.format(ffn, inner))
        return x

    def attend(self, x: str, bias: str, block: str) -> str:
        size, heads = self.config.hidden_size, self.config.num_attention_heads
        scope, scale = f"{block}attention_1/self/", np.float32((size // heads) ** -0.5)
        product = []
        for part, axis in (("kernel", 1), ("bias", 0)):
            # One product instead of three; queries are already scaled.
            arrays = [self.weights[f"{scope}{x}/{part}"] for x in ("query", "key", "value")]
            array = np.concatenate([arrays[0] * scale, *arrays[1:]], axis)
            product.append(self.keep(array, f"{scope}query_key_value/{part}"))
        joined = self.affine(x, *product)
        number = len(self.nodes)
        parts = self.add(
            "Split", joined, outputs=[f"{y}_{number}" for y in "qkv"], axis=-1, num_outputs=3
        )
        shape = _ints(0, 0, heads, size // heads)
        orders = [0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]
        query, key, value = (
            self.add("Transpose", self.add("Reshape", part, shape), perm=order)
            for part, order in zip(parts, orders, strict=True)
        )
        scores = self.add("Add", self.add("MatMul", query, key), bias)  # [B, N, S, S]
        context = self.add("MatMul", self.add("Softmax", scores, axis=-1), value)
        context = self.add("Transpose", context, perm=[0, 2, 1, 3])
        context = self.add("Reshape", context, _ints(0, 0, size))
        total = self.add_dense(x, context, f"{block}attention_1/output/dense")
        return self.norm(total, f"{block}LayerNorm")

    def feed_forward(self, x: str, block: str) -> str:
        y = self.activate(self.dense(x, f"{block}ffn_1/intermediate/dense"))
        total = self.add_dense(x, y, f"{block}ffn_1/intermediate/output/dense")
        return self.norm(total, f"{block}LayerNorm_1")

    def take_first(self, x: str) -> str:
        """[B, S, D] -> [B, D]"""
        return self.add("Gather", x, np.int64(0), axis=1)

    def pool(self, x: str) -> str:
        """[B, S, D] -> [B, D]"""
        return self.add("Tanh", self.dense(self.take_first(x), "bert/pooler/dense"))


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _encode(graph: _Graph) -> dict[str, str]:
    x = graph.encode()
    return {"last_hidden_state": x, "pooler_output": graph.pool(x)}


def _embed(graph: _Graph) -> dict[str, str]:
    x = graph.encode()
    if graph.options.pooling == "pooler":
        vectors = graph.pool(x)
    elif graph.options.pooling == "cls":
        vectors = graph.add("Gather", x, np.array(0, np.int64), axis=1)
    else:
        mask = graph.add("Cast", graph.read("attention_mask"), to=TensorProto.FLOAT)
        mask = graph.add("Unsqueeze", mask, _ints(2))
        total = graph.add("ReduceSum", graph.add("Mul", x, mask), _ints(1), keepdims=0)
        number = graph.add("ReduceSum", mask, _ints(1), keepdims=0)
        vectors = graph.add("Div", total, graph.add("Max", number, np.float32(1)))
    if graph.options.run_config.embedding_size:
        vectors = graph.dense(vectors, weight_names.EMBEDDING_SCOPE)
    if graph.options.normalize:
        squares = graph.add("ReduceSumSquare", vectors, _ints(-1))
        root = graph.add("Sqrt", graph.add("Max", squares, np.float32(1e-12)))
        vectors = graph.add("Div", vectors, root)
    return {"last_hidden_state": x, "sentence_embedding": vectors}


def _guess(graph: _Graph) -> dict[str, str]:
    x = graph.activate(graph.dense(graph.encode(), f"{_TRANSFORM}dense"))
    x = graph.norm(x, f"{_TRANSFORM}LayerNorm")
    table = graph.add("Transpose", graph.weight(weight_names.WORDS), perm=[1, 0])
    return {"logits": graph.affine(x, table, graph.weight("cls/predictions/output_bias"))}


def _classify(graph: _Graph) -> dict[str, str]:
    logits = graph.score(graph.pool(graph.encode()), "")
    if graph.has_choices:  # [B * C, 1] -> [B, C]
        shape = graph.add("Shape", features.INPUT_IDS, end=2)
        logits = graph.add("Reshape", logits, shape)
    return {"logits": logits}


def _tag(graph: _Graph) -> dict[str, str]:
    return {"logits": graph.score(graph.encode(), "cls/token_classification/")}


def _answer(graph: _Graph) -> dict[str, str]:
    logits = graph.score(graph.encode(), "cls/squad/")
    return {
        name: graph.add("Gather", logits, np.int64(index), axis=2)
        for index, name in enumerate(("start_logits", "end_logits"))
    }


def _search(graph: _Graph) -> dict[str, str]:
    """The beam search of `task_heads.SpanOrNone`."""
    x = graph.encode()
    mask = graph.add("Cast", features.P_MASK, to=TensorProto.FLOAT)  # [B, S]
    length = graph.add("Shape", features.INPUT_IDS, start=1)
    config = graph.options.run_config

    def cover(logits: str, mask: str) -> str:
        kept = graph.add("Mul", logits, graph.add("Sub", np.float32(1), mask))
        return graph.add("Sub", kept, graph.add("Mul", mask, np.float32(1e30)))

    def take(logits: str, number: int) -> Any:
        place = len(graph.nodes)
        best = graph.add("Min", _ints(number), length)
        probs = graph.add("LogSoftmax", logits, axis=-1)
        return graph.add("TopK", probs, best, outputs=[f"best_{place}", f"index_{place}"])

    start_logits = graph.add("Squeeze", graph.dense(x, "start_logits/dense"), _ints(2))
    start_logits = cover(start_logits, mask)
    start_log_probs, start_index = take(start_logits, config.start_n_top)
    places = graph.add("Unsqueeze", start_index, _ints(2))  # [B, K, 1]
    starts = graph.add("GatherND", x, places, batch_dims=1)  # [B, K, D]
    scope, size = "end_logits/dense_0/", graph.config.hidden_size
    kernels = np.split(graph.weights[f"{scope}kernel"], [size])
    tokens, starts = (
        graph.add("MatMul", rows, graph.keep(kernel, f"{scope}kernel_{name}"))
        for rows, kernel, name in zip((x, starts), kernels, ("token", "start"), strict=True)
    )
    pairs = graph.add(
        "Add",
        graph.add("Unsqueeze", tokens, _ints(1)),
        graph.add("Unsqueeze", starts, _ints(2)),
    )
    y = graph.add("Tanh", graph.add("Add", pairs, graph.weight(f"{scope}bias")))  # [B, K, S, D]
    y = graph.dense(graph.norm(y, "end_logits/LayerNorm"), "end_logits/dense_1")
    ends = cover(graph.add("Squeeze", y, _ints(3)), graph.add("Unsqueeze", mask, _ints(1)))
    found = take(ends, config.end_n_top)
    end_log_probs, end_index = (graph.add("Flatten", part) for part in found)
    probs = graph.add("Unsqueeze", graph.add("Softmax", start_logits, axis=-1), _ints(1))
    start = graph.add("Squeeze", graph.add("MatMul", probs, x), _ints(1))  # [B, D]
    joined = graph.add("Concat", start, graph.take_first(x), axis=-1)
    y = graph.add("Tanh", graph.dense(joined, "answer_class/dense_0"))
    y = graph.add("MatMul", y, graph.weight("answer_class/dense_1/kernel"))
    return {
        "start_top_log_probs": start_log_probs,
        "start_top_index": start_index,
        "end_top_log_probs": end_log_probs,
        "end_top_index": end_index,
        "cls_logits": graph.add("Squeeze", y, _ints(1)),
    }


_HEADS: Mapping[str, _Head] = {
    "encoder": _Head(_encode, {"last_hidden_state": _VECTORS, "pooler_output": ["hidden"]}),
    "sentence_embedding": _Head(
        _embed, {"last_hidden_state": _VECTORS, "sentence_embedding": ["hidden"]}
    ),
    "fill_mask": _Head(_guess, {"logits": ["sequence", "vocabulary"]}),
    "classifier": _Head(_classify, {"logits": ["labels"]}),
    "tags": _Head(_tag, {"logits": ["sequence", "labels"]}),
    "span": _Head(_answer, {"start_logits": _TOKENS, "end_logits": _TOKENS}),
    "span_or_none": _Head(
        _search,
        {
            "start_top_log_probs": ["starts"],
            "start_top_index": ["starts"],
            "end_top_log_probs": ["ends"],
            "end_top_index": ["ends"],
            "cls_logits": [],
        },
    ),
}
