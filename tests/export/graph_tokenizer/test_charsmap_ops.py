import functools

import pytest
import sentencepiece
import tensorflow as tf
import tiny_texts
from sentencepiece import sentencepiece_model_pb2

from albert_tf.export.graph_tokenizer import charsmap_ops, code_points


@functools.cache
def model(rule):
    """One that does nothing to text but what its rules say."""
    proto = tiny_texts.sentencepieces(rule=rule).backend.processor.serialized_model_proto()
    proto = sentencepiece_model_pb2.ModelProto.FromString(proto)
    for name in ("add_dummy_prefix", "remove_extra_whitespaces", "escape_whitespaces"):
        setattr(proto.normalizer_spec, name, False)
    for piece in proto.pieces:
        if piece.type == piece.USER_DEFINED:
            piece.type = piece.NORMAL
    return proto


@pytest.mark.parametrize("rule", ["nmt_nfkc", "nmt_nfkc_cf", "identity"])
def test_text_is_rewritten_as_sentencepiece_does(rule):
    charsmap = model(rule).normalizer_spec.precompiled_charsmap
    assert bool(charsmap) == (rule != "identity")
    rewrite = charsmap_ops.make_apply_charsmap(charsmap)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model(rule).SerializeToString())

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def traced(texts):
        chars = rewrite(code_points.decode(texts))
        places = (chars.starts, chars.rows, chars.num_rows)
        return code_points.encode(chars), code_points.to_ragged(*places)

    lines = [line.decode(errors="replace") for line in tiny_texts.texts(6, 1500)]
    lines += ["A\u0338\u0300\u0301", "\u1100\u1161\u1161\u11a8\u1100", "ﬁ\u0308" * 9, "A", "\u0300"]
    texts, starts = traced(tf.constant(lines))
    for line, text, origins in zip(lines, texts.numpy(), starts.to_list(), strict=True):
        expected, places = processor.normalize(line, with_offsets=True)
        assert text.decode() == expected, line
        assert origins == places[:-1], line


def test_matches_that_overlap_are_taken_from_the_left():
    lengths = tf.constant([1, 3, 2, 2, 1, 2, 2, 1])
    assert charsmap_ops.mark_reached(lengths).numpy().tolist() == [1, 1, 0, 0, 1, 1, 0, 1]
