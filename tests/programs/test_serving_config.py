"""The files with which a server is started, against the messages that it reads them into."""

import re
from pathlib import Path

import pytest
import tensorflow as tf
import tiny_exports
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,  # noqa: F401  (registers what BatchingParameters holds)
)
from tensorflow_serving.config import model_server_config_pb2

from albert_tf.export import model_card, signatures

SERVING = Path(__file__).parents[2] / "albert_tf/serving"
FIELD = descriptor_pb2.FieldDescriptorProto
INTEGER, STRING = ".google.protobuf.Int64Value", ".google.protobuf.StringValue"
# tensorflow-serving-api lacks these two messages; these are the published fields:
# {message: {field: (number, type, type's name)}}.
PUBLISHED = {
    "BatchingParameters": {
        "max_batch_size": (1, FIELD.TYPE_MESSAGE, INTEGER),
        "batch_timeout_micros": (2, FIELD.TYPE_MESSAGE, INTEGER),
        "max_enqueued_batches": (3, FIELD.TYPE_MESSAGE, INTEGER),
        "num_batch_threads": (4, FIELD.TYPE_MESSAGE, INTEGER),
        "thread_pool_name": (5, FIELD.TYPE_MESSAGE, STRING),
        "allowed_batch_sizes": (6, FIELD.TYPE_INT64, None),
        "pad_variable_length_inputs": (7, FIELD.TYPE_BOOL, None),
    },
    "PrometheusConfig": {
        "enable": (1, FIELD.TYPE_BOOL, None),
        "path": (2, FIELD.TYPE_STRING, None),
    },
    "MonitoringConfig": {
        "prometheus_config": (1, FIELD.TYPE_MESSAGE, ".published.PrometheusConfig"),
    },
}


def published(name):
    """The message of that name."""
    file = descriptor_pb2.FileDescriptorProto(
        name="published.proto",
        package="published",
        syntax="proto3",
        dependency=["google/protobuf/wrappers.proto"],
    )
    for message, fields in PUBLISHED.items():
        added = file.message_type.add(name=message)
        for field, (number, kind, type_name) in fields.items():
            many = field == "allowed_batch_sizes"
            label = FIELD.LABEL_REPEATED if many else FIELD.LABEL_OPTIONAL
            added.field.add(name=field, number=number, type=kind, label=label, type_name=type_name)
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"published.{name}"))()


def read(name, message):
    return text_format.Parse((SERVING / name).read_text(), message)


def test_the_server_reads_the_list_of_models():
    config = read("models.config", model_server_config_pb2.ModelServerConfig())
    (model,) = config.model_config_list.config
    assert (model.model_platform, model.base_path) == ("tensorflow", f"/models/{model.name}")
    assert model.model_version_policy.latest.num_versions == 1


def test_batches_have_allowed_sizes_and_are_never_padded_by_the_server():
    config = read("batching.config", published("BatchingParameters"))
    sizes = list(config.allowed_batch_sizes)
    assert sizes == sorted(sizes)
    assert sizes[-1] == config.max_batch_size.value  # the server asks for it
    assert config.num_batch_threads.value >= 1
    assert not config.pad_variable_length_inputs


def test_prometheus_is_on():
    config = read("monitoring.config", published("MonitoringConfig"))
    assert config.prometheus_config.enable
    assert config.prometheus_config.path in (SERVING / "monitoring.config").read_text()


def test_the_command_names_these_files_and_the_server_of_the_card():
    text = (SERVING / "README.md").read_text()
    named = re.findall(r"--\w+_file=/serving/(\S+)", text)
    assert sorted(named) == sorted(path.name for path in SERVING.glob("*.config"))
    assert f"tensorflow/serving:{model_card.SERVER}" in text


def test_padding_by_the_server_would_change_the_answer():
    """Why it is off: the server pads with the first number of an input, 1 in `input_mask`."""
    model = tiny_exports.source("classification")
    answer = signatures.make_signatures(model)["token_ids"].function
    ids = tiny_exports.ids(model, 1, 5)
    ids["input_mask"] = tf.ones_like(ids["input_mask"])
    wanted = answer(ids)["logits"]
    first = {name: tf.repeat(value[:, :1], 3, axis=1) for name, value in ids.items()}
    padded = {name: tf.concat([value, first[name]], 1) for name, value in ids.items()}
    assert abs(answer(padded)["logits"] - wanted).numpy().max() > 1e-3
    padded["input_mask"] *= tf.constant([[1] * 5 + [0] * 3])
    assert answer(padded)["logits"].numpy() == pytest.approx(wanted.numpy(), rel=1e-5)
