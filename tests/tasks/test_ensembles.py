"""Ensembles of every kind, and bin/score ensemble."""

import pytest
from refusals import one_line
from repository import ROOT
from tiny_tasks import OWN, OWN_PREDICTIONS, answer, choice, content, write_predictions

from albert_tf.kinds import task_table
from albert_tf.tasks import ensembles, predictions

PROGRAM = ROOT / "bin/score ensemble"
SQUAD1, SQUAD2 = task_table.get("squad1"), task_table.get("squad2")
SURE, UNSURE = choice("good", [0.125, 0.875]), choice("bad", [0.5625, 0.4375])


def average(task, *members):
    """The ensemble's predictions."""
    contents = [content(task, member, checkpoint=f"run-{i}") for i, member in enumerate(members)]
    return ensembles.average({x["checkpoint"]: x for x in contents})["predictions"]


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        # Two of three prefer "bad", by a little; the third prefers "good" by much.
        ((UNSURE, UNSURE, SURE), choice("good", [1.25 / 3, 1.75 / 3])),
        # The first label wins a tie.
        ((choice("good", [0.25, 0.75]), choice("bad", [0.75, 0.25])), choice("bad", [0.5, 0.5])),
        ((SURE,), SURE),
    ],
)
def test_probabilities_are_averaged(members, expected):
    assert average(OWN, *({"é": member} for member in members)) == {"é": expected}


def test_numbers_and_null_odds_are_averaged():
    members = [{"0": {"prediction": value}} for value in (2.0, 4.5, 4)]
    assert average(task_table.get("sts-b"), *members) == {"0": {"prediction": 3.5}}
    one = {"q": answer(("a", 1.0), null_odds=-3.0)}
    other = {"q": answer(("b", 0.75), ("a", 0.25), null_odds=4.0)}
    averaged = average(SQUAD2, one, other)["q"]
    assert (averaged["prediction"], averaged["null_odds"]) == ("a", 0.5)


def test_answers_are_summed_by_text():
    """No member's first answer need win; a text stands where the first that names it has it."""
    members = (
        {"q": answer(("in Zürich", 0.5), ("Zürich", 0.25), ("x", 0.25)), "r": answer()},
        {"q": answer(("the river", 0.5), ("Zürich", 0.375)), "r": answer()},
        {"q": answer(("Zürich", 0.375), ("in Zürich", 0.25)), "r": answer()},
    )
    averaged = average(SQUAD1, *members)
    assert averaged["r"] == answer()
    assert averaged["q"]["prediction"] == "Zürich"
    assert [(a["text"], a["probability"]) for a in averaged["q"]["nbest"]] == [
        ("Zürich", pytest.approx(1 / 3)),
        ("in Zürich", pytest.approx(0.25)),
        ("the river", pytest.approx(1 / 6)),  # as long as the longest list
    ]
    assert averaged["q"]["nbest"][0] | {"probability": 0.25} == members[0]["q"]["nbest"][1]
    twice = ({"q": answer(("a", 0.5), ("b", 0.25), ("b", 0.375))}, {"q": answer(("b", 0.5))})
    assert average(SQUAD1, *twice)["q"]["prediction"] == "b"


MEMBER = {"0": SURE, "1": choice("bad", [1.0, 0.0])}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (content(task_table.get("mrpc"), {}), r"b\.json has task='mrpc', a\.json has 'own'"),
        (content(OWN, MEMBER, split="test"), r"b\.json has split='test', a\.json has 'dev'"),
        (content(OWN, {"0": MEMBER["0"]}), r"b\.json: 1 missing \('1'\): predict the whole split"),
    ],
)
def test_files_that_do_not_go_together_are_refused(other, message):
    with one_line(message):
        ensembles.average({"a.json": content(OWN, MEMBER), "b.json": other})


def test_the_program(run_program, tmp_path, capsys):
    better = dict(OWN_PREDICTIONS, x=choice("bad", [0.95, 0.05]))
    one, other = (f"{tmp_path}/run-{number}.json" for number in (1, 2))
    write_predictions(one, OWN, OWN_PREDICTIONS, checkpoint=["run-1", "run-2"])
    write_predictions(other, OWN, better, checkpoint="run-3")
    output = f"{tmp_path}/run-all.json"
    command = (PROGRAM, f"--predictions={tmp_path}/run-*.json,{other}", f"--output={output}")
    assert not run_program(*command)
    assert capsys.readouterr().out == f"written to {output}\n"
    made = predictions.read(output)
    assert made["checkpoint"] == ["run-1", "run-2", "run-3"]  # a file that is named twice is one
    assert made["predictions"]["x"] == choice("bad", pytest.approx([0.525, 0.475]))
    assert "data" not in made
    # Run twice, the command would average its own output.
    assert "run-all.json' is one of the inputs. Use another file." in run_program(*command)
    data = {"file": "dev.tsv"}
    contents = [content(OWN, MEMBER) | {"data": data} for _ in range(2)]
    assert ensembles.average(dict(enumerate(contents)))["data"] == data
