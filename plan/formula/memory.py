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
        return _sum_parts(dataclasses.asdict(self))


def estimate_memory(config: PretrainConfig, batch: int) -> Memory:
    """Of one device for `batch` sequences, program and runtime aside."""
    accumulated = config.num_micro_batches > 1
    state: dict[str, Any] = {
        "weights": 4 * sum(costs.count_parameters(config.albert).values()),
        "optimizer": 8 * costs.count_trained_parameters(config),
        "batch": 4 * batch * (3 * config.max_seq_length + 3 * config.max_predictions_per_seq),
    }
    rows = batch // config.num_micro_batches
    sums = 4 * costs.count_trained_parameters(config) if accumulated else 0
    peak = max([*_list_backward_moments(config, rows), _measure_all_reduce(config)], key=_sum_parts)
    peak["gradients"] += sums
    return Memory(**state, **peak)


def _sum_parts(parts: Mapping[str, Any]) -> int:
    """Of numbers, and of tables of numbers."""
    return sum(sum(x.values()) if isinstance(x, dict) else x for x in parts.values())


def _list_backward_moments(config: PretrainConfig, batch: int) -> list[dict[str, Any]]:
    """What is in use besides the state when the backward pass has come to each block."""
    width = costs.bytes_per_number(config)
    albert, size = config.albert, config.albert.embedding_size
    full = albert.num_blocks - 1
    block = _measure_kept(config, batch, config.max_seq_length)
    again = costs.recomputes(config)
    last_block = (
        {} if again else {LAST: _sum_parts(_measure_kept(config, batch, _count_last_rows(config)))}
    )
    matrices = _count_matrix(config)
    copies = width * _count_matrices(config) if width == 2 else 0
    head_gradients = 4 * albert.vocab_size * size  # of the word embeddings
    logits = width * batch * config.max_predictions_per_seq * albert.vocab_size

    def kept(blocks: int) -> dict[str, int]:
        if again:
            inputs = width * batch * config.max_seq_length * albert.hidden_size
            return {INPUTS: blocks * inputs}
        return {part: blocks * each for part, each in block.items()}

    def moment(gradients: int, activations: dict[str, int], working: int) -> dict[str, Any]:
        parts = {"gradients": head_gradients + gradients, "activations": activations}
        return {"copies": copies, **parts, "working": working}

    # The heads: all blocks are kept.
    turns = albert.num_hidden_layers - 1
    moments = [moment(0, {**kept(turns if config.layer_loop else full), **last_block}, logits)]
    working = _measure_working(config, batch) + (
        _measure_random_numbers(config, batch) if again else 0
    )
    if config.layer_loop:  # all inputs in one array, each gradient added to one sum
        turn = albert.inner_group_num  # blocks that are computed again together
        gradients = 4 * turn * matrices + width * albert.hidden_size * albert.intermediate_size
        return [*moments, moment(gradients, kept(turns), working + turn * _sum_parts(block))]
    for j in range(full):  # blocks 0 to j are still kept, the others have left gradients
        gradients = (full - j) * matrices * width
        moments.append(
            moment(gradients, kept(j + 1), working + (_sum_parts(block) if again else 0))
        )
    return moments


def _measure_all_reduce(config: PretrainConfig) -> dict[str, Any]:
    """When all gradients are summed over the replicas, and nothing else is left."""
    gradients = costs.count_all_reduce_bytes(config)
    return {"copies": 0, "gradients": gradients, "activations": {}, "working": 0}


def _count_last_rows(config: PretrainConfig) -> int:
    return config.max_predictions_per_seq + 1


def _measure_kept(config: PretrainConfig, batch: int, rows: int) -> dict[str, int]:
    """Bytes that a block which computes `rows` of each sequence keeps, by part."""
    albert, length = config.albert, config.max_seq_length
    hidden, tokens, some = albert.hidden_size, batch * length, batch * rows
    masks = _count_masks(config, some)
    elements = {
        # Keys and values; queries, context and the sum.
        costs.ATTENTION: hidden * (2 * tokens + 3 * some),
        PROBABILITIES: some * albert.num_attention_heads * length,
        costs.FFN: some * (albert.intermediate_size + hidden),
    }
    return {part: costs.bytes_per_number(config) * x + masks[part] for part, x in elements.items()}


def _measure_working(config: PretrainConfig, batch: int) -> int:
    """Bytes of the gradients within a block: at its feed-forward part, or at its attention.

    By then what the feed-forward part kept is gone. Which arrays take the place of which is the
    compiler's business: of several readings this is the one that the compiled models agree with.
    """
    albert, length = config.albert, config.max_seq_length
    hidden, inner, heads = albert.hidden_size, albert.intermediate_size, albert.num_attention_heads
    ffn = inner + 4 * hidden
    # Of probabilities; of queries, keys, values and context.
    attention = heads * length + 4 * hidden - (inner + hidden)
    return costs.bytes_per_number(config) * batch * length * max(ffn, attention)


def _count_masks(config: PretrainConfig, tokens: int) -> dict[str, int]:
    """Elements of a block for `tokens` that dropout sees, by part."""
    albert = config.albert
    hidden = tokens * albert.hidden_size if albert.hidden_dropout_prob else 0
    probabilities = tokens * albert.num_attention_heads * config.max_seq_length
    if not albert.attention_probs_dropout_prob:
        probabilities = 0
    return {costs.ATTENTION: hidden, PROBABILITIES: probabilities, costs.FFN: hidden}


def _measure_random_numbers(config: PretrainConfig, batch: int) -> int:
    """Bytes of the random numbers, 32 bits each, of the largest mask of a block.

    Where blocks are not computed again they are gone when the most is in use.
    """
    return 4 * max(_count_masks(config, batch * config.max_seq_length).values())


def _count_matrix(config: PretrainConfig) -> int:
    """Elements of the matrices of a block."""
    albert = config.albert
    return 4 * albert.hidden_size**2 + 2 * albert.hidden_size * albert.intermediate_size


def _count_matrices(config: PretrainConfig) -> int:
    """The same of all blocks; those that share their weights count once."""
    albert = config.albert
    attentions, ffns = costs.num_weight_sets(albert)
    ffn = 2 * albert.hidden_size * albert.intermediate_size
    return attentions * 4 * albert.hidden_size**2 + ffns * ffn
