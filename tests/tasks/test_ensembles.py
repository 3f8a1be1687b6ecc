import pytest
from tiny_tasks import OWN, answer, choice, content

from albert_tf.errors import UserError
from albert_tf.kinds import task_table
from albert_tf.tasks import ensembles

SQUAD1, SQUAD2 = task_table.get("squad1"), task_table.get("squad2")


def average(task, *members):
    """The ensemble's predictions."""
    contents = {
        f"{i}.json": content(task, member, checkpoint=f"run-{i}")
        for i, member in enumerate(members)
    }
    return ensembles.average(contents)["predictions"]


def test_probabilities_are_averaged_and_outvote_labels():
    """Two of three prefer "bad", by a little; the third prefers "good" by much."""
    sure, unsure = choice("good", [0.125, 0.875]), choice("bad", [0.5625, 0.4375])
    averaged = average(OWN, {"é": unsure}, {"é": unsure}, {"é": sure})
    assert averaged == {"é": choice("good", [1.25 / 3, 1.75 / 3])}


def test_the_first_label_wins_a_tie():
    members = ({"0": choice("good", [0.25, 0.75])}, {"0": choice("bad", [0.75, 0.25])})
    assert average(OWN, *members) == {"0": choice("bad", [0.5, 0.5])}


def test_numbers_are_averaged():
    task = task_table.get("sts-b")
    members = [{"0": {"prediction": value}, "1": {"prediction": 1.0}} for value in (2.0, 4.5, 4)]
    assert average(task, *members) == {"0": {"prediction": 3.5}, "1": {"prediction": 1.0}}


def test_answers_are_summed_by_text():
    """No member's first answer need win; a text stands where the first that names it has it."""
    members = (
        {"q": answer(("in Zürich", 0.5), ("Zürich", 0.25), ("x", 0.25))},
        {"q": answer(("the river", 0.5), ("Zürich", 0.375))},
        {"q": answer(("Zürich", 0.375), ("in Zürich", 0.25))},
    )
    averaged = average(SQUAD1, *members)["q"]
    assert averaged["prediction"] == "Zürich"
    assert [(a["text"], a["probability"]) for a in averaged["nbest"]] == [
        ("Zürich", pytest.approx(1 / 3)),
        ("in Zürich", pytest.approx(0.25)),
        ("the river", pytest.approx(1 / 6)),  # as long as the longest list
    ]
    assert averaged["nbest"][0] | {"probability": 0.25} == members[0]["q"]["nbest"][1]


def test_a_text_that_a_member_names_twice_counts_twice():
    members = ({"q": answer(("a", 0.5), ("b", 0.25), ("b", 0.375))}, {"q": answer(("b", 0.5))})
    assert average(SQUAD1, *members)["q"]["prediction"] == "b"


def test_questions_without_candidates_stay_so():
    assert average(SQUAD1, {"q": answer()}, {"q": answer()}) == {"q": answer()}


def test_null_odds_are_averaged():
    members = (
        {"q": answer(("a", 1.0), null_odds=-3.0)},
        {"q": answer(("b", 0.75), ("a", 0.25), null_odds=4.0)},
    )
    averaged = average(SQUAD2, *members)["q"]
    assert (averaged["prediction"], averaged["null_odds"]) == ("a", 0.5)


def test_one_file_stays_as_it_is():
    member = {"0": choice("good", [0.25, 0.75])}
    one = ensembles.average({"a.json": content(OWN, member, checkpoint="run/ckpt-3")})
    assert one == content(OWN, member, checkpoint=["run/ckpt-3"])


def test_an_ensemble_of_ensembles_names_every_checkpoint():
    member = {"0": choice("good", [0.25, 0.75])}
    contents = {
        "a.json": content(OWN, member, checkpoint=["run-1", "run-2"]),
        "b.json": content(OWN, member, checkpoint="run-3"),
    }
    assert ensembles.average(contents)["checkpoint"] == ["run-1", "run-2", "run-3"]


MEMBER = {"0": choice("good", [0.25, 0.75]), "1": choice("bad", [1.0, 0.0])}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            content(task_table.make_own("classification", ["good", "bad"]), MEMBER),
            r"b\.json has labels=\['good', 'bad'\], a\.json has \['bad', 'good'\]: average",
        ),
        (
            content(task_table.get("mrpc"), {}),
            r"b\.json has task='mrpc', a\.json has 'own': average",
        ),
        (content(OWN, MEMBER, split="test"), r"b\.json has split='test', a\.json has 'dev'"),
        (content(OWN, {"0": MEMBER["0"]}), r"b\.json: 1 missing \('1'\): predict the whole split"),
        (content(OWN, {**MEMBER, "é": MEMBER["0"]}), r"b\.json: 1 of unknown examples \('é'\)"),
    ],
)
def test_files_that_do_not_go_together_are_refused(other, message):
    with pytest.raises(UserError, match=message):
        ensembles.average({"a.json": content(OWN, MEMBER), "b.json": other})
