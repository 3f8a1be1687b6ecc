"""What an update costs, by formula: parameters, products and bytes, from the config alone.

Letters as in `albert_tf.model.layers`; R = P + 1 are the rows of a sequence that the last
block computes.
Products are all but 1 or 2 % of the operations; the rest is not counted.
"""

import collections
import dataclasses
import math
from collections.abc import Iterable

from albert_tf.config import AlbertConfig
from albert_tf.train_config import PretrainConfig

EMBEDDINGS, ATTENTION, SCORES, FFN = "embeddings", "attention", "attention scores", "feed-forward"
MASKED_LM, SENTENCE = "masked LM head", "pooler and sentence head"
# A side of a product that streams through the matrix unit is filled up to this.
ROWS_OF_A_TILE = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Product:
    """[rows, inner] x [inner, columns], and the products of its gradients.

    Attributes:
        part: of the model.
        rows, inner, columns: its sides.
        times: how often in an update of one replica.
        gradients: how many products the backward pass has for it, of as many operations each.
        in_block: whether it is computed again where blocks are recomputed.
    """

    part: str
    rows: int
    inner: int
    columns: int
    times: int = 1
    gradients: int = 2
    in_block: bool = True

    @property
    def flops(self) -> float:
        return 2.0 * self.times * self.rows * self.inner * self.columns

    @property
    def elements(self) -> int:
        """Of what is read and written."""
        sides = self.rows * self.inner + self.inner * self.columns + self.rows * self.columns
        return self.times * sides


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flops:
    """Operations of an update of one replica, a multiplication and an addition counted as two."""

    forward: float
    backward: float
    recomputed: float

    @property
    def model(self) -> float:
        """What must be computed, however it is."""
        return self.forward + self.backward

    @property
    def total(self) -> float:
        return self.forward + self.backward + self.recomputed


def parameters(config: AlbertConfig) -> dict[str, int]:
    """Parameters by part, of the model that is pre-trained."""
    size, hidden, inner = config.embedding_size, config.hidden_size, config.intermediate_size
    rows = config.vocab_size + config.type_vocab_size + config.max_position_embeddings
    mapping = (size + 1) * hidden if size != hidden else 0
    attentions, ffns = num_weight_sets(config)
    return {
        EMBEDDINGS: (rows + 2) * size + mapping,
        ATTENTION: attentions * (4 * (hidden + 1) * hidden + 2 * hidden),
        FFN: ffns * ((hidden + 1) * inner + (inner + 1) * hidden + 2 * hidden),
        SENTENCE: (hidden + 1) * hidden + 2 * (hidden + 1),
        MASKED_LM: (hidden + 1) * size + 2 * size + config.vocab_size,
    }


def num_weight_sets(config: AlbertConfig) -> tuple[int, int]:
    """How many attentions and feed-forward parts have weights of their own."""
    inner = config.inner_group_num
    return inner * config.num_groups("attention"), inner * config.num_groups("ffn")


def trained_parameters(settings: PretrainConfig) -> int:
    """Those that have a gradient: without a sentence task its head and the pooler have none."""
    found = parameters(settings.albert)
    return sum(found.values()) - (found[SENTENCE] if settings.sentence_task == "none" else 0)


def products(settings: PretrainConfig, batch: int) -> list[Product]:
    """All products of the forward pass of `batch` sequences."""
    config, length = settings.albert, settings.max_seq_length
    size, hidden = config.embedding_size, config.hidden_size
    tokens, chosen = batch * length, batch * settings.max_predictions_per_seq
    outside = [
        Product(
            part=EMBEDDINGS, rows=tokens, inner=config.type_vocab_size, columns=size, gradients=1
        ),
        Product(part=MASKED_LM, rows=chosen, inner=hidden, columns=size),
        Product(part=MASKED_LM, rows=chosen, inner=size, columns=config.vocab_size),
    ]
    if size != hidden:
        outside.append(Product(part=EMBEDDINGS, rows=tokens, inner=size, columns=hidden))
    if settings.sentence_task != "none":
        outside += [
            Product(part=SENTENCE, rows=batch, inner=hidden, columns=hidden),
            Product(part=SENTENCE, rows=batch, inner=hidden, columns=2),
        ]
    outside = [dataclasses.replace(product, in_block=False) for product in outside]
    rows = settings.max_predictions_per_seq + 1
    return [
        *outside,
        *_block(settings, batch, length, config.num_blocks - 1),
        *_block(settings, batch, rows, 1),
    ]


