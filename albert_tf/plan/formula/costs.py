"""Parameters, operations and bytes of an update, by formula from the config.

Letters as in `albert_tf.model.layers`; R = P + 1 is the number of rows of a sequence that the last
block computes; where a head reads all tokens it is S. Only matrix products are counted: 98 to 99 %
of the operations.
"""

import collections
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from albert_tf.config import SHORT_WINDOWS, AlbertConfig
from albert_tf.train_config import MASKED, PHONEMES, SHARED, PretrainConfig

EMBEDDINGS, ATTENTION, SCORES, FFN = "embeddings", "attention", "attention scores", "feed-forward"
MASKED_LM, SENTENCE, WORDS = "masked LM head", "pooler and sentence head", "head of words"
GENERATOR, DETECTION = "generator", "head of replaced tokens"
# With an attention window tokens are compared with the first window and the three around them; the
# first window with all.
WINDOWS_SEEN = 5


@dataclasses.dataclass(frozen=True)
class Product:
    """[rows, inner] x [inner, columns], and the products of its gradients.

    Attributes:
        times: how often in an update of one replica.
        gradients: how many products the backward pass has for it, of as many operations each.
        in_block: whether it is computed again where blocks are recomputed.
        always_again: whether it is computed again anyway.
    """

    part: str
    rows: int
    inner: int
    columns: int
    times: int = 1
    gradients: int = 2
    in_block: bool = True
    always_again: bool = False

    @property
    def flops(self) -> float:
        return 2.0 * self.times * self.rows * self.inner * self.columns


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flops:
    """Operations of an update of one replica, a multiplication and an addition counted as two."""

    forward: float
    backward: float
    recomputed: float

    @property
    def model(self) -> float:
        return self.forward + self.backward

    @property
    def total(self) -> float:
        return self.model + self.recomputed


def count_words(config: PretrainConfig) -> int:
    """Returns the words behind phonemes that the model tells apart; 0 of other tasks."""
    return config.num_words if config.sentence_task == PHONEMES else 0


def count_last_rows(config: PretrainConfig) -> int:
    """Returns the rows of a sequence that the last block computes: all if a head reads all."""
    reads_all = count_words(config) or config.token_task != MASKED
    return config.max_seq_length if reads_all else config.max_predictions_per_seq + 1


def count_windowed(config: PretrainConfig) -> int:
    """Returns how many blocks attend to an attention window: not the last one for some rows."""
    albert, length = config.albert, config.max_seq_length
    if not 0 < SHORT_WINDOWS * albert.attention_window < length:
        return 0
    layers = {*range(albert.num_hidden_layers)} - {*albert.full_attention_layers}
    is_last = albert.num_hidden_layers - 1 in layers and count_last_rows(config) < length
    return len(layers) * albert.inner_group_num - is_last


def count_parameters(albert: AlbertConfig, num_words: int = 0) -> dict[str, int]:
    """Returns {part: parameters} of the model that is pre-trained."""
    size, hidden, inner = albert.embedding_size, albert.hidden_size, albert.intermediate_size
    rows = albert.vocab_size + albert.type_vocab_size + albert.max_position_embeddings
    mapping = (size + 1) * hidden if size != hidden else 0
    attentions, ffns = num_weight_sets(albert)
    added = 2 * albert.depth_lora_rank * albert.num_hidden_layers
    return {
        EMBEDDINGS: (rows + 2) * size + mapping,
        ATTENTION: attentions * (4 * (hidden + 1) * hidden + (2 + 4 * added) * hidden),
        FFN: ffns * ((hidden + 1 + added) * inner + (inner + 3 + added) * hidden),
        SENTENCE: (hidden + 1) * hidden + 2 * (hidden + 1),
        MASKED_LM: (hidden + 1) * size + 2 * size + albert.vocab_size,
        **({WORDS: num_words * (hidden + 1)} if num_words else {}),
    }


def count_model_parameters(config: PretrainConfig) -> dict[str, int]:
    """Returns {part: parameters} of the model of a run, with what training alone needs."""
    parts = count_parameters(config.albert, count_words(config))
    if config.token_task == MASKED:
        return parts
    small, hidden = config.generator.albert, config.albert.hidden_size
    rows = small.vocab_size + small.type_vocab_size + small.max_position_embeddings + 2
    shared = rows * small.embedding_size if config.generator_embeddings == SHARED else 0
    parts[GENERATOR] = sum(count_parameters(small).values()) - shared
    parts[DETECTION] = (hidden + 1) * hidden + hidden + 1
    del parts[MASKED_LM]
    return parts


def num_weight_sets(albert: AlbertConfig) -> tuple[int, int]:
    """Returns how many attentions and feed-forward parts have weights of their own."""
    inner = albert.inner_group_num
    return inner * albert.num_groups("attention"), inner * albert.num_groups("ffn")


def count_trained_parameters(config: PretrainConfig) -> int:
    """Counts those with a gradient: without a sentence task its head and the pooler have none."""
    parts = count_model_parameters(config)
    unread = 0 if config.sentence_task in ("sop", "nsp") else parts[SENTENCE]
    if config.token_task != MASKED:
        unread += count_parameters(config.generator.albert)[SENTENCE]
    return sum(parts.values()) - unread


