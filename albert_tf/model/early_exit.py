"""Early exit: a row is done when several consecutive heads agree. For shapes see `layers`.

Zhou et al. 2020, "BERT Loses Patience" (PABEE). In addition, finished rows leave their batch, and
the answer for a row does not depend on other rows.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.errors import require
from albert_tf.model import token_layout, weight_names, xla
from albert_tf.model.albert_model import Albert, Batch
from albert_tf.records import model_inputs

UNFIT = (
    "Keras's fit does not train early-exit heads: use bin/run_finetuning or LoadedModel.fit, "
    "or load the model with early_exit=False."
)
OUTPUTS = ("logits", "num_layers")  # [B, C]; [B], the layers that ran for a row


class _Rows(NamedTuple):
    """The texts or questions that are not done; a question with C choices has C sequences.

    Attributes:
        x: [T, D], the hidden states of the tokens.
        places: [B * C, S], the row of `x` at each place.
        mask: [B * C, S], 1 for tokens.
        numbers: [B], their rows in the batch.
        agreed: [B], how many consecutive heads agree; -1 before the first layer.
        logits: [B, C], from the last head.
    """

    x: tf.Tensor
    places: tf.Tensor
    mask: tf.Tensor
    numbers: tf.Tensor
    agreed: tf.Tensor
    logits: tf.Tensor


def list_weights(
    config: AlbertConfig, weights: Mapping[str, Any], source: str
) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the exit heads for a checkpoint; `UserError` if it has none."""
    heads = weight_names.list_shapes(config, weight_names.EXITS)
    require(
        not heads.keys().isdisjoint(weights),
        f"{source} was trained without early_exit: leave it out.",
    )
    rows = len(weights.get("output_bias", ())) * (config.num_hidden_layers - 1)
    return {name: (rows, *shape[1:]) for name, shape in heads.items()}


def apply(
    albert: Albert, head: Any, tokens: Batch, *, training: bool, seed: Any, **choices: Any
) -> dict[str, tf.Tensor]:
    """With patience, returns the answers where rows exit, and the layers used; else all logits.

    If layers cannot be a loop, all of them run, and the answers are the same.
    """
    config = albert.config
    patience = None if training else head.sizes.exit_patience
    if patience and is_possible(config):
        return run(albert, head, tokens)
    with xla.trace_options(loops_layers=False):
        outputs = albert(tokens, **choices, training=training, seed=seed)
    step = config.inner_group_num
    logits = tf.stack(
        [
            score_layer(head, albert.pool(x[:, 0]), layer, seed if training else None)
            for layer, x in enumerate(outputs["encoder_outputs"][step - 1 :: step])
        ],
        1,
    )  # [B, L, C]
    if patience:
        return dict(zip(OUTPUTS, leave(head, logits, patience), strict=True))
    return {"logits": logits[:, -1], "exit_logits": logits}


def score_layer(head: Any, pooled: tf.Tensor, layer: Any, seed: Any = None) -> tf.Tensor:
    """[B, D] after a layer, counted from 0 -> [B, C] from the head there.

    All heads are one product, so that in a loop the matrix is the same in each step.
    """
    pooled = head.drop(pooled, seed, layer)
    last = head.scores(pooled)[:, tf.newaxis]
    rows = [-1, head.config.num_hidden_layers - 1, last.shape[-1]]
    exits = tf.reshape(head.exits.scores(pooled), rows)
    return head.arrange(tf.concat([exits, last], 1)[:, layer])


