"""`SentenceTransformer` gives the vectors of `LoadedModel.embed` from the folder that we write.

Skipped without environments/interop.txt.
"""

import dataclasses

import numpy as np
import pytest
import tiny_checkpoints
from optional import sentence_transformers

import albert_tf
from albert_tf.checkpoints import formats
from albert_tf.train_config import SentenceVectors

TEXTS = ["the cat and the dog", "a " * 30, "", "Überaus gut, nicht?", "the"]


@pytest.fixture
def write(tmp_path, vocabulary):
    def write(vectors):
        made = tiny_checkpoints.make(vocabulary, model="bare", **tiny_checkpoints.GROUPED)
        made = dataclasses.replace(made, vectors=vectors)
        return tiny_checkpoints.write(tmp_path, made, "sentence_transformers")

    return write


@pytest.mark.parametrize(("pooling", "normalize"), [("mean", True), ("pooler", False)])
def test_their_vectors_are_ours(write, pooling, normalize):
    folder = write(SentenceVectors(pooling=pooling, normalize=normalize, max_seq_length=7))
    theirs = sentence_transformers.SentenceTransformer(folder, device="cpu")
    assert theirs.max_seq_length == 7
    expected = albert_tf.load(folder).embed(TEXTS, pooling=pooling)
    if normalize:
        expected /= np.linalg.norm(expected, axis=-1, keepdims=True)
    np.testing.assert_allclose(theirs.encode(TEXTS), expected, rtol=0, atol=1e-6)


def test_what_they_save_is_read(write, tmp_path):
    folder = write(SentenceVectors())
    sentence_transformers.SentenceTransformer(folder, device="cpu").save(str(tmp_path / "theirs"))
    checkpoint = formats.read(str(tmp_path / "theirs"))
    both = (dataclasses.replace(x, vocabulary={}) for x in (checkpoint, formats.read(folder)))
    tiny_checkpoints.assert_same(*both)
    assert checkpoint.vectors == SentenceVectors(pooling="mean", normalize=False, max_seq_length=16)
