"""The update is the same however a batch is cut up, and on whatever it runs."""

from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
import tiny_run
from replicas import two_replicas
from tensorflow.python.autograph.core import ag_ctx

from albert_tf.model import losses, weight_names
from albert_tf.objectives.all_objectives import OBJECTIVES
from albert_tf.train import devices, eval_step, loop, train_step

pytestmark = pytest.mark.usefixtures("eagerly")
BATCH, UPDATES = 8, 3
ONE = tf.distribute.get_strategy


def train(strategy, *, num_branches=1, **options):
    """Totals of the last loop, all weights after it, and the optimizer's moments."""
    options = {"jit_compile": False, "max_grad_norm": 0.1, **options}
    state = tiny_run.train_state(strategy, **options)
    run_updates = make_run_updates(state, num_branches)
    rows = tf.data.Dataset.from_tensor_slices(tiny_run.examples(BATCH * UPDATES))
    rows = rows.batch(BATCH // strategy.num_replicas_in_sync, drop_remainder=True)
    iterator = iter(strategy.distribute_datasets_from_function(lambda _: rows))
    run_updates(iterator, UPDATES - 1)
    totals = run_updates(iterator, 1)
    weights = [w.numpy() for w in weight_names.weights_by_name(state.model).values()]
    slots = [v.numpy() for _, v in sorted(state.optimizer.slots().items())]
    return totals, weights, slots


def make_run_updates(state, num_branches):
    with mock.patch.object(devices, "choose_num_branches", return_value=num_branches):
        return train_step.make_run_updates(state)


def assert_same(actual, expected, tolerance):
    for x, y in zip(actual, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=tolerance)


@pytest.fixture(scope="module")
def plain(eagerly):
    return train(ONE())


@pytest.mark.usefixtures("in_graphs")
@pytest.mark.parametrize(
    ("make_strategy", "options"),
    [
        (ONE, {"jit_compile": True}),
        (ONE, {"num_branches": 2, "rematerialize": True}),
        (two_replicas, {}),
    ],
)
def test_every_way_to_cut_up_a_batch_gives_the_same_update(plain, make_strategy, options, request):
    if "num_branches" in options:  # test_multi_worker has replicas as users have them
        request.getfixturevalue("as_users")
    totals, weights, slots = train(make_strategy(), num_micro_batches=2, **options)
    assert_same(weights, plain[1], 1e-5)
    assert_same(slots, plain[2], 1e-6)
    assert totals.keys() == plain[0].keys()
    for name, value in plain[0].items():
        assert totals[name] == pytest.approx(value, rel=1e-5), name


def test_an_update_moves_every_weight_but_the_ones_nothing_reaches(plain):
    # Clipped at 0.1 (see `train`), so both norms must be over it for the test above to say so.
    assert plain[0]["gradient_norm"] > 0.2
    network, _ = tiny_run.network(ONE(), tiny_run.albert())
    pairs = zip(weight_names.weights_by_name(network).items(), plain[1], strict=True)
    still = [name for (name, before), after in pairs if np.array_equal(before, after)]
    # A key bias adds the same to all scores of a query: softmax does not see it.
    assert all(name.endswith("key/bias") for name in still)


def test_without_a_sentence_task_what_no_gradient_reaches_stays_as_it_is():
    network, _ = tiny_run.network(ONE(), tiny_run.albert())
    before = weight_names.weights_by_name(network)
    _, weights, slots = train(ONE(), sentence_task="none")
    for (name, weight), after in zip(before.items(), weights, strict=True):
        still = name.startswith(("bert/pooler", "cls/seq_relationship"))
        if not name.endswith("key/bias"):  # softmax does not see what is added to all its inputs
            assert np.array_equal(weight, after) == still, name
    assert len(slots) == 2 * (len(weights) - 4)


@pytest.mark.parametrize(
    ("make_strategy", "num_branches", "dropout"),
    [(ONE, 2, 0.0), (ONE, 2, 0.3), (two_replicas, 1, 0.3)],
)
def test_each_part_has_dropout_of_its_own(make_strategy, num_branches, dropout, use_graphs):
    def gradient_norm(times, strategy, num_branches):
        albert = tiny_run.albert(hidden_dropout_prob=dropout)
        state = tiny_run.train_state(strategy, albert=albert)
        run_updates = make_run_updates(state, num_branches)
        rows = tf.data.Dataset.from_tensor_slices(tiny_run.examples(4)).batch(4).repeat(times)
        size = 4 * times // strategy.num_replicas_in_sync
        rows = rows.unbatch().batch(size)
        batches = strategy.distribute_datasets_from_function(lambda _: rows)
        return run_updates(iter(batches), 1)["gradient_norm"]

    # With equal masks the second half would say again what the first one says.
    once = gradient_norm(1, ONE(), 1)
    if make_strategy is two_replicas:
        use_graphs()
    difference = abs(once - gradient_norm(2, make_strategy(), num_branches))
    assert (difference > 1e-3) == (dropout > 0), difference


@pytest.mark.usefixtures("in_graphs")
def test_a_tiny_model_learns_64_examples_by_heart_and_is_traced_without_autograph(monkeypatch):
    statuses = []

    def note_status(*args, mean_loss=losses.mean_loss):
        statuses.append(ag_ctx.control_status_ctx().status)
        return mean_loss(*args)

    monkeypatch.setattr(losses, "mean_loss", note_status)
    albert = tiny_run.albert(hidden_size=32, embedding_size=24)
    state = tiny_run.train_state(ONE(), albert=albert, num_train_steps=400)
    data = tf.data.Dataset.from_tensor_slices(tiny_run.examples(64))
    make_run_updates(state, 2)(iter(data.batch(64).repeat()), 400)
    assert statuses and ag_ctx.Status.ENABLED not in statuses
    evaluate = eval_step.make_evaluate(ONE(), state.model, state.objective.loss, num_branches=1)
    metrics = evaluate(data.batch(16))
    assert metrics["masked_lm_accuracy"] > 0.9
    assert metrics["sentence_order_accuracy"] > 0.95


def test_evaluation_counts_real_examples_alone():
    network, _ = tiny_run.network(ONE(), tiny_run.albert())
    loss = OBJECTIVES["sop"].loss
    evaluate = eval_step.make_evaluate(ONE(), network, loss, num_branches=2)
    seven = tiny_run.examples(7)
    copies = {name: np.concatenate([v, v[:1]]) for name, v in seven.items()}
    copies["is_real_example"] = np.float32([1] * 7 + [0])
    padded = evaluate(tf.data.Dataset.from_tensor_slices(copies).batch(4))
    assert padded["num_sentence_order"] == 7
    assert padded["num_masked_lm"] == seven["masked_lm_weights"].sum()
    outputs = network({name: tf.constant(v) for name, v in seven.items()})
    guesses = outputs["sentence_order_logits"].numpy().argmax(-1)
    accuracy = (guesses == seven["next_sentence_labels"][:, 0]).mean()
    assert padded["sentence_order_accuracy"] == pytest.approx(accuracy)


@pytest.mark.parametrize(
    ("evaluates", "steps"), [(True, [3, 4, 6, 8, 9, 11]), (False, [4, 6, 8, 11])]
)
def test_loops_end_at_the_multiples_of_all_intervals(evaluates, steps):
    intervals = {"steps_per_loop": 4, "save_checkpoints_steps": 6, "eval_steps": 3}
    config, ends = tiny_run.settings(num_train_steps=11, **intervals), [0]
    while ends[-1] < 11:
        ends.append(loop.find_end(config, ends[-1], evaluates=evaluates))
    assert ends[1:] == steps
