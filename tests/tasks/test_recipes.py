"""The paper's settings, and what a config becomes with the user's changes."""

import pytest
from refusals import one_line

from albert_tf import config_io
from albert_tf.data_prep.task_data.task_dataset import TaskDataset
from albert_tf.kinds import task_table
from albert_tf.tasks import recipes
from albert_tf.tasks.recipes import ConfigOverrides
from albert_tf.train_config import FinetuneConfig

# The paper, appendix A.4: learning rate, batch, dropout, steps, warm-up, length.
PAPER = {
    "cola": (1e-5, 16, 0.0, 5336, 320, 512),
    "sts-b": (2e-5, 16, 0.0, 3598, 214, 512),
    "sst-2": (1e-5, 32, 0.0, 20935, 1256, 512),
    "mnli": (3e-5, 128, 0.0, 10000, 1000, 512),
    "ax": (3e-5, 128, 0.0, 10000, 1000, 512),
    "qnli": (1e-5, 32, 0.0, 33112, 1986, 512),
    "qqp": (5e-5, 128, 0.1, 14000, 1000, 512),
    "rte": (3e-5, 32, 0.1, 800, 200, 512),
    "mrpc": (2e-5, 32, 0.0, 800, 200, 512),
    "wnli": (2e-5, 16, 0.1, 2000, 250, 512),
    "squad1": (5e-5, 48, 0.0, 3649, 365, 384),
    "squad2": (3e-5, 48, 0.0, 8144, 814, 512),
    "race": (2e-5, 32, 0.1, 12000, 1000, 512),
}


def load_row(name, task):
    config = config_io.load(FinetuneConfig, None, (), recipes.read_recipe(name, task))
    albert = config.albert
    assert albert.hidden_dropout_prob == albert.attention_probs_dropout_prob
    assert (albert.classifier_dropout_prob, config.optimizer) == (0.1, "adamw")
    return (
        *(config.learning_rate, config.train_batch_size, albert.hidden_dropout_prob),
        *(config.num_train_steps, config.num_warmup_steps, config.max_seq_length),
    )


def test_the_rows_are_the_papers():
    assert set(PAPER) == set(task_table.TASKS)
    for task, row in PAPER.items():
        assert load_row("v1", task) == row
        rate = 1e-5 if task == "race" else row[0]
        assert load_row("v2", task) == (rate, row[1], 0.0, *row[3:])
        assert recipes.read_recipe(None, task) == recipes.read_recipe("v2", task)
    assert recipes.read_recipe(None, "own") == {}


LABELS = ("a", "b", "c", "never")


@pytest.mark.parametrize(
    ("kind", "labels", "expected"),
    [
        # scikit-learn 1.7: compute_class_weight("balanced", ...) of the three that are there.
        ("classification", [*"aaaaaabbc"], (0.5, 1.5, 3.0, 1.0)),
        # Yes and no of a label count the same.
        ("multi_label", [[*x] for x in ("a", "ab", "ac", "abc", "ab")], (1.0, 2 / 3, 3 / 2, 1.0)),
    ],
)
def test_balanced_weights_count_classes_the_same(kind, labels, expected):
    rows = [{"id": str(number), "label": label} for number, label in enumerate(labels)]
    manifest = {"files": {"records.tfrecord": len(rows)}, "settings": {}}
    train = TaskDataset("folder", manifest, task_table.make_own(kind, LABELS), rows)
    config = recipes.complete(FinetuneConfig(class_weights="balanced"), train)
    assert config.class_weights == pytest.approx(expected)


@pytest.mark.parametrize(
    ("task", "recipe", "overrides", "message"),
    [
        ("rte", "v3", (), r"no recipe 'v3'\. Use one of v1, v2, simcse, vectors, none\."),
        ("rte", "simcse", (), r"recipe simcse has no task 'rte'\. Use --recipe=none"),
        ("rte", "v1", ("albert=huge",), "unknown preset 'huge'"),
        ("rte", "v1", ("albert=3",), "albert must be an object, not 3"),
        ("rte", "v1", ("seed",), "'seed' does not have the form key=value"),
        ("rte", "v1", ("max_seq_length=513",), "max_seq_length 513 is more than albert"),
        ("squad1", "v1", ("doc_stride=340",), "doc_stride=340: windows of max_seq_length=384"),
        ("squad1", "v1", ("early_exit=true",), "early_exit is for kinds with one answer per text"),
        ("rte", "none", ("class_weights=[1.0, 2.0, 3.0]",), "3 numbers, the task 2 labels .entail"),
        ("sts-b", "none", ("class_weights=balanced",), "for classification and multi_label, not f"),
    ],
)
def test_what_does_not_fit_is_refused(task, recipe, overrides, message):
    with one_line(message):
        changes = ConfigOverrides(recipe, overrides=overrides)
        recipes.resolve_config(task_table.get(task), None, changes)
