"""The memory that an update needs on one device, by formula.

What XLA keeps of a block for its backward pass is, as compiled modules for TPUs show, what products
give, the probabilities, and the sums before LayerNorm. LayerNorm, GELU and casts are computed again
within the products that read them. So a block keeps, in the computing type:

    queries, keys, values 3 D, context D, both sums before LayerNorm 2 D, intermediate I: a token
    probabilities of attention: N S S a sequence, but none with an attention window

and of each element that dropout has seen, in a byte, whether it was dropped. The gradients of a
weight that layers share are kept layer by layer, and added up at the end. Not counted: the program,
the embeddings' dropout, and what sides below 128, such as short sequences, are filled up to.

Compared with the compiler (docs/results.md): ALBERT's own models with all weights shared, bfloat16,
no dropout, one micro-batch; other models with float32, micro-batches or dropout. Not compared:
weights that layers do not share.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from albert_tf.plan.formula import costs
from albert_tf.train_config import MASKED, PretrainConfig

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
    """Estimates that of one device for `batch` sequences, program and runtime aside."""
    gradients = costs.count_all_reduce_bytes(config)
    # When gradients are summed over the replicas, nothing else is left.
    all_reduce = {"copies": 0, "gradients": gradients, "activations": {}, "working": 0}
    moments = _list_backward_moments(config, batch // config.num_micro_batches)
    peak = max([*moments, all_reduce], key=_sum_parts)
    peak["gradients"] += gradients if config.num_micro_batches > 1 else 0
    return Memory(
        weights=4 * sum(costs.count_model_parameters(config).values()),
        optimizer=8 * costs.count_trained_parameters(config),
        batch=4 * batch * (3 * config.max_seq_length + 3 * config.max_predictions_per_seq),
        **peak,
    )


def _sum_parts(parts: Mapping[str, Any]) -> int:
    """Sums numbers and tables of numbers."""
    return sum(sum(x.values()) if isinstance(x, dict) else x for x in parts.values())


def _list_backward_moments(config: PretrainConfig, batch: int) -> list[dict[str, Any]]:
    """Lists what is in use besides the state when the backward pass has come to each block."""
    width = costs.bytes_per_number(config)
    albert, size = config.albert, config.albert.embedding_size
    full = albert.num_blocks - 1
    options = config, batch, config.max_seq_length
    block, windowed = (_measure_kept(*options, is_windowed=x) for x in (False, True))
    share = min(1.0, costs.count_windowed(config) / max(1, full))
    block = {x: int(size + share * (windowed[x] - size)) for x, size in block.items()}  # the mean
    again = costs.recomputes(config)
    last_rows = costs.count_last_rows(config)
    last_block = {} if again else {LAST: _sum_parts(_measure_kept(config, batch, last_rows))}
    attention = 4 * albert.hidden_size**2  # elements of the matrices of a block
    ffn = 2 * albert.hidden_size * albert.intermediate_size
    attentions, ffns = costs.num_weight_sets(albert)
    copies = width * (attentions * attention + ffns * ffn) if width == 2 else 0
    if albert.depth_lora_rank:  # the sums of shared matrices and what a layer adds to them
        copies += width * (attention + ffn) * (1 if again else albert.num_blocks)
    head_gradients = 4 * albert.vocab_size * size  # of the word embeddings
    logits = width * batch * config.max_predictions_per_seq * albert.vocab_size
    logits += 4 * batch * config.max_seq_length * costs.count_words(config)
    of_generator = {}
    if config.token_task != MASKED:  # what its heads see stays until the model's gradients are done
        first = _list_backward_moments(config.generator, batch)[0]
        of_generator = {costs.GENERATOR: _sum_parts(first["activations"]) + first["working"]}
        logits = 0

    def kept(blocks: int) -> dict[str, int]:
        if again:
            inputs = width * batch * config.max_seq_length * albert.hidden_size
            return {INPUTS: blocks * inputs}
        return {part: blocks * each for part, each in block.items()}

    def moment(gradients: int, activations: dict[str, int], working: int) -> dict[str, Any]:
        parts = {
            "gradients": head_gradients + gradients,
            "activations": {**activations, **of_generator},
        }
        return {"copies": copies, **parts, "working": working}

    # The heads: all blocks are kept.
    turns = albert.num_hidden_layers - 1
    moments = [moment(0, {**kept(turns if config.layer_loop else full), **last_block}, logits)]
    working = _measure_working(config, batch)
    if again:  # 32 random bits each of the largest mask; without it they are gone by then
        working += 4 * max(_count_masks(config, batch * config.max_seq_length).values())
    if config.layer_loop:  # all inputs in one array, each gradient added to one sum
        turn = albert.inner_group_num  # blocks that are computed again together
        gradients = 4 * turn * (attention + ffn) + width * ffn // 2
        return [*moments, moment(gradients, kept(turns), working + turn * _sum_parts(block))]
    for j in range(full):  # blocks 0 to j are still kept, the others have left gradients
        gradients = (full - j) * (attention + ffn) * width
        block_again = _sum_parts(block) if again else 0
        moments.append(moment(gradients, kept(j + 1), working + block_again))
    return moments


def _measure_kept(
    config: PretrainConfig, batch: int, rows: int, *, is_windowed: bool = False
) -> dict[str, int]:
    """Returns the bytes, by part, that a block which computes `rows` of each sequence keeps."""
    albert, length = config.albert, config.max_seq_length
    hidden, tokens, some = albert.hidden_size, batch * length, batch * rows
    masks = _count_masks(config, some, is_windowed=is_windowed)
    elements = {
        # Keys and values; queries, context and the sum.
        costs.ATTENTION: hidden * (2 * tokens + 3 * some),
        PROBABILITIES: 0 if is_windowed else some * albert.num_attention_heads * length,
        costs.FFN: some * (albert.intermediate_size + hidden),
    }
    return {part: costs.bytes_per_number(config) * x + masks[part] for part, x in elements.items()}


def _measure_working(config: PretrainConfig, batch: int) -> int:
    """Returns the bytes of gradients within a block: in its feed-forward part, or its attention.

    By then what the feed-forward part kept is gone. Which arrays take the place of which is the
    compiler's business: of several readings this is the one that the compiled models agree with.
    """
    albert, length = config.albert, config.max_seq_length
    hidden, inner, heads = albert.hidden_size, albert.intermediate_size, albert.num_attention_heads
    ffn = inner + 4 * hidden
    keys = length
    if costs.count_windowed(config) >= albert.num_blocks - 1:
        keys = costs.WINDOWS_SEEN * albert.attention_window
    # Of probabilities; of queries, keys, values and context.
    attention = heads * keys + 4 * hidden - (inner + hidden)
    return costs.bytes_per_number(config) * batch * length * max(ffn, attention)


def _count_masks(
    config: PretrainConfig, tokens: int, *, is_windowed: bool = False
) -> dict[str, int]:
    """Counts the elements of a block for `tokens` that dropout sees, by part."""
    albert = config.albert
    hidden = tokens * albert.hidden_size if albert.hidden_dropout_prob else 0
    probabilities = tokens * albert.num_attention_heads * config.max_seq_length
    probabilities *= bool(albert.attention_probs_dropout_prob) and not is_windowed
    return {costs.ATTENTION: hidden, PROBABILITIES: probabilities, costs.FFN: hidden}
