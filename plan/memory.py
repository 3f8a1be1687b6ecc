"""The memory that an update needs on one device, by formula.

What XLA keeps of a block for its backward pass is, as compiled modules for TPUs show, what products
give, the probabilities, and the sums before LayerNorm. LayerNorm, GELU and casts are computed again
within the products that read them. So a block keeps, in the computing type:

    queries, keys, values 3 D, context D, both sums before LayerNorm 2 D, intermediate I: a token
    probabilities of attention: N S S a sequence

The gradients of a weight that layers share are kept layer by layer, and added up at the end. Not
counted: the program, and what sides below 128, such as short sequences, are filled up to.
"""

import dataclasses

from albert_tf.config import PretrainConfig
from plan import costs


@dataclasses.dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes in use at the same time when the most are in use.

    Attributes:
        weights: float32, with those that no gradient reaches.
        optimizer: two moments of each weight that is trained.
        batch: what comes from the host.
        copies: weights of a block in the computing type.
        gradients: of weights, at that time.
        activations: kept for the backward pass.
        working: of the block that is being computed.
    """

    weights: int
    optimizer: int
    batch: int
    copies: int
    gradients: int
    activations: int
    working: int

    @property
    def total(self) -> int:
        return sum(dataclasses.astuple(self))


def needed(settings: PretrainConfig, batch: int) -> Memory:
    """Of one device for `batch` sequences, program and runtime aside."""
    accumulated = settings.num_micro_batches > 1
    state = {
        "weights": 4 * sum(costs.parameters(settings.albert).values()),
        "optimizer": 8 * costs.trained_parameters(settings),
        "batch": 4 * batch * (3 * settings.max_seq_length + 3 * settings.max_predictions_per_seq),
    }
    rows = batch // settings.num_micro_batches
    sums = 4 * costs.trained_parameters(settings) if accumulated else 0
    moments = [*_backward(settings, rows), _at_the_end(settings)]
    at_peak = max(moments, key=lambda moment: sum(moment.values()))
    at_peak["gradients"] += sums
    return Memory(**state, **at_peak)


def _backward(settings: PretrainConfig, batch: int) -> list[dict[str, int]]:
    """What is in use besides the state when the backward pass has come to each block."""
    width = _width(settings)
    config, size = settings.albert, settings.albert.embedding_size
    full = costs.depth(config) - 1
    block = _kept(settings, batch)
    again = costs.recomputes(settings)
    kept = width * batch * settings.max_seq_length * config.hidden_size if again else block
    of_last = 0 if again else _kept_by_last(settings, batch)
    matrices = _matrices(settings)
    copies = matrices * width if width == 2 else 0
    of_heads = 4 * config.vocab_size * size  # of the word embeddings
    logits = width * batch * settings.max_predictions_per_seq * config.vocab_size
    moments = [
        # The heads: all blocks are kept.
        {
            "copies": copies,
            "gradients": of_heads,
            "activations": full * kept + of_last,
            "working": logits,
        }
    ]
    for j in range(full):  # blocks 0 to j are still kept, the others have left gradients
        gradients = of_heads + (full - j) * matrices * width
        activations = (j + 1) * kept
        if costs.loops(settings):  # all inputs in one array, each gradient added to one sum
            largest = config.hidden_size * config.intermediate_size
            gradients = of_heads + 4 * matrices + width * largest
            activations = full * kept
        working = _working(settings, batch) + (block if again else 0)
        moments.append(
            {
                "copies": copies,
                "gradients": gradients,
                "activations": activations,
                "working": working,
            }
        )
    return moments


def _at_the_end(settings: PretrainConfig) -> dict[str, int]:
    """When all gradients are summed over the replicas, and nothing else is left."""
    gradients = costs.all_reduce_bytes(settings)
    return {"copies": 0, "gradients": gradients, "activations": 0, "working": 0}


def _width(settings: PretrainConfig) -> int:
    return 2 if settings.dtype == "mixed_bfloat16" else 4


def _kept(settings: PretrainConfig, batch: int) -> int:
    """Bytes that a block of all tokens keeps; dropout keeps probabilities before and after."""
    config, length = settings.albert, settings.max_seq_length
    tokens = batch * length
    of_tokens = tokens * (config.intermediate_size + 6 * config.hidden_size)
    copies = 2 if config.attention_probs_dropout_prob else 1
    of_pairs = copies * tokens * config.num_attention_heads * length
    return _width(settings) * (of_tokens + of_pairs)


def _kept_by_last(settings: PretrainConfig, batch: int) -> int:
    """The same of the last block, which computes the rows that are read alone."""
    config, length = settings.albert, settings.max_seq_length
    tokens, some = batch * length, batch * (settings.max_predictions_per_seq + 1)
    of_tokens = 2 * tokens * config.hidden_size
    of_rows = some * (config.intermediate_size + 4 * config.hidden_size)
    of_pairs = some * config.num_attention_heads * length
    return _width(settings) * (of_tokens + of_rows + of_pairs)


def _working(settings: PretrainConfig, batch: int) -> int:
    """Bytes of the gradients within a block: at its feed-forward part, or at its attention."""
    config, length = settings.albert, settings.max_seq_length
    tokens = batch * length
    ffn = tokens * (2 * config.intermediate_size + 6 * config.hidden_size)
    return _width(settings) * ffn


def _matrices(settings: PretrainConfig) -> int:
    """Elements of the matrices of a block."""
    config = settings.albert
    return 4 * config.hidden_size**2 + 2 * config.hidden_size * config.intermediate_size
