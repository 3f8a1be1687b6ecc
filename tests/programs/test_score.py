"""bin/score: predictions files and official ones of every kind, with the official rules."""

import json
from pathlib import Path

import pytest
from input_files import write_race, write_squad
from repository import ROOT
from tiny_tasks import answer, choice, write_predictions

from albert_tf.kinds import task_table

PROGRAM = ROOT / "bin/score predictions"


@pytest.fixture
def score(run_program, tmp_path, capsys):
    """Runs the program on contents; returns (scores, log) or what it exits with."""

    def run(task, predictions, data, *more):
        if not isinstance(predictions, Path):
            path = tmp_path / "p.json"
            path.write_text(json.dumps(predictions))
            predictions = path
        stopped = run_program(
            PROGRAM, f"--task={task}", f"--predictions={predictions}", f"--data_file={data}", *more
        )
        output = capsys.readouterr()
        return stopped or (json.loads(output.out), output.err)

    return run


def squad(tmp_path, *questions):
    return write_squad(tmp_path / "dev.json", "the lamp and the cat", *questions)


def test_squad1_ignores_unknown_questions_and_missing_ones_score_0(score, tmp_path):
    scores, log = score("squad1", {"q0": "the lamp", "x": "cat"}, squad(tmp_path, "lamp", "cat"))
    assert scores == {"exact": 50.0, "f1": 50.0, "total": 2, "missing": 1}
    assert log == (
        "as in SQuAD's official script, 1 predictions of unknown questions (x) do not count and "
        "1 questions without a prediction (q1) score 0\n"
    )


def test_squad2_with_odds_and_without(score, tmp_path):
    data = squad(tmp_path, "lamp", None)
    texts = {"q0": "lamp", "q1": "cat", "x": "cat"}
    scores, log = score("squad2", texts, data)
    assert (scores["exact"], scores["HasAns_exact"], scores["NoAns_exact"]) == (50, 100, 0)
    assert not any(name.startswith("best_") for name in scores)
    assert "1 predictions of unknown questions (x) do not count" in log
    odds = tmp_path / "odds.json"
    odds.write_text(json.dumps({"q0": 0.2, "q1": 0.9, "y": 3}))
    flag = f"--na_prob_file={odds}"
    scores, _ = score("squad2", texts, data, flag)
    # 1, as in the official script: no odds are above it.
    assert (scores["exact"], scores["best_exact"], scores["best_exact_thresh"]) == (50, 100, 0.2)
    assert score("squad2", texts, data, flag, "--null_threshold=0.5")[0]["exact"] == 100
    message = score("squad2", {"q0": "lamp"}, data)
    assert message == (
        "score predictions: 1 questions have no prediction, such as q1: evaluate-v2.0.py stops "
        "there, too. Predict the whole file."
    )
    odds.write_text('{"q0": 0.2}')
    assert "1 predictions have no odds, for example q1" in score("squad2", texts, data, flag)


def test_own_predictions_files(score, tmp_path):
    squad2, data = task_table.get("squad2"), squad(tmp_path, "lamp", None)
    decoded = {
        "q0": answer(("lamp", 1.0), null_odds=-1.0),
        "q1": answer(("cat", 1.0), null_odds=0.5),
    }
    path = Path(write_predictions(tmp_path / "a.json", squad2, decoded))
    assert score("squad2", path, data)[0]["exact"] == 100
    assert score("squad2", path, data, "--null_threshold=0.5")[0]["exact"] == 50
    ends = score("squad2", path, data, "--confidence")[0]
    assert ends["exact_from"] < ends["exact"] == ends["exact_to"] == 100
    assert "is for --task=squad2, not squad1: pass that" in score("squad1", path, data)
    assert "is only for plain squad2" in score("squad2", path, data, f"--na_prob_file={path}")


def test_tasks_with_labels(score, tmp_path):
    data = tmp_path / "dev.tsv"
    data.write_text("sentence1\tsentence2\tlabel\na\tb\tentailment\nc\td\tnot_entailment\n")
    right, wrong = "entailment", "not_entailment"
    assert score("rte", {"0": right, "1": right}, data) == ({"accuracy": 0.5}, "")
    decoded = {"0": choice(right, [0.9, 0.1]), "1": choice(wrong, [0.1, 0.9])}
    path = Path(write_predictions(tmp_path / "a.json", task_table.get("rte"), decoded))
    assert score("rte", path, data)[0] == {"accuracy": 1.0}
    assert "1 missing ('1')" in score("rte", {"0": right}, data)
    assert "1 are of unknown examples ('9')" in score(
        "rte", {"0": right, "1": right, "9": right}, data
    )
    message = score("rte", {"0": "yes", "1": right}, data)
    assert message.endswith("of '0' does not fit rte, whose kind is classification: 'yes'.")
    assert "--null_threshold is only for squad2" in score("rte", path, data, "--null_threshold=0")


def test_numbers_of_a_table_of_ones_own(score, tmp_path):
    data = tmp_path / "dev.csv"
    data.write_text("text,stars,name\na,1,x\nb,2,y\nc,3,z\n")
    columns = ("--kind=regression", "--label_column=stars", "--id_column=name")
    scores, _ = score("own", {"x": 1, "y": 2.5, "z": 3}, data, *columns)
    assert scores["spearman"] == pytest.approx(1)
    assert "does not fit own" in score("own", {"x": "1", "y": 2, "z": 3}, data, *columns)


def test_predictions_of_the_held_out_tenth_are_scored_with_the_whole_table(score, tmp_path):
    data = tmp_path / "all.csv"
    data.write_text("text,label\n" + "".join(f"text {k},{k}\n" for k in range(23)))
    scores, log = score("own", {"5": 1, "15": 2.5}, data, "--kind=regression")
    assert scores["spearman"] == pytest.approx(1)
    assert "scoring the 2 examples that training held out" in log
    message = score("own", {"5": 1, "14": 2.5}, data, "--kind=regression")
    assert "2 predictions, but" in message and "Predict the whole file" in message


def test_race_is_scored_by_level(score, tmp_path):
    write_race(tmp_path)
    predicted = {"high1.txt-0": "A", "high1.txt-1": "B"}
    scores, _ = score("race", predicted, f"{tmp_path}/dev/high/*.txt")
    assert scores == {"accuracy": 0.5, "high_accuracy": 0.5}


@pytest.mark.parametrize("content", [[], {"q0": 3}])
def test_other_files_are_refused_in_one_line(content, score, tmp_path):
    message = score("squad1", content, squad(tmp_path, "lamp"))
    assert message.startswith("score predictions: ")
    assert "\n" not in message
