"""Training checkpoints; that runs resume from them is tested with the runs."""

import pytest
import tensorflow as tf

from albert_tf.checkpoints import training_checkpoint


@pytest.mark.parametrize("content", [b"\xff\xfe", b'model_checkpoint_path: "\x81"', b"???", b""])
def test_a_damaged_list_of_checkpoints_is_made_anew(tmp_path, content):
    """TensorFlow's file `checkpoint`: nothing depends on it."""
    checkpoint = tf.train.Checkpoint(v=tf.Variable(1.5))
    prefix = training_checkpoint.save(checkpoint, str(tmp_path), 3, 5)
    (tmp_path / "checkpoint").write_bytes(content)
    assert training_checkpoint.find_newest(str(tmp_path)) == prefix
    training_checkpoint.save(checkpoint, str(tmp_path), 4, 5)
    state = tf.train.get_checkpoint_state(str(tmp_path))
    assert state.model_checkpoint_path == str(tmp_path / "model.ckpt-4")
