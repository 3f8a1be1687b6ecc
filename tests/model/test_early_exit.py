"""Heads after each layer: their loss, and rows that leave when several agree."""

import numpy as np
import pytest
import tensorflow as tf
import tiny_tasks

from albert_tf.model import task_heads, xla

pytestmark = pytest.mark.usefixtures("as_users")

KINDS = ("classification", "regression", "multiple_choice", "multi_label")
LAYERS = 5


def make(kind, patience, tolerance=0.3, **changes):
    sizes = task_heads.HeadSizes(
        tiny_tasks.CLASSES, early_exit=True, exit_patience=patience, exit_tolerance=tolerance
    )
    changes = {"num_hidden_layers": LAYERS, **changes}
    model = tiny_tasks.make(kind, sizes=sizes, **changes)
    for own, last in zip(model.head.exits.weights, model.head.weights[:2], strict=True):
        copies = np.concatenate([last.numpy()] * (LAYERS - 1))  # heads alike agree now and then
        own.assign(copies + 0.2 * own.numpy())
    return model


def join(*batches):
    return {name: tf.concat([x[name] for x in batches], 0) for name in batches[0]}


def make_batch(kind):
    """Nine rows of other lengths, the last of padding alone."""
    batch = join(*(tiny_tasks.batch(kind, seed) for seed in range(3)))
    batch.pop("label_ids")
    mask = batch["input_mask"].numpy()
    mask[-1] = 0
    return {**batch, "input_mask": tf.constant(mask)}


def trace(model, batch, *, loops):
    @tf.function(autograph=False)
    def run(batch):
        with xla.trace_options(custom_gradients=False, loops_layers=loops):
            return model(batch)

    specs = {name: tf.TensorSpec([None, None], tf.int32, name) for name in batch}
    return run.get_concrete_function(specs)


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "patience", "changes"),
    [
        ("classification", 1, {"inner_group_num": 2}),
        ("classification", 2, {}),
        ("regression", 1, {}),
        ("multi_label", 1, {}),
        ("multiple_choice", 1, {}),
    ],
)
def test_a_row_leaves_when_heads_agree_whoever_is_with_it(kind, patience, changes):
    batch = make_batch(kind)
    model = make(kind, patience, **changes)
    run = trace(model, batch, loops=True)
    looped, unrolled = run(batch), trace(model, batch, loops=False)(batch)
    alone = [run({name: x[k : k + 1] for name, x in batch.items()}) for k in range(9)]
    for name, atol in (("logits", 1e-5), ("num_layers", 0)):
        np.testing.assert_allclose(looped[name], unrolled[name], atol=atol)
        rows = np.concatenate([outputs[name] for outputs in alone])
        np.testing.assert_allclose(looped[name], rows, atol=atol)
    used = {*looped["num_layers"].numpy().tolist()}
    assert len(used) > 1 and min(used) > patience
    none = run({name: x[:0] for name, x in batch.items()})
    assert none["logits"].shape[0] == none["num_layers"].shape[0] == 0
    eager = model({name: x[:2] for name, x in batch.items()})
    np.testing.assert_array_equal(eager["num_layers"], looped["num_layers"][:2])


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_is_weighted_by_depth(kind):
    batch = tiny_tasks.batch(kind)
    outputs = make(kind, None)(batch, training=True, seed=tf.constant([1, 2]))
    loss = tiny_tasks.make_objective(kind)
    per_head = [loss.sums({"logits": outputs["exit_logits"][:, k]}, batch) for k in range(LAYERS)]
    sums = loss.sums(outputs, batch)
    for name, value in sums.items():
        values = [x[name].numpy() for x in per_head]
        weights = [1, 2, 3, 4, 5] if name.endswith("_loss") else [0, 0, 0, 0, 1]
        assert value.numpy() == pytest.approx(np.average(values, weights=weights), rel=1e-5)
    np.testing.assert_array_equal(outputs["logits"], outputs["exit_logits"][:, -1])
