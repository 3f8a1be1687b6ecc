import pytest
import server_ops
import tensorflow as tf
import tensorflow_text as tf_text
import tiny_texts

from albert_tf.errors import UserError
from albert_tf.export.graph_tokenizer import graph_tokenizer


def save(folder, function):
    signature = tf.function(
        function, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False
    )
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


def test_new_ops_are_refused(tmp_path):
    def function(texts):
        ids = tf.ragged.constant([[1, 2, 3]])
        trimmer = tf_text.RoundRobinTrimmer(max_seq_length=2)
        return {"ids": trimmer.trim([ids])[0].flat_values, "texts": texts}

    folder = save(tmp_path, function)
    sentence = r"servers of version 2\.12 lack TFText>RoundRobinTrim\. Export with --text=false\."
    with pytest.raises(UserError, match=sentence):
        server_ops.check(folder)
    assert server_ops.check(folder, oldest=(2, 20)) == {"TFText>RoundRobinTrim"}


def test_new_ops_of_tensorflow_itself_are_refused(tmp_path):
    def function(texts):
        lengths = tf.cast(tf.strings.length(texts), tf.complex64)
        return {"turned": tf.raw_ops.FFTND(input=lengths, fft_length=[2], axes=[0])}

    folder = save(tmp_path, function)
    with pytest.raises(UserError, match=r"servers of version 2\.12 lack FFTND\."):
        server_ops.check(folder)
    assert server_ops.check(folder, oldest=(2, 20)) == set()


def test_ops_that_are_called_new_exist():
    assert all(hasattr(tf.raw_ops, op) for op in server_ops.NEWER)
    for beginning in server_ops.NEWER_BEGINNINGS:
        assert any(op.startswith(beginning) for op in dir(tf.raw_ops))


def test_ops_of_functions_count_and_unknown_ones_are_missing(tmp_path):
    @tf.function
    def inner(texts):
        return tf_text.case_fold_utf8(texts)

    graph = tf.function(lambda texts: inner(texts)).get_concrete_function(
        tf.TensorSpec([2], tf.string)
    )
    definition = graph.graph.as_graph_def()
    assert server_ops.select_custom(server_ops.list_ops(definition)) == {"CaseFoldUTF8"}
    definition.library.function[0].node_def.add(name="x", op="Mine>New")
    assert server_ops.select_custom(server_ops.list_ops(definition)) == {"CaseFoldUTF8", "Mine>New"}


def test_plain_graphs_have_none(tmp_path):
    folder = save(tmp_path, lambda texts: {"lengths": tf.strings.length(texts)})
    assert server_ops.check(folder) == set()
