"""The memory that an update needs on one device, by formula.

What XLA keeps of a block for its backward pass is, as compiled modules for TPUs show, what products
give, the probabilities, and the sums before LayerNorm. LayerNorm, GELU and casts are computed again
within the products that read them. So a block keeps, in the computing type:

    queries, keys, values 3 D, context D, both sums before LayerNorm 2 D, intermediate I: a token
    probabilities of attention: N S S a sequence

and of each element that dropout has seen, in a byte, whether it was dropped. The gradients of a
weight that layers share are kept layer by layer, and added up at the end. Not counted: the program,
the embeddings' dropout, and what sides below 128, such as short sequences, are filled up to.

Compared with the compiler in a table (bench/plan_table.py) were ALBERT's own models alone: all
weights shared, no dropout, bfloat16, one micro-batch. For float32, micro-batches and dropout it was
asked of other models, and agrees (docs/results.md). Weights that layers do not share follow from
the same picture, unchecked.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from albert_tf.train_config import PretrainConfig
from plan.formula import costs

PROBABILITIES, LAST, INPUTS = "attention probabilities", "last block", "inputs of blocks"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes in use at the same time when the most are in use.

    Attributes:
        weights: float32, with those that no gradient reaches.
        optimizer: two moments of each weight that is trained.
        batch: what comes from the host.
        copies: the blocks' matrices in the computing type.
        gradients: of weights, at that time.
        activations: kept for the backward pass, by part.
        working: of the block that is being computed.
    """

    weights: int
    optimizer: int
    batch: int
    copies: int
    gradients: int
    activations: dict[str, int]
    working: int

    @property
    def total(self) -> int:
        return _total(dataclasses.asdict(self))


def needed(settings: PretrainConfig, batch: int) -> Memory:
    """Of one device for `batch` sequences, program and runtime aside."""
    accumulated = settings.num_micro_batches > 1
    state: dict[str, Any] = {
        "weights": 4 * sum(costs.parameters(settings.albert).values()),
        "optimizer": 8 * costs.trained_parameters(settings),
        "batch": 4 * batch * (3 * settings.max_seq_length + 3 * settings.max_predictions_per_seq),
    }
    rows = batch // settings.num_micro_batches
    sums = 4 * costs.trained_parameters(settings) if accumulated else 0
    at_peak = max([*_backward(settings, rows), _at_the_end(settings)], key=_total)
    at_peak["gradients"] += sums
    return Memory(**state, **at_peak)


def _total(parts: Mapping[str, Any]) -> int:
    """Of numbers, and of tables of numbers."""
    return sum(sum(x.values()) if isinstance(x, dict) else x for x in parts.values())


def _backward(settings: PretrainConfig, batch: int) -> list[dict[str, Any]]:
    """What is in use besides the state when the backward pass has come to each block."""
    width = costs.width(settings)
    config, size = settings.albert, settings.albert.embedding_size
    full = config.num_blocks - 1
    block = _kept(settings, batch, settings.max_seq_length)
    again = costs.recomputes(settings)
    of_last = {} if again else {LAST: _total(_kept(settings, batch, _rows_of_last(settings)))}
    matrices = _matrices(settings)
    copies = width * _all_matrices(settings) if width == 2 else 0
    of_heads = 4 * config.vocab_size * size  # of the word embeddings
    logits = width * batch * settings.max_predictions_per_seq * config.vocab_size

    def kept(blocks: int) -> dict[str, int]:
        if again:
            inputs = width * batch * settings.max_seq_length * config.hidden_size
            return {INPUTS: blocks * inputs}
        return {part: blocks * each for part, each in block.items()}

    def moment(gradients: int, activations: dict[str, int], working: int) -> dict[str, Any]:
        parts = {"gradients": of_heads + gradients, "activations": activations}
        return {"copies": copies, **parts, "working": working}

    # The heads: all blocks are kept.
    turns = config.num_hidden_layers - 1
    found = [moment(0, {**kept(turns if settings.layer_loop else full), **of_last}, logits)]
    working = _working(settings, batch) + (_draws(settings, batch) if again else 0)
    if settings.layer_loop:  # all inputs in one array, each gradient added to one sum
        turn = config.inner_group_num  # blocks that are computed again together
        gradients = 4 * turn * matrices + width * config.hidden_size * config.intermediate_size
        return [*found, moment(gradients, kept(turns), working + turn * _total(block))]
    for j in range(full):  # blocks 0 to j are still kept, the others have left gradients
        gradients = (full - j) * matrices * width
        found.append(moment(gradients, kept(j + 1), working + (_total(block) if again else 0)))
    return found


def _at_the_end(settings: PretrainConfig) -> dict[str, Any]:
    """When all gradients are summed over the replicas, and nothing else is left."""
    gradients = costs.all_reduce_bytes(settings)
    return {"copies": 0, "gradients": gradients, "activations": {}, "working": 0}


def _rows_of_last(settings: PretrainConfig) -> int:
    return settings.max_predictions_per_seq + 1


def _kept(settings: PretrainConfig, batch: int, rows: int) -> dict[str, int]:
    """Bytes that a block which computes `rows` of each sequence keeps, by part."""
    config, length = settings.albert, settings.max_seq_length
    hidden, tokens, some = config.hidden_size, batch * length, batch * rows
    masks = _masks(settings, some)
    elements = {
        # Keys and values; queries, context and the sum.
        costs.ATTENTION: hidden * (2 * tokens + 3 * some),
        PROBABILITIES: some * config.num_attention_heads * length,
        costs.FFN: some * (config.intermediate_size + hidden),
    }
    return {part: costs.width(settings) * x + masks[part] for part, x in elements.items()}


def _working(settings: PretrainConfig, batch: int) -> int:
    """Bytes of the gradients within a block: at its feed-forward part, or at its attention.

    By then what the feed-forward part kept is gone. Which arrays take the place of which is the
    compiler's business: of several readings this is the one that the compiled models agree with.
    """
    config, length = settings.albert, settings.max_seq_length
    hidden, inner, heads = config.hidden_size, config.intermediate_size, config.num_attention_heads
    ffn = inner + 4 * hidden
    # Of probabilities; of queries, keys, values and context.
    attention = heads * length + 4 * hidden - (inner + hidden)
    return costs.width(settings) * batch * length * max(ffn, attention)


def _masks(settings: PretrainConfig, tokens: int) -> dict[str, int]:
    """Elements of a block for `tokens` that dropout sees, by part."""
    config = settings.albert
    hidden = tokens * config.hidden_size if config.hidden_dropout_prob else 0
    probabilities = tokens * config.num_attention_heads * settings.max_seq_length
    if not config.attention_probs_dropout_prob:
        probabilities = 0
    return {costs.ATTENTION: hidden, PROBABILITIES: probabilities, costs.FFN: hidden}


def _draws(settings: PretrainConfig, batch: int) -> int:
    """Bytes of the random numbers, 32 bits each, of the largest mask of a block.

    Where blocks are not computed again they are gone when the most is in use.
    """
    return 4 * max(_masks(settings, batch * settings.max_seq_length).values())


def _matrices(settings: PretrainConfig) -> int:
    """Elements of the matrices of a block."""
    config = settings.albert
    return 4 * config.hidden_size**2 + 2 * config.hidden_size * config.intermediate_size


def _all_matrices(settings: PretrainConfig) -> int:
    """The same of all blocks; those that share their weights count once."""
    config = settings.albert
    attentions, ffns = costs.num_weight_sets(config)
    ffn = 2 * config.hidden_size * config.intermediate_size
    return attentions * 4 * config.hidden_size**2 + ffns * ffn