def list_products(config: PretrainConfig, batch: int) -> list[Product]:
    """Returns the products of the forward passes of `batch` sequences.

    Where an update learns from the hardest of them, a pass of all comes first.
    """
    if config.hard_example_share == 1:
        return _list_model_products(config, batch)
    parts = config.num_micro_batches
    number = min(batch, parts * math.ceil(batch * config.hard_example_share / parts))
    first = _list_model_products(config, batch)
    once: dict[str, Any] = {"gradients": 0, "in_block": False, "always_again": False}
    first = [dataclasses.replace(x, **once) for x in first]
    return [*first, *_list_model_products(config, number)]


def _list_model_products(config: PretrainConfig, batch: int) -> list[Product]:
    albert, length = config.albert, config.max_seq_length
    size, hidden = albert.embedding_size, albert.hidden_size
    tokens, chosen = batch * length, batch * config.max_predictions_per_seq
    sides = [(EMBEDDINGS, tokens, albert.type_vocab_size, size)]
    if config.token_task == MASKED:
        sides += [(MASKED_LM, chosen, hidden, size), (MASKED_LM, chosen, size, albert.vocab_size)]
        of_generator = []
    else:
        sides += [(DETECTION, tokens, hidden, hidden), (DETECTION, tokens, hidden, 1)]
        products = _list_model_products(config.generator, batch)
        of_generator = [dataclasses.replace(x, part=GENERATOR) for x in products]
    if size != hidden:
        sides.append((EMBEDDINGS, tokens, size, hidden))
    if config.sentence_task in ("sop", "nsp"):
        sides += [(SENTENCE, batch, hidden, hidden), (SENTENCE, batch, hidden, 2)]
    if words := count_words(config):
        sides.append((WORDS, tokens, hidden, words))
    outside = [Product(*row, in_block=False) for row in sides]
    outside[0] = dataclasses.replace(outside[0], gradients=1)  # one-hot rows need none
    windowed, last_rows = count_windowed(config), count_last_rows(config)
    has_rows = last_rows < length
    others = albert.num_blocks - windowed - has_rows
    return [
        *outside,
        *_list_block_products(config, batch, length, others),
        *_list_block_products(config, batch, length, windowed, is_windowed=True),
        *_list_block_products(config, batch, last_rows, int(has_rows)),
        *of_generator,
    ]


def _list_block_products(
    config: PretrainConfig, batch: int, rows: int, times: int, *, is_windowed: bool = False
) -> list[Product]:
    """Returns the products of a block that computes `rows` of each sequence, `times` over."""
    albert, length = config.albert, config.max_seq_length
    hidden, heads = albert.hidden_size, albert.num_attention_heads
    inner, head = albert.intermediate_size, hidden // heads
    keys = WINDOWS_SEEN * albert.attention_window if is_windowed else length
    tokens, some, maps = batch * length, batch * rows, times * batch * heads
    rank, added = albert.depth_lora_rank, times * config.num_micro_batches
    return [
        Product(ATTENTION, hidden, rank, hidden, 4 * added),  # what a layer adds to the matrices
        Product(FFN, hidden, rank, inner, 2 * added),
        Product(ATTENTION, some, hidden, hidden, times),  # queries
        Product(ATTENTION, tokens, hidden, 2 * hidden, times),  # keys and values
        Product(SCORES, rows, head, keys, maps, always_again=is_windowed),
        Product(SCORES, rows, keys, head, maps, always_again=is_windowed),
        Product(ATTENTION, some, hidden, hidden, times),
        Product(FFN, some, hidden, inner, times),
        Product(FFN, some, inner, hidden, times),
    ]


def count_flops(config: PretrainConfig, batch: int) -> Flops:
    """Counts those of an update of one replica with `batch` sequences, in micro-batches or not."""
    return _sum_flops(list_products(config, batch), recomputes(config))


def count_flops_by_part(config: PretrainConfig, batch: int) -> dict[str, Flops]:
    """Counts the same by part."""
    by_part = collections.defaultdict(list)
    for product in list_products(config, batch):
        by_part[product.part].append(product)
    return {part: _sum_flops(parts, recomputes(config)) for part, parts in by_part.items()}


def _sum_flops(parts: Sequence[Product], again: bool) -> Flops:
    return Flops(
        forward=sum(x.flops for x in parts),
        backward=sum(x.flops * x.gradients for x in parts),
        recomputed=sum(x.flops * ((x.in_block and again) + x.always_again) for x in parts),
    )


def recomputes(config: PretrainConfig) -> bool:
    """Whether the backward pass computes the blocks again."""
    return config.rematerialize or config.layer_loop


def bytes_per_number(config: PretrainConfig) -> int:
    """Returns the bytes of a number in the type that products are computed in."""
    return 2 if config.dtype == "mixed_bfloat16" else 4


def count_all_reduce_bytes(config: PretrainConfig) -> int:
    """Counts the bytes of the float32 gradients that replicas sum in an update."""
    return 4 * count_trained_parameters(config)
