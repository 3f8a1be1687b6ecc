"""Parameters, operations and bytes of an update, computed from the config.

Letters are as in `albert_tf.model.layers`. Only matrix products are counted (98 to 99 % of the
operations); a multiplication and an addition count as two operations.
"""

from typing import NamedTuple

from albert_tf.config import AlbertConfig
from albert_tf.train_config import PretrainConfig

EMBEDDINGS, ATTENTION, SCORES, FFN = "embeddings", "attention", "attention scores", "feed-forward"
MASKED_LM, SENTENCE, WORDS = "masked LM head", "pooler and sentence head", "head of words"


class Flops(NamedTuple):
    """The operations in one replica's update."""

    forward: float = 0.0
    backward: float = 0.0
    recomputed: float = 0.0


def count_parameters(albert: AlbertConfig, num_words: int = 0) -> dict[str, int]:
    """Returns {part: number of parameters} of the pre-training model."""
    size, hidden, inner = albert.embedding_size, albert.hidden_size, albert.intermediate_size
    rows = albert.vocab_size + albert.type_vocab_size + albert.max_position_embeddings
    attentions, ffns = (
        albert.inner_group_num * albert.num_groups(part) for part in ("attention", "ffn")
    )
    return {
        EMBEDDINGS: (rows + 2) * size + (size + 1) * hidden * (size != hidden),
        ATTENTION: attentions * (4 * (hidden + 1) * hidden + 2 * hidden),
        FFN: ffns * ((hidden + 1) * inner + (inner + 3) * hidden),
        SENTENCE: (hidden + 1) * hidden + 2 * (hidden + 1),
        MASKED_LM: (hidden + 1) * size + 2 * size + albert.vocab_size,
        **({WORDS: num_words * (hidden + 1)} if num_words else {}),
    }


def count_trained_parameters(config: PretrainConfig) -> int:
    """Counts parameters with a gradient: without a sentence task, not its head and the pooler."""
    parts = count_parameters(config.albert, config.head_of_words)
    unread = 0 if config.sentence_task in ("sop", "nsp") else parts[SENTENCE]
    return sum(parts.values()) - unread


def count_flops(config: PretrainConfig, batch: int) -> Flops:
    """Counts the operations of one replica's update with `batch` sequences."""
    return Flops(*map(sum, zip(*count_flops_by_part(config, batch).values(), strict=True)))


def count_flops_by_part(config: PretrainConfig, batch: int) -> dict[str, Flops]:
    """Counts the same by part."""
    albert, length = config.albert, config.max_seq_length
    size, hidden, inner = albert.embedding_size, albert.hidden_size, albert.intermediate_size
    tokens, chosen = batch * length, batch * config.max_predictions_per_seq
    words, again = config.head_of_words, config.rematerialize or config.layer_loop
    # (part, rows, inner size, columns, backward products, whether it is recomputed)
    products = [
        (EMBEDDINGS, tokens, albert.type_vocab_size, size, 1, False),  # one-hot rows need none
        (EMBEDDINGS, tokens, size, hidden if size != hidden else 0, 2, False),
        (MASKED_LM, chosen, hidden, size, 2, False),
        (MASKED_LM, chosen, size, albert.vocab_size, 2, False),
    ]
    if config.sentence_task in ("sop", "nsp"):
        products.append((SENTENCE, batch, hidden, hidden + 2, 2, False))
    elif words:
        products.append((WORDS, tokens, hidden, words, 2, False))
    # The last block computes only the rows that heads read: all rows for a word head.
    last = length if words else min(length, config.max_predictions_per_seq + 1)
    for some, times in ((tokens, albert.num_blocks - 1), (batch * last, 1)):
        products += [
            (ATTENTION, times * some, hidden, 2 * hidden, 2, again),  # queries; the output
            (ATTENTION, times * tokens, hidden, 2 * hidden, 2, again),  # keys and values
            (SCORES, times * some, 2 * hidden, length, 2, again),  # with keys; with values
            (FFN, times * some, 2 * hidden, inner, 2, again),
        ]
    parts: dict[str, Flops] = {}
    for part, rows, columns, others, gradients, is_recomputed in products:
        flops, old = 2.0 * rows * columns * others, parts.get(part, Flops())
        new = (flops, flops * gradients, flops * is_recomputed)
        parts[part] = Flops(*map(sum, zip(old, new, strict=True)))
    return parts


def estimate_memory(config: PretrainConfig, batch: int) -> dict[str, int]:
    """Estimates the bytes on one device, by purpose.

    A block keeps the results of its products and the attention probabilities, in the compute
    dtype, and one byte per element under dropout; recomputed blocks keep only their inputs.
    Gradients of shared weights are kept per layer. Within 15 % of what the TPU compiler needed for
    the paper's models (docs/research/results.md); not compared for unshared weights.
    """
    albert, length = config.albert, config.max_seq_length
    hidden, inner, heads = albert.hidden_size, albert.intermediate_size, albert.num_attention_heads
    width = 2 if config.dtype == "mixed_bfloat16" else 4
    sequences = batch // config.num_micro_batches
    tokens, blocks = sequences * length, albert.num_blocks - 1
    outputs = hidden * bool(albert.hidden_dropout_prob)  # elements under dropout per token
    probabilities = heads * length * bool(albert.attention_probs_dropout_prob)
    kept = width * (6 * hidden + inner + heads * length) + 2 * outputs + probabilities
    each, working = tokens * kept, width * tokens * (inner + 4 * hidden)
    if config.rematerialize or config.layer_loop:  # plus the random bits of the largest mask
        working += each + 4 * tokens * max(outputs, probabilities)
        each = width * tokens * hidden
    logits = width * sequences * config.max_predictions_per_seq * albert.vocab_size
    logits += 4 * tokens * config.head_of_words
    trained = count_trained_parameters(config)
    parameters = count_parameters(albert, config.head_of_words)
    # At the heads, at the first block, and when replicas sum the gradients.
    by_layer, left = (4, blocks) if config.layer_loop else (width * blocks, 1)
    gradients, activations = max(
        (0, blocks * each + max(working, logits)),
        (by_layer * (4 * hidden**2 + 2 * hidden * inner), left * each + working),
        (4 * trained, 0),
        key=sum,
    )
    return {
        "weights": 4 * sum(parameters.values()),
        "optimizer": 8 * trained,
        "copies": width * (parameters[ATTENTION] + parameters[FFN]) if width == 2 else 0,
        "gradients": gradients + (4 * trained if config.num_micro_batches > 1 else 0),
        "activations": activations,
    }
