import pytest

from albert_tf import config_io
from albert_tf.errors import UserError
from albert_tf.train_config import FinetuneConfig


def load(*overrides):
    return config_io.load(FinetuneConfig, None, overrides)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("dtype=float16", "dtype: 'float16' is not one of float32, mixed_bfloat16"),
        ("null_answer=none", "null_answer: 'none' is not one of answer_class, null_score"),
        ("train_batch_size=0", "train_batch_size must be at least 1"),
        ("patience=-1", "patience must be at least 0"),
        ("learning_rate=-1", "learning_rate must be at least 0"),
        ("max_grad_norm=0", "max_grad_norm must be more than 0"),
        ("warmup_proportion=1", "warmup_proportion must be below 1"),
        ("num_train_epochs=0", "num_train_steps and num_train_epochs are both 0"),
        ("class_weights=even", "class_weights: 'even' is not one of balanced"),
        ("class_weights=[1,-1]", "class_weights: each must be at least 0, and one more than 0"),
        ("class_weights=[0,0]", "class_weights: each must be at least 0, and one more than 0"),
        ("class_weights=[1,Infinity]", "class_weights: each must be at least 0, and one more"),
        ('class_weights=[1,"2"]', "class_weights 2 must be of type float, not '2'"),
        ("class_weights=2", "class_weights must be of type str or list, not 2"),
        ("max_seq_length=513", r"max_seq_length 513 is over albert\.max_position_embeddings 512"),
        ("sentence_task=sop", "unknown key 'sentence_task'. Known: albert, "),
    ],
)
def test_mistakes_are_one_line(override, message):
    with pytest.raises(UserError, match=message) as caught:
        load(override)
    assert "\n" not in str(caught.value)


def test_warmup_is_shorter_than_the_run():
    with pytest.raises(UserError, match="num_warmup_steps 30 is not below num_train_steps 30"):
        load("num_train_steps=30", "num_warmup_steps=30")
    assert load("num_warmup_steps=30", "num_decay_steps=9").num_train_steps == 0  # not known yet


def test_a_list_or_a_word():
    assert load("class_weights=[0, 2.5]").class_weights == (0.0, 2.5)
    assert load("class_weights=balanced").class_weights == "balanced"
    assert load().class_weights == ()


@pytest.mark.parametrize(
    ("overrides", "num_records", "expected"),
    [
        # SQuAD of the published programs: int(87599 / 48 * 2), int(.1 * that).
        (("num_train_epochs=2", "train_batch_size=48"), 87599, (3649, 364)),
        (("num_train_epochs=3", "train_batch_size=48"), 130319, (8144, 814)),
        (("num_train_steps=70", "num_train_epochs=0"), 87599, (70, 7)),
        (("num_warmup_steps=5", "num_train_epochs=1"), 320, (10, 5)),
        (("warmup_proportion=0", "num_train_epochs=1"), 320, (10, 0)),
        ((), 4, (1, 0)),
    ],
)
def test_steps_from_passes(overrides, num_records, expected):
    config = load(*overrides).with_steps(num_records)
    assert (config.num_train_steps, config.num_warmup_steps) == expected
    assert config.with_steps(num_records) == config


def test_steps_that_the_warmup_takes_whole():
    with pytest.raises(UserError, match="num_warmup_steps 30 is not below num_train_steps 10"):
        load("num_warmup_steps=30", "num_train_epochs=1").with_steps(320)
