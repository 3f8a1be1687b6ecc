"""TF_CONFIG from Slurm's variables."""

import runpy

import pytest
from repository import ROOT

MODULE = runpy.run_path(str(ROOT / "examples/clusters/tf_config.py"))


@pytest.mark.parametrize(
    ("nodes", "hosts"),
    [
        ("one", ["one"]),
        ("a,b-2", ["a", "b-2"]),
        ("node[08-10,12],login", ["node08", "node09", "node10", "node12", "login"]),
        ("gpu[1-2].site", ["gpu1.site", "gpu2.site"]),
    ],
)
def test_lists_of_nodes(nodes, hosts):
    assert [*MODULE["expand"](nodes)] == hosts


def test_a_task_knows_its_place():
    variables = {"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_PROCID": "3", "SLURM_NTASKS": "4"}
    assert MODULE["make"](variables, 5000) == {
        "cluster": {"worker": ["n1:5000", "n1:5001", "n2:5000", "n2:5001"]},
        "task": {"type": "worker", "index": 3},
    }


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "Run it with srun"),
        (
            {"SLURM_JOB_NODELIST": "a,b", "SLURM_PROCID": "0", "SLURM_NTASKS": "3"},
            "different numbers of tasks",
        ),
    ],
)
def test_what_is_not_a_job(variables, message):
    with pytest.raises(SystemExit, match=message):
        MODULE["make"](variables)
