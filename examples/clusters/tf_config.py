"""Prints TensorFlow's TF_CONFIG for a task of Slurm, from Slurm's variables.

#SBATCH --nodes=2 --ntasks-per-node=1
srun bash -c 'export TF_CONFIG=$(python examples/clusters/tf_config.py); bin/run_pretraining ...'
"""

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping

PORT = 8476  # the first port; further tasks on a node use the next ones
# A name with a list of numbers, such as node[01-03,07], or a plain name.
_HOSTS = re.compile(r"([^,\[]+)(?:\[([^\]]+)\])?([^,]*)(?:,|$)")


def make(variables: Mapping[str, str], port: int = PORT) -> dict:
    """Returns the cluster of a job, and this task's place in it.

    Raises `SystemExit` outside a job, or if its nodes run different numbers of tasks.
    """
    nodes, rank = variables.get("SLURM_JOB_NODELIST"), variables.get("SLURM_PROCID")
    if not nodes or rank is None:
        sys.exit("tf_config: there is no SLURM_JOB_NODELIST and SLURM_PROCID. Run it with srun.")
    hosts = [*expand(nodes)]
    number, rest = divmod(int(variables["SLURM_NTASKS"]), len(hosts))
    if rest:
        sys.exit("tf_config: the nodes run different numbers of tasks. Set --ntasks-per-node.")
    workers = [f"{host}:{port + i}" for host in hosts for i in range(number)]
    return {"cluster": {"worker": workers}, "task": {"type": "worker", "index": int(rank)}}


def expand(nodes: str) -> Iterator[str]:
    """Yields the hosts of a list such as `node[01-03,07],login`."""
    for name, numbers, end in _HOSTS.findall(nodes):
        for part in numbers.split(",") if numbers else [""]:
            first, _, last = part.partition("-")
            width = len(first)
            span = range(int(first), int(last) + 1) if last else ()
            yield from (f"{name}{number:0{width}}{end}" for number in span)
            if not last:
                yield f"{name}{part}{end}"


if __name__ == "__main__":
    print(json.dumps(make(os.environ)))
