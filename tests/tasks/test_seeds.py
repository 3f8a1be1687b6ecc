import json

import pytest

from albert_tf.errors import UserError
from albert_tf.tasks import seeds


def test_several_runs_have_folders_of_their_own():
    assert seeds.list_folders("run", 1, 3) == seeds.list_folders("run", 1, None) == ["run"]
    assert seeds.list_folders("run", 2, 3) == ["run/seed-3", "run/seed-4"]


def test_folders_are_found_in_the_order_of_their_seeds(tmp_path):
    for name in ("seed-10", "seed-9", "seed-x", "other"):
        (tmp_path / name).mkdir()
    expected = [f"{tmp_path}/seed-9", f"{tmp_path}/seed-10"]
    assert seeds.list_folders(str(tmp_path), 2, None) == expected
    with pytest.raises(UserError, match=r"holds 2 runs \(seed-\*\), not 3"):
        seeds.list_folders(str(tmp_path), 3, None)
    with pytest.raises(UserError, match="holds 0 runs"):
        seeds.list_folders(str(tmp_path / "nothing"), 2, None)


def test_summary(tmp_path):
    scores = {5: 0.6, 6: 0.9, 7: 0.7, 8: 0.8}
    results = [
        seeds.Result(
            seed=seed, checkpoint="c", predictions=f"p{seed}", score=score, metrics={"f1": score}
        )
        for seed, score in scores.items()
    ]
    lines = seeds.summarize(str(tmp_path), results)
    content = json.loads((tmp_path / "summary.json").read_text())
    assert content["median"] == pytest.approx(0.75)
    assert content["mean"] == pytest.approx(0.75)
    assert content["sd"] == pytest.approx((0.05 / 3) ** 0.5)  # of a sample
    assert (content["best"], content["best_seed"]) == (0.9, 6)
    assert seeds.find_best(str(tmp_path), 4) == f"{tmp_path}/seed-6"
    assert seeds.find_best("run", 1) == "run"
    assert content["runs"][2] == {
        "seed": 7,
        "checkpoint": "c",
        "predictions": "p7",
        "score": 0.7,
        "metrics": {"f1": 0.7},
    }
    assert lines[0] == "seed 5: 0.6 p5"
    assert lines[-1].startswith("4 runs: median 0.75, mean 0.75, sd 0.1291, best 0.9 (seed 6)")
