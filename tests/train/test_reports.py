import math
import sys

import pytest
import tensorflow as tf
import tiny_run
from refusals import one_line

from albert_tf.checkpoints import training_checkpoint
from albert_tf.train import reports, trackers

PRETRAINING = {"loss": 11.0717, "masked_lm_loss": 10.228, "masked_lm_accuracy": 0.12941}
PRETRAINING |= {"sentence_order_loss": 0.84371, "sentence_order_accuracy": 0.62512}
PRETRAINING |= {"learning_rate": 0.00018753, "gradient_norm": 1.5}


@pytest.mark.parametrize("seconds_left", [9.0, 40 * 3600.0])
def test_a_progress_line_fits_100_columns(seconds_left):
    speed = {"sequences_per_second": 11_079.72, "seconds_left": seconds_left}
    line = reports.line({"step": 100_000, **PRETRAINING, **speed}, 125_000)
    begin = "step 100000/125000 | mlm 10.23 12.9% | sop 0.8437 62.5% | lr 0.000188 |"
    assert line.startswith(begin)
    assert line.endswith(" left")
    assert len(line) <= 100


@pytest.mark.parametrize("name", ["span", "multi_label"])
def test_a_share_of_what_has_no_answer_is_not_shown(name):
    metrics = {f"{name}_loss": 2.092, f"{name}_accuracy": 0.715}
    more = {"answer_class_loss": 0.35, "answer_class_accuracy": 0.5625}
    shown = reports.format_metrics({**metrics, **more})
    assert shown == f"{name}_loss 2.092 | answer_class_loss 0.35 56.2%"


def test_a_damaged_line_of_the_metrics_is_named(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 2}\n{"st\n{"step": 6}\n')
    with one_line(r"metrics\.jsonl, line 2' is not JSON"):
        reports.read(str(tmp_path))


def test_an_incomplete_last_line_and_later_ones_are_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for record in ({"step": 2, "eval_loss": 1.5}, {"step": 4, "loss": math.nan}, {"step": 6}):
        reports.write(str(tmp_path), record)
    content = path.read_text()
    path.write_text(f'{content}{{"st')
    reports.truncate(str(tmp_path), 4)
    assert path.read_text() == "".join(content.splitlines(keepends=True)[:2])
    assert reports.has_evaluation(str(tmp_path), 2)
    assert not reports.has_evaluation(str(tmp_path), 4)


def test_numbers_that_were_reported_and_saved_do_not_stay_in_memory(tmp_path):
    step, value = 123_457, 0.71828
    before = sys.getrefcount(step), sys.getrefcount(value)
    with trackers.tracking([], str(tmp_path), tiny_run.settings()) as track:
        track({"step": step, "loss": value})
    checkpoint = tf.train.Checkpoint(step=tf.Variable(0, dtype=tf.int64))
    training_checkpoint.save(checkpoint, str(tmp_path), step)
    assert (sys.getrefcount(step), sys.getrefcount(value)) == before