def judge(head: Any, before, logits, agreed, layer, patience: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns [B], how many consecutive heads agree, and whether a row exits after this layer.

    A row exits when `patience` consecutive heads agree with the one before. `agreed` is the
    number up to the previous layer, -1 before the first; `before` are the previous logits,
    [B, C], arbitrary before the first layer.
    """
    agreed = tf.where(head.agree(before, logits), agreed + 1, 0)
    return agreed, (agreed >= patience) | (layer + 1 == head.config.num_hidden_layers)


def leave(head: Any, logits: tf.Tensor, patience: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns [B, C], the logits at the layer where a row exits, and [B], the layers it used.

    [B, L, C] are the logits of all layers.
    """
    agreed = tf.fill(tf.shape(logits)[:1], -1)
    used = tf.zeros_like(agreed)
    for layer in range(head.config.num_hidden_layers):
        before = logits[:, layer - 1]
        agreed, leaves = judge(head, before, logits[:, layer], agreed, layer, patience)
        used = tf.where(leaves & (used == 0), layer + 1, used)
    return tf.gather(logits, used - 1, batch_dims=1), used


def is_possible(config: AlbertConfig) -> bool:
    """Whether layers can be a loop that ends early: they share weights, and are not unrolled."""
    shares = config.num_groups("attention") == config.num_groups("ffn") == 1
    loops = xla.loops_layers() or tf.executing_eagerly()
    return shares and loops and xla.has_dynamic_shapes()


def run(albert: Albert, head: Any, tokens: Batch) -> dict[str, tf.Tensor]:
    """Returns `OUTPUTS`; `head` is a `task_heads.Classifier` with exits."""
    batch = albert.read_inputs(tokens)
    ids, mask, segments = (batch[name] for name in model_inputs.TOKENS)
    num_heads = albert.config.num_attention_heads
    layout = token_layout.make_layout(mask, num_heads, training=False)
    x = albert.embeddings(ids, segments, layout=layout, training=False, seed=None)
    choices = head.classes if head.takes_choices else 1
    classes = head.classes if choices > 1 else head.output_bias.shape[0]
    size = tf.shape(mask)[0] // choices
    run_until_done = _make_run_until_done(albert, head)

    def run_layers(layer, rows, logits, used):
        """Runs layers until a row is done, and removes finished rows from the batch."""
        layout = token_layout.make_layout(rows.mask, num_heads, training=False)
        layer, x, agreed, answer, done = run_until_done(layer, rows, layout)
        leaving = tf.boolean_mask(rows.numbers, done)[:, tf.newaxis]
        logits = tf.tensor_scatter_nd_update(logits, leaving, tf.boolean_mask(answer, done))
        used = tf.tensor_scatter_nd_update(used, leaving, tf.fill(tf.shape(leaving)[:1], layer))
        stays = tf.repeat(~done, choices) if choices > 1 else ~done
        places = tf.reshape(layout.rows, tf.shape(rows.mask))
        rows = _Rows(
            x=x,
            places=tf.boolean_mask(places, stays),
            mask=tf.boolean_mask(rows.mask, stays),
            numbers=tf.boolean_mask(rows.numbers, ~done),
            agreed=tf.boolean_mask(agreed, ~done),
            logits=tf.boolean_mask(answer, ~done),
        )
        return layer, rows, logits, used

    numbers, zeros = tf.range(size), tf.zeros([size], tf.int32)
    logits = tf.ensure_shape(tf.zeros([size, classes]), [None, classes])
    places = tf.reshape(layout.rows, tf.shape(mask))
    rows = _Rows(albert.encoder.project(x), places, mask, numbers, zeros - 1, logits)
    one, two = tf.TensorShape([None]), tf.TensorShape([None, None])
    hidden = tf.TensorShape([None, albert.config.hidden_size])
    shapes = _Rows(hidden, two, two, one, one, logits.shape)
    state = tf.while_loop(
        lambda layer, rows, *_: tf.size(rows.numbers) > 0,
        run_layers,
        (0, rows, logits, zeros),
        (tf.TensorShape([]), shapes, logits.shape, one),
        parallel_iterations=1,
    )
    return dict(zip(OUTPUTS, state[2:], strict=True))


def _make_run_until_done(albert: Albert, head: Any) -> Callable[..., tuple[tf.Tensor, ...]]:
    """Returns a function that runs layers until a row is done.

    Its arguments are the number of the first layer, the rows and their layout. It returns the
    number of the next layer, the hidden states, agreements and logits of the rows, and which are
    done.
    """
    step = albert.encoder.make_step()

    def run_until_done(layer, rows, layout):
        x = tf.gather(rows.x, tf.gather(tf.reshape(rows.places, [-1]), layout.indices))
        first = tf.zeros([tf.shape(rows.mask)[0], 1], tf.int32)
        first_rows = layout.find_rows(first)

        def run_layer(layer, x, agreed, before, done):
            x = tf.ensure_shape(step(x, layout=layout, number=layer), x.shape)
            vectors = layout.restore_queries(tf.gather(x, tf.reshape(first_rows, [-1])), first)
            answer = score_layer(head, albert.pool(vectors[:, 0]), layer)
            answer = tf.ensure_shape(answer, before.shape)
            patience = head.sizes.exit_patience
            agreed, done = judge(head, before, answer, agreed, layer, patience)
            return layer + 1, x, agreed, answer, done

        start = (layer, x, rows.agreed, rows.logits, tf.zeros_like(rows.agreed, tf.bool))
        return tf.while_loop(
            lambda *state: ~tf.reduce_any(state[-1]), run_layer, start, parallel_iterations=1
        )

    return run_until_done
