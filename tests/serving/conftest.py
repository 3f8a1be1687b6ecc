"""One server for all tests of this folder: an export of a classifier, and a model of vectors."""

import pytest
import tiny_server

from albert_tf.serving import served_model


@pytest.fixture(scope="session")
def models(exported, tmp_path_factory):
    """{name: {version: `ServedModel`}}: `labels` is a classifier, `vectors` a made model."""
    _, labels = exported("classification", text=True)
    folder = tmp_path_factory.mktemp("served")
    vectors = [tiny_server.write_model(str(folder), version) for version in (1, 2)]
    return {
        "labels": {1: served_model.load("labels", 1, labels)},
        "vectors": {k: served_model.load("vectors", k, x) for k, x in enumerate(vectors, 1)},
    }


@pytest.fixture(scope="session")
def client(models):
    with tiny_server.serving(tiny_server.make_store(**models, loading={})) as client:
        yield client