def _block(settings: PretrainConfig, batch: int, rows: int, times: int) -> list[Product]:
    """The products of a block that computes `rows` of each sequence, `times` over."""
    config, length = settings.albert, settings.max_seq_length
    hidden, heads = config.hidden_size, config.num_attention_heads
    inner, head = config.intermediate_size, hidden // heads
    tokens, some = batch * length, batch * rows

    def product(part: str, rows: int, inner: int, columns: int, each: int = 1) -> Product:
        return Product(part=part, rows=rows, inner=inner, columns=columns, times=times * each)

    return [
        product(ATTENTION, some, hidden, hidden),  # queries
        product(ATTENTION, tokens, hidden, 2 * hidden),  # keys and values
        product(SCORES, rows, head, length, batch * heads),
        product(SCORES, rows, length, head, batch * heads),
        product(ATTENTION, some, hidden, hidden),
        product(FFN, some, hidden, inner),
        product(FFN, some, inner, hidden),
    ]


def flops(settings: PretrainConfig, batch: int) -> Flops:
    """Of an update of one replica with `batch` sequences, cut into micro-batches or not."""
    return Flops(**_flops(products(settings, batch), recomputes(settings)))


def flops_by_part(settings: PretrainConfig, batch: int) -> dict[str, Flops]:
    """The same by part."""
    by_part = collections.defaultdict(list)
    for product in products(settings, batch):
        by_part[product.part].append(product)
    again = recomputes(settings)
    return {part: Flops(**_flops(found, again)) for part, found in by_part.items()}


def _flops(found: Iterable[Product], again: bool) -> dict[str, float]:
    found = list(found)
    return {
        "forward": sum(x.flops for x in found),
        "backward": sum(x.flops * x.gradients for x in found),
        "recomputed": sum(x.flops for x in found if x.in_block and again),
    }


def recomputes(settings: PretrainConfig) -> bool:
    """Whether the backward pass computes the blocks again."""
    return settings.rematerialize or settings.layer_loop


def width(settings: PretrainConfig) -> int:
    """Bytes of a number in the type that products are computed in."""
    return 2 if settings.dtype == "mixed_bfloat16" else 4


def intensity(settings: PretrainConfig, batch: int) -> float:
    """Operations for each byte that products read and write, forward, in the type of the config."""
    found = products(settings, batch)
    return sum(x.flops for x in found) / (width(settings) * sum(x.elements for x in found))


def fill(settings: PretrainConfig, batch: int, unit: int) -> float:
    """The share of a matrix unit of `unit` x `unit` that the products of an update can keep busy.

    The side that is added up over, and one other, are filled up to multiples of `unit`; we take it
    that the compiler chooses the better one. An upper bound: waiting for memory is not counted.
    """
    useful = padded = 0.0
    for x in products(settings, batch):
        again = x.in_block and recomputes(settings)
        # The product itself, as often as it is computed, and the gradients of its right and left
        # side; where there is one gradient, it is the right side's, the weights'.
        sides = [(x.rows, x.inner, x.columns)] * (2 if again else 1)
        sides += [(x.inner, x.rows, x.columns), (x.rows, x.columns, x.inner)][: x.gradients]
        for rows, inner, columns in sides:
            useful += x.times * rows * inner * columns
            best = min(
                _up(rows, unit) * _up(columns, ROWS_OF_A_TILE),
                _up(rows, ROWS_OF_A_TILE) * _up(columns, unit),
            )
            padded += x.times * _up(inner, unit) * best
    return useful / padded


def _up(size: int, unit: int) -> int:
    return math.ceil(size / unit) * unit


def all_reduce_bytes(settings: PretrainConfig) -> int:
    """The gradients, float32, that each replica sums with the others in an update."""
    return 4 * trained_parameters(settings)
