"""Vectors of a teacher: their file, the neighbours, and the losses against float64."""

import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import UserError
from albert_tf.kinds.base import Example
from albert_tf.kinds.tables import teacher_vectors
from albert_tf.model import teacher_loss
from albert_tf.train_config import FinetuneConfig

B, C, D, W, N = 3, 2, 4, 5, 11


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def expected_loss(x, teacher, rows, temperature):
    """The mean over the texts, written with loops."""
    x, total = unit(x), 0.0
    for i, row in enumerate(rows):
        others = [j for j, other in enumerate(rows) if other != row]
        ours = np.array([x[i] @ x[j] for j in others])
        theirs = np.array([teacher[row] @ teacher[rows[j]] for j in others])
        p, q = (np.exp(s / temperature) / np.exp(s / temperature).sum() for s in (theirs, ours))
        total += (p * np.log(p / q)).sum() + 5 * ((ours - theirs) ** 2).mean()
    return total / len(rows)


def compute(x, numbers, teacher, **changes):
    loss = teacher_loss.make_loss(teacher, FinetuneConfig(**changes))
    batch = {"label_ids": tf.constant(numbers), "input_ids": tf.zeros([len(numbers), 1])}
    sums = loss.sums({"embedding": tf.constant(x, tf.float32)}, batch)
    return (sums["distilled_loss"] / loss.counts(batch)["distilled"]).numpy(), loss


def test_the_similarities_of_other_texts_are_learnt():
    x, teacher = normal(B * C, D), unit(normal(N, W, seed=1)).astype(np.float32)
    for numbers in ([[3, 1], [0, 2], [5, 10]], [[3, 1], [1, 2], [2, 9]]):  # with equal texts
        actual, loss = compute(x, numbers, teacher, temperature=0.2)
        expected = expected_loss(x, teacher, np.ravel(numbers), 0.2)
        assert actual == pytest.approx(expected, rel=1e-4)
        assert (loss.compares_rows, loss.has_accuracy) == (True, False)
    sizes = compute(x, numbers, teacher, temperature=0.2, embedding_sizes=(4, 2))[0]
    shorter = expected_loss(x[:, :2], teacher, np.ravel(numbers), 0.2)
    assert sizes == pytest.approx(expected + shorter, rel=1e-4)


def test_the_vectors_themselves_are_learnt_by_their_cosine():
    x, teacher = normal(B * C, W), unit(normal(N, W, seed=1)).astype(np.float32)
    actual, loss = compute(x, [[3, 1], [0, 2], [5, 10]], teacher, vector_loss="cosine")
    expected = 1 - (unit(x) * teacher[[3, 1, 0, 2, 5, 10]]).sum(1).mean()
    assert actual == pytest.approx(expected, rel=1e-4)
    assert not loss.compares_rows


def test_neighbours_are_the_nearest_ones_in_any_number_of_blocks(monkeypatch):
    vectors = unit(normal(23, W)).astype(np.float32)
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -2)
    expected = np.argsort(-cosines, axis=1)[:, :7]
    np.testing.assert_array_equal(teacher_vectors.find_neighbours(vectors), expected)
    monkeypatch.setattr(teacher_vectors, "_SIMILARITIES", 23 * 5)
    np.testing.assert_array_equal(teacher_vectors.find_neighbours(vectors), expected)
    same = teacher_vectors.find_neighbours(np.ones((9, 1), np.float32))
    assert same.shape == (9, 7)


def test_equal_texts_are_one_text():
    examples = [Example(str(k), (f"t{k % 9}",), None, (float(k), 1.0)) for k in range(12)]
    chosen, vectors, groups = teacher_vectors.group(examples)
    assert [x.id for x in chosen] == [*map(str, range(9))]
    np.testing.assert_allclose(vectors[:, 0] / vectors[:, 1], np.arange(9), rtol=1e-6)
    assert groups.shape == (9, 8)
    assert groups[:, 0].tolist() == [*range(9)]
    with pytest.raises(UserError, match="at least 8 different texts"):
        teacher_vectors.group(examples[:7])
    for wrong in ((np.nan, 1.0), (0.0, 0.0)):
        with pytest.raises(UserError, match="teacher's vector of the text '3' is 0 or not finite"):
            teacher_vectors.group(
                [x._replace(teacher=wrong) if x.id == "3" else x for x in examples]
            )


def test_vectors_are_read_in_the_order_of_their_ids(tmp_path):
    path, vectors = str(tmp_path / "v.npy"), normal(3, W)
    np.save(path, vectors)
    np.testing.assert_array_equal(teacher_vectors.read(path, "abc"), vectors)
    lines = [json.dumps({"id": name}) for name in "acb"]
    (tmp_path / "v.jsonl").write_text("\n".join(lines))
    with pytest.raises(UserError, match=r"v\.npy: vector 'c' is where text 'b' should be"):
        teacher_vectors.read(path, "abc")


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (normal(2, W), "has 2 vectors for 3 texts"),
        (normal(3), r"holds float64 \[3\]: it needs one vector"),
        (np.ones((3, W), int), r"holds int64 \[3, 5\]: it needs one vector"),
        (None, "is not a .npy file"),
    ],
)
def test_files_of_other_vectors_are_refused(tmp_path, vectors, message):
    path = tmp_path / "v.npy"
    path.write_text("no array") if vectors is None else np.save(path, vectors)
    with pytest.raises(UserError, match=rf"^--teacher_vectors: .*v\.npy:? {message}"):
        teacher_vectors.read(str(path), "abc")
    with pytest.raises(UserError, match=r"other\.npy does not exist"):
        teacher_vectors.read(str(tmp_path / "other.npy"), "abc")
