"""`SentenceTransformer` gives the vectors of `LoadedModel.embed` from the folder that we write.

Skipped without environments/interop.txt.
"""

import dataclasses

import numpy as np
import pytest
import tiny_checkpoints
import tiny_run
from optional import sentence_transformers

import albert_tf
from albert_tf.checkpoints import formats
from albert_tf.train_config import SentenceVectors

TEXTS = ["the cat and the dog", "a " * 30, "", "Überaus gut, nicht?", "the"]


def write(folder, vectors):
    vocabulary = tiny_run.write_vocabulary(str(folder / "vocabulary"))
    made = tiny_checkpoints.make(vocabulary, model="bare", **tiny_checkpoints.GROUPED)
    (folder / "written").mkdir()
    made = dataclasses.replace(made, vectors=vectors)
    formats.get_writer("sentence_transformers")(made, str(folder / "written"))
    return str(folder / "written")


@pytest.mark.parametrize("pooling", ["mean", "first"])
@pytest.mark.parametrize("normalize", [False, True])
def test_their_vectors_are_ours(tmp_path, pooling, normalize):
    vectors = SentenceVectors(pooling=pooling, normalize=normalize, max_seq_length=7)
    folder = write(tmp_path, vectors)
    theirs = sentence_transformers.SentenceTransformer(folder, device="cpu")
    assert theirs.max_seq_length == 7
    expected = albert_tf.load(folder).embed(TEXTS, pooling=pooling)
    if normalize:
        expected /= np.linalg.norm(expected, axis=-1, keepdims=True)
    np.testing.assert_allclose(theirs.encode(TEXTS), expected, rtol=0, atol=1e-6)


def test_what_they_save_is_read(tmp_path):
    folder = write(tmp_path, SentenceVectors())
    theirs = sentence_transformers.SentenceTransformer(folder, device="cpu")
    theirs.save(str(tmp_path / "theirs"))
    checkpoint = formats.read(str(tmp_path / "theirs"))
    tiny_checkpoints.assert_same(
        dataclasses.replace(checkpoint, vocabulary={}),
        dataclasses.replace(formats.read(folder), vocabulary={}),
    )
    assert checkpoint.vectors == SentenceVectors(pooling="mean", normalize=False, max_seq_length=16)
