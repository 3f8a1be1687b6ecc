"""Our classes of SentencePiece's messages read and write what its own do."""

import tiny_texts
from repository import ROOT
from sentencepiece import sentencepiece_model_pb2

from albert_tf.tokenizers import sentencepiece_proto
from albert_tf.tokenizers.tokenization import TokenizerConfig


def test_fields_and_defaults_are_those_of_sentencepiece():
    content = tiny_texts.sentencepieces(
        TokenizerConfig()
    ).backend.processor.serialized_model_proto()
    model = sentencepiece_proto.ModelProto.FromString(content)
    expected = sentencepiece_model_pb2.ModelProto.FromString(content)
    for message in ("trainer_spec", "normalizer_spec"):
        part = getattr(model, message)
        for field in part.DESCRIPTOR.fields:
            assert getattr(part, field.name) == getattr(getattr(expected, message), field.name)
    assert [(p.piece, p.score, p.type) for p in model.pieces] == [
        (p.piece, p.score, p.type) for p in expected.pieces
    ]
    empty, ours = sentencepiece_model_pb2.ModelProto(), sentencepiece_proto.ModelProto()
    assert ours.trainer_spec.model_type == empty.trainer_spec.model_type
    assert ours.normalizer_spec.add_dummy_prefix == empty.normalizer_spec.add_dummy_prefix
    # Fields that we do not name are kept.
    again = sentencepiece_model_pb2.ModelProto.FromString(model.SerializeToString())
    assert again == expected


def test_no_module_imports_the_classes_of_sentencepiece():
    """They refuse a protobuf before 7.36, which other packages pin."""
    for path in (ROOT / "albert_tf").rglob("*.py"):
        assert "sentencepiece_model_pb2" not in path.read_text(), path
