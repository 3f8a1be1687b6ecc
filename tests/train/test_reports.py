import pytest

from albert_tf.train import reports

PRETRAINING = {
    "loss": 11.0717,
    "masked_lm_loss": 10.228,
    "masked_lm_accuracy": 0.12941,
    "sentence_order_loss": 0.84371,
    "sentence_order_accuracy": 0.62512,
    "learning_rate": 0.00018753,
    "gradient_norm": 1.5,
}


@pytest.mark.parametrize("seconds_left", [9.0, 40 * 3600.0])
def test_a_progress_line_fits_100_columns(seconds_left):
    speed = {"sequences_per_second": 11_079.72, "seconds_left": seconds_left}
    line = reports.line({"step": 100_000, **PRETRAINING, **speed}, 125_000)
    assert line.startswith(
        "step 100000/125000 | mlm 10.23 12.9% | sop 0.8437 62.5% | lr 0.000188 |"
    )
    assert line.endswith(" left")
    assert len(line) <= 100


def test_metrics_of_a_task_keep_their_names():
    assert reports.format_metrics({"exact": 50.25, "f1": 66.5}) == "exact 50.25 | f1 66.5"
    assert reports.format_metrics({"accuracy": 0.5}) == "accuracy 0.5"
