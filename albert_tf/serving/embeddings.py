"""OpenAI's /v1/embeddings, for models whose answer to a text is an embedding."""

import base64
from typing import Any, Literal

import msgspec
import numpy as np

from albert_tf.serving.refusals import invalid
from albert_tf.serving.served_model import Arrays, ServedModel, ServedSignature

_OUTPUT = "embedding"


class EmbeddingsBody(msgspec.Struct):
    """The body of a request; `dimensions` keeps the first ones, for Matryoshka models."""

    model: str
    input: str | list[str]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None


def choose(model: ServedModel) -> ServedSignature:
    """Returns the signature that gives embeddings; `Refusal` if there is none."""
    signature = model.choose()
    if _OUTPUT not in signature.outputs or signature.inputs.keys() != {"text"}:
        raise invalid(
            f"{model.name} gives no embeddings: export it with --kind=sentence_embedding."
        )
    return signature


def read_texts(body: EmbeddingsBody) -> Arrays:
    texts = [body.input] if isinstance(body.input, str) else body.input
    return {"text": np.array([text.encode() for text in texts], object)}


def write(body: EmbeddingsBody, outputs: Arrays, num_tokens: int) -> dict[str, Any]:
    """Returns the reply; truncated embeddings are normalized again if they had length 1."""
    vectors = outputs[_OUTPUT]
    size = body.dimensions or vectors.shape[1]
    if not 0 < size <= vectors.shape[1]:
        raise invalid(f"dimensions must be 1 to {vectors.shape[1]}.")
    if size < vectors.shape[1]:
        vectors = vectors[:, :size] / np.linalg.norm(vectors[:, :size], axis=1, keepdims=True)
    rows = vectors.astype("<f4")
    data = [
        {
            "object": "embedding",
            "index": k,
            "embedding": base64.b64encode(row.tobytes()).decode()
            if body.encoding_format == "base64"
            else row.tolist(),
        }
        for k, row in enumerate(rows)
    ]
    usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    return {"object": "list", "data": data, "model": body.model, "usage": usage}
