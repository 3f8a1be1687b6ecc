import pytest

from albert_tf import config_io
from albert_tf.errors import UserError
from albert_tf.kinds import task_table
from albert_tf.tasks import recipes
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
    assert albert.classifier_dropout_prob == 0.1
    assert config.optimizer == "adamw"
    return (
        config.learning_rate,
        config.train_batch_size,
        albert.hidden_dropout_prob,
        config.num_train_steps,
        config.num_warmup_steps,
        config.max_seq_length,
    )


@pytest.mark.parametrize("task", PAPER)
def test_the_rows_are_the_papers(task):
    assert load_row("v1", task) == PAPER[task]
    rate = 1e-5 if task == "race" else PAPER[task][0]
    assert load_row("v2", task) == (rate, PAPER[task][1], 0.0, *PAPER[task][3:])


def test_no_task_lacks_a_row():
    assert set(PAPER) == set(task_table.TASKS)
    assert {recipes.choose_recipe(task) for task in task_table.TASKS} == {"v2"}
    assert recipes.choose_recipe("own") == "none"


def test_each_value_can_be_overridden(tmp_path):
    (tmp_path / "c.json").write_text('{"albert": {"hidden_size": 24}, "num_warmup_steps": 7}')
    overrides = ["num_train_steps=90", "albert.hidden_dropout_prob=0.3"]
    config = config_io.load(
        FinetuneConfig, str(tmp_path / "c.json"), overrides, recipes.read_recipe("v1", "rte")
    )
    assert (config.num_train_steps, config.num_warmup_steps, config.learning_rate) == (90, 7, 3e-5)
    albert = config.albert
    assert (albert.hidden_size, albert.hidden_dropout_prob) == (24, 0.3)
    assert albert.attention_probs_dropout_prob == 0.1


def test_unknown_names_list_the_known_ones():
    with pytest.raises(UserError, match=r"no recipe 'v3'\. Take one of v1, v2, simcse, none\."):
        recipes.read_recipe("v3", "rte")
    with pytest.raises(UserError, match=r"recipe v1 has no task 'own'\. Take --recipe=none"):
        recipes.read_recipe("v1", "own")
    assert recipes.read_recipe("none", "own") == {}
