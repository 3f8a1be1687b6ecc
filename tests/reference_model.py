"""ALBERT's forward pass once more: plain numpy, float64, no masks of batches, no tricks.

Written from the paper and from the layout of the published checkpoints, to be compared with
`albert_tf.model`. Weights are a dict {published name: array}; shapes as in `albert_tf.layers`.
"""

import math
from fractions import Fraction

import numpy as np

ACTIVATIONS = {
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "linear": lambda x: x,
}


def softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


class Weights:
    """The weights below one prefix of names, and the two layers that are everywhere."""

    def __init__(self, arrays, prefix=""):
        self.arrays, self.prefix = arrays, prefix

    def __getitem__(self, name):
        return np.asarray(self.arrays[self.prefix + name], np.float64)

    def under(self, name):
        return Weights(self.arrays, f"{self.prefix}{name}/")

    def dense(self, name, x):
        return x @ self[f"{name}/kernel"] + self[f"{name}/bias"]

    def layer_norm(self, name, x):
        variance = x.var(-1, keepdims=True)
        normalized = (x - x.mean(-1, keepdims=True)) / np.sqrt(variance + 1e-12)
        return normalized * self[f"{name}/gamma"] + self[f"{name}/beta"]


def attention(weights, config, x, mask):  # [B, S, D], [B, S] -> [B, S, D]
    size = config.hidden_size // config.num_attention_heads
    query, key, value = (
        weights.dense(f"attention_1/self/{n}", x) for n in ("query", "key", "value")
    )
    heads = []
    for head in range(config.num_attention_heads):
        columns = slice(head * size, (head + 1) * size)
        scores = query[..., columns] @ key[..., columns].swapaxes(1, 2) / math.sqrt(size)
        probs = softmax(scores - 10000.0 * (1 - mask[:, None, :]))  # [B, S, S], the keys last
        heads.append(probs @ value[..., columns])
    y = weights.dense("attention_1/output/dense", np.concatenate(heads, -1))
    return weights.layer_norm("LayerNorm", x + y)


def feed_forward(weights, config, x):  # [B, S, D] -> [B, S, D]
    y = ACTIVATIONS[config.hidden_act](weights.dense("ffn_1/intermediate/dense", x))
    y = weights.dense("ffn_1/intermediate/output/dense", y)
    return weights.layer_norm("LayerNorm_1", x + y)


def encoder(weights, config, x, mask):  # [B, S, E], [B, S] -> one [B, S, D] for each block
    if config.embedding_size != config.hidden_size:
        x = weights.dense("embedding_hidden_mapping_in", x)
    outputs = []
    for step in range(config.num_hidden_layers):
        group = math.floor(Fraction(step, config.num_hidden_layers) * config.num_hidden_groups)
        attention_group = group if config.cross_layer_sharing in ("all", "attention") else step
        ffn_group = group if config.cross_layer_sharing in ("all", "ffn") else step
        for inner in range(config.inner_group_num):
            block = f"inner_group_{inner}"
            groups = weights.under("transformer")
            x = attention(groups.under(f"group_{attention_group}/{block}"), config, x, mask)
            x = feed_forward(groups.under(f"group_{ffn_group}/{block}"), config, x)
            outputs.append(x)
    return outputs


def albert(weights, config, batch):
    """`sequence_output`, `pooled_output` and `encoder_outputs` of a batch."""
    ids = np.asarray(batch["input_ids"])
    bert = Weights(weights, "bert/")
    names = bert.under("embeddings")
    x = names["word_embeddings"][ids]
    x = x + names["token_type_embeddings"][np.asarray(batch["segment_ids"])]
    x = x + names["position_embeddings"][np.arange(ids.shape[1])]
    x = names.layer_norm("LayerNorm", x)
    outputs = encoder(bert.under("encoder"), config, x, np.asarray(batch["input_mask"]))
    return {
        "sequence_output": outputs[-1],
        "pooled_output": np.tanh(bert.dense("pooler/dense", outputs[-1][:, 0])),
        "encoder_outputs": outputs,
    }


def pretraining(weights, config, batch):
    """The logits of the two heads: [B, P, V] and [B, 2]."""
    outputs = albert(weights, config, batch)
    positions = np.asarray(batch["masked_lm_positions"])
    x = np.take_along_axis(outputs["sequence_output"], positions[:, :, None], 1)  # [B, P, D]
    head = Weights(weights, "cls/predictions/")
    x = ACTIVATIONS[config.hidden_act](head.dense("transform/dense", x))
    x = head.layer_norm("transform/LayerNorm", x)
    words = Weights(weights)["bert/embeddings/word_embeddings"]
    sentence = Weights(weights, "cls/seq_relationship/")
    return {
        "masked_lm_logits": x @ words.T + head["output_bias"],
        "sentence_order_logits": outputs["pooled_output"] @ sentence["output_weights"].T
        + sentence["output_bias"],
    }


def pretraining_loss(weights, config, batch):
    """Weighted mean of the masked LM's cross entropy plus mean of the sentence head's, in nats."""
    logits = pretraining(weights, config, batch)
    masked = cross_entropy(logits["masked_lm_logits"], np.asarray(batch["masked_lm_ids"]))
    sentence = cross_entropy(
        logits["sentence_order_logits"], np.asarray(batch["next_sentence_labels"])[:, 0]
    )
    real = np.asarray(batch["masked_lm_weights"])
    return (masked * real).sum() / real.sum() + sentence.mean()


def cross_entropy(logits, labels):  # [..., C], [...] -> [...]
    return -np.take_along_axis(np.log(softmax(logits)), labels[..., None], -1)[..., 0]
