"""The files with which a server is started, against the fields that it reads."""

import re
from pathlib import Path

import pytest
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from albert_tf.export import model_card

SERVING = Path(__file__).parents[2] / "albert_tf/serving"
# tensorflow-serving-api lacks the messages of these two files; these are their published fields.
PUBLISHED = {
    "batching.config": {
        *("max_batch_size", "batch_timeout_micros", "max_enqueued_batches", "num_batch_threads"),
        *("allowed_batch_sizes", "pad_variable_length_inputs"),
    },
    "monitoring.config": {"prometheus_config", "enable", "path"},
}


def read_fields(name):
    """Returns (field, value) of each line that is no comment."""
    lines = re.sub("^#.*\n", "", (SERVING / name).read_text(), flags=re.MULTILINE)
    return re.findall(r"^ *(\w+):? *(.+)$", lines, re.MULTILINE)


def test_the_server_reads_the_list_of_models():
    content = (SERVING / "models.config").read_text()
    config = text_format.Parse(content, model_server_config_pb2.ModelServerConfig())
    (model,) = config.model_config_list.config
    assert (model.model_platform, model.base_path) == ("tensorflow", f"/models/{model.name}")
    assert model.model_version_policy.latest.num_versions == 1


@pytest.mark.parametrize("name", PUBLISHED)
def test_fields_are_those_that_the_server_reads(name):
    assert {field for field, _ in read_fields(name)} == PUBLISHED[name]


def test_batches_have_allowed_sizes_and_are_never_padded_by_the_server():
    fields = read_fields("batching.config")
    sizes = [int(value) for field, value in fields if field == "allowed_batch_sizes"]
    assert sizes == sorted(sizes)
    assert ("max_batch_size", f"{{ value: {sizes[-1]} }}") in fields  # the server asks for it
    assert ("pad_variable_length_inputs", "false") in fields
    assert ("enable", "true") in read_fields("monitoring.config")


def test_the_command_names_these_files_and_the_server_of_the_card():
    text = (SERVING / "README.md").read_text()
    named = re.findall(r"--\w+_file=/serving/(\S+)", text)
    assert sorted(named) == sorted(path.name for path in SERVING.glob("*.config"))
    assert f"tensorflow/serving:{model_card.SERVER}" in text
