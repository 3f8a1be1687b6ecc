"""Replaced-token detection: what is put in, who learns from what, and what a run leaves."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tiny_run

from albert_tf.checkpoints import formats
from albert_tf.errors import UserError
from albert_tf.inference import minimal_pairs
from albert_tf.model import weight_names
from albert_tf.objectives import replaced_tokens
from albert_tf.pipelines import pretraining_evaluation
from albert_tf.train import train_step

pytestmark = pytest.mark.usefixtures("eagerly")
OPTIONS = {"token_task": "replaced_tokens", "generator_divisor": 2}
EMBEDDINGS = ("shared", "disentangled")
WORDS = "bert/embeddings/word_embeddings"


def make_model(**changes):
    return replaced_tokens.AlbertForReplacedTokens(tiny_run.settings(**(OPTIONS | changes)))


def read_examples(number):
    return {name: tf.constant(x) for name, x in tiny_run.examples(number).items()}


def test_a_piece_is_drawn_by_its_probability():
    logits = np.log([[0.5, 0.0001, 0.3, 0.1999]]).astype(np.float32)
    draws = (np.arange(1000, dtype=np.float32) + 0.5) / 1000
    pieces = replaced_tokens._sample(tf.constant(np.repeat(logits, 1000, 0)), tf.constant(draws))
    np.testing.assert_array_equal(np.bincount(pieces, minlength=4), [500, 0, 300, 200])
    assert replaced_tokens._sample(tf.constant(logits), tf.constant([1.0])).numpy() == [3]


def test_masks_are_filled_and_a_right_guess_counts_as_original(monkeypatch):
    batch, model = read_examples(4), make_model()
    ids, positions, labels = (
        batch[name].numpy() for name in ("input_ids", "masked_lm_positions", "masked_lm_ids")
    )
    is_used = batch["masked_lm_weights"].numpy() > 0
    for guess in (labels, labels + 1):
        monkeypatch.setattr(replaced_tokens, "_sample", lambda *_, guess=guess: tf.constant(guess))
        filled, is_replaced = (x.numpy() for x in model._fill_masks(batch, None))
        expected, differs = ids.copy(), np.zeros(ids.shape)
        for row, place in np.argwhere(is_used):
            expected[row, positions[row, place]] = guess[row, place]
            differs[row, positions[row, place]] = float(guess is not labels)
        np.testing.assert_array_equal(filled, expected)
        np.testing.assert_array_equal(is_replaced, differs)


def test_what_is_drawn_depends_on_the_text_and_the_seed_alone():
    batch, model = read_examples(6), make_model()
    whole = model(batch)["is_replaced"].numpy()
    rows = [model({name: x[i : i + 1] for name, x in batch.items()}) for i in (5, 2)]
    np.testing.assert_array_equal([x["is_replaced"][0] for x in rows], whole[[5, 2]])
    filled = [make_model(seed=seed)._fill_masks(batch, tf.zeros([6, 3, 61]))[0] for seed in (5, 6)]
    assert not np.array_equal(*filled)


@pytest.mark.parametrize("embeddings", EMBEDDINGS)
def test_the_loss_of_finding_moves_the_embeddings_of_the_generator_only_if_they_are_shared(
    embeddings,
):
    tables = []
    for weight in (1.0, 50.0):
        changes = {"generator_embeddings": embeddings, "detection_weight": weight}
        changes |= {"max_grad_norm": 1e9, "optimizer": "adamw", "weight_decay_rate": 0.0}
        state = tiny_run.train_state(tf.distribute.get_strategy(), **OPTIONS, **changes)
        weights = {w.path: w for w in state.weights}
        for first, follower in weight_names.pair_followers(state.weights):
            first.assign(follower.value)
        state.optimizer.iterations.assign(2)
        batches = tf.data.Dataset.from_tensors(read_examples(8))
        train_step.make_run_updates(state)(iter(batches), 1)
        tables.append([weights[x].numpy() for x in (WORDS, f"helpers/{WORDS}") if x in weights])
    (one, *of_one), (other, *of_other) = tables
    assert not np.array_equal(one, other)
    if embeddings == "disentangled":
        np.testing.assert_array_equal(*of_one, *of_other)


@pytest.mark.parametrize(
    ("embeddings", "masking"), [("shared", "online"), ("disentangled", "static")]
)
def test_a_run_resumes_and_leaves_a_plain_checkpoint(tmp_path, embeddings, masking, capsys):
    write = tiny_run.write_data if masking == "static" else tiny_run.write_online_data
    data = write(tmp_path / "data")
    config = tiny_run.settings(**OPTIONS, generator_embeddings=embeddings, num_train_steps=6)
    tiny_run.run(data, tmp_path / "unbroken", config, evaluate=True)
    for stop in (4, 0):
        part = dataclasses.replace(config, stop_at_step=stop)
        tiny_run.run(data, tmp_path / "run", part, evaluate=stop == 0)
    tiny_run.assert_same_end(tmp_path / "unbroken", tmp_path / "run")
    last = tiny_run.metrics(tmp_path / "run")[-1]
    evaluated = pretraining_evaluation.evaluate(str(tmp_path / "run"), [f"{data}/eval-*"])["sop"]
    for name in ("loss", "masked_lm_loss", "replaced_token_loss", "replaced_token_recall"):
        assert evaluated[name] == pytest.approx(last[f"eval_{name}"], rel=1e-5), name
    parts = weight_names.parts(config.albert)
    plain = parts[weight_names.ENCODER] | parts[weight_names.POOLER]
    assert formats.read(str(tmp_path / "run")).weights.keys() == plain.keys()
    formats.convert(str(tmp_path / "run"), str(tmp_path / "hf"), to_format="hugging_face")
    assert "(of training alone)" in capsys.readouterr().err
    pairs = [minimal_pairs.Pair("a", "b", ("", "", ""))]
    with pytest.raises(UserError, match="no masked-LM head, which --minimal_pairs needs"):
        minimal_pairs.evaluate_checkpoint(str(tmp_path / "run"), pairs)


def test_a_run_may_start_from_a_model_of_masked_tokens(data, tmp_path):
    tiny_run.run(data, tmp_path / "masked", tiny_run.settings(num_train_steps=2))
    start = {"init_checkpoint": str(tmp_path / "masked"), "allow_partial": "cls/.*"}
    config = tiny_run.settings(**OPTIONS, generator_embeddings="disentangled", num_train_steps=4)
    tiny_run.run(data, tmp_path / "run", config, **start)
    back = {"init_checkpoint": str(tmp_path / "run"), "allow_partial": "cls/.*"}
    tiny_run.run(data, tmp_path / "back", tiny_run.settings(num_train_steps=1), **back)
    with pytest.raises(UserError, match="unexpected: cls/predictions"):
        tiny_run.run(data, tmp_path / "strict", config, init_checkpoint=str(tmp_path / "masked"))
    with pytest.raises(UserError, match="trained with token_task='replaced_tokens'"):
        tiny_run.run(
            data, tmp_path / "on", tiny_run.settings(), continue_from=str(tmp_path / "run")
        )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sentence_task": "phonemes"}, "learns masked phonemes. Take token_task=masked_lm"),
        ({"generator_divisor": 3}, "3 does not divide hidden_size 8 and intermediate_size 10"),
        ({"generator_layers": 0}, "generator_layers must be at least 1"),
        (
            {
                "generator_layers": 1,
                "albert": tiny_run.albert(num_hidden_layers=2, num_hidden_groups=2),
            },
            "the generator of token_task=replaced_tokens: num_hidden_groups 2 is over",
        ),
        ({"detection_weight": 0.0}, "detection_weight must be more than 0"),
    ],
)
def test_mistakes(changes, message):
    with pytest.raises(UserError, match=message):
        tiny_run.settings(**(OPTIONS | changes))
