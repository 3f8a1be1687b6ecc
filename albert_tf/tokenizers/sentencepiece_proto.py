"""The protocol buffer of a SentencePiece model, for every version of protobuf.

The classes in SentencePiece 0.2.3 require protobuf 7.36 or newer, which other packages forbid.
Fields that are not listed here are kept when a model is rewritten.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# Values of `SentencePiece.type` and of `TrainerSpec.model_type`.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
UNIGRAM, BPE, WORD = 1, 2, 3

_BOOL, _BYTES, _FLOAT, _INT, _STRING = (
    getattr(descriptor_pb2.FieldDescriptorProto, f"TYPE_{name}")
    for name in ("BOOL", "BYTES", "FLOAT", "INT32", "STRING")
)
# {message: ((field, number, type or message name, default), ...)}
_MESSAGES: dict[str, tuple[tuple[str, int, Any, str], ...]] = {
    "SentencePiece": (
        ("piece", 1, _STRING, ""),
        ("score", 2, _FLOAT, "0"),
        ("type", 3, _INT, str(NORMAL)),
    ),
    "TrainerSpec": (
        ("model_type", 3, _INT, str(UNIGRAM)),
        ("treat_whitespace_as_suffix", 24, _BOOL, "false"),
        ("byte_fallback", 35, _BOOL, "false"),
        ("unk_id", 40, _INT, "0"),
    ),
    "NormalizerSpec": (
        ("precompiled_charsmap", 2, _BYTES, ""),
        ("add_dummy_prefix", 3, _BOOL, "true"),
        ("remove_extra_whitespaces", 4, _BOOL, "true"),
        ("escape_whitespaces", 5, _BOOL, "true"),
    ),
    "ModelProto": (
        ("pieces", 1, "SentencePiece", ""),
        ("trainer_spec", 2, "TrainerSpec", ""),
        ("normalizer_spec", 3, "NormalizerSpec", ""),
    ),
}


def _make_model_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="model.proto", package="m", syntax="proto2")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field_name, number, kind, default in fields:
            field = message.field.add(name=field_name, number=number, label=1)
            if field_name == "pieces":
                field.label = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
            if isinstance(kind, str):
                field.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
                field.type_name = f".m.{kind}"
            else:
                field.type, field.default_value = kind, default
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("m.ModelProto"))


ModelProto = _make_model_class()
