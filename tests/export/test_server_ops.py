"""Operations that no server of 2.12 has are found, wherever they are in a SavedModel."""

import pytest
import server_ops
import tensorflow as tf
import tensorflow_text as tf_text
import tiny_texts

from albert_tf.export.graph_tokenizer import graph_tokenizer


def save(folder, function):
    specs = [tf.TensorSpec([None], tf.string)]
    signature = tf.function(function, input_signature=specs, autograph=False)
    tf.saved_model.save(tf.train.Checkpoint(), folder, signatures=signature)
    return str(folder)


@pytest.mark.full
@pytest.mark.parametrize(
    ("make", "ops"),
    [
        (tiny_texts.sentencepieces, {"TFText>FastSentencepieceTokenize"}),
        (tiny_texts.wordpieces, {"FastWordpieceTokenizeWithOffsets"}),
    ],
)
def test_text_is_cut_with_ops_that_servers_have(make, ops, tmp_path):
    made = graph_tokenizer.make_tokenizer(make())

    def function(texts):
        ids, begins, _ = made.tokenize_with_offsets(texts)
        masked = made.tokenize_with_masks(texts)
        return {"a": ids.flat_values, "b": begins.flat_values, "c": masked.flat_values}

    assert server_ops.check(save(tmp_path, function)) == ops


def trim(texts):
    """In a function of its own."""
    trimmer = tf_text.RoundRobinTrimmer(max_seq_length=2)
    ids = tf.function(lambda: trimmer.trim([tf.ragged.constant([[1, 2, 3]])])[0].flat_values)()
    lengths = tf.cast(tf.strings.length(texts), tf.complex64)
    return {"ids": ids, "turned": tf.raw_ops.FFTND(input=lengths, fft_length=[2], axes=[0])}


def test_new_ops_are_refused(tmp_path):
    assert server_ops.check(save(tmp_path / "old", lambda x: {"y": tf.strings.length(x)})) == set()
    with pytest.raises(AssertionError, match="lack") as error:
        server_ops.check(save(tmp_path / "new", trim))
    assert all(op in str(error.value) for op in ("TFText>RoundRobinTrim", "FFTND"))
    assert all(hasattr(tf.raw_ops, op) for op in server_ops.NEWER)
    for name in server_ops.NEWER_BEGINNINGS:
        assert any(op.startswith(name) for op in dir(tf.raw_ops)), name
