"""A study on two Ray nodes of which one is killed half-way: `python -m tests.studies.ray_nodes`.

The nodes are local ones, beside a head without processors. The table must be that of the same study without Ray.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0", "TOKENIZERS_PARALLELISM": "false"}

from regard.studies.run_study import study
from tests.studies.kill import SETTINGS, table

VARY = ["model.norm=pre,post"]
NOTICED = 60.0
"""Seconds until Ray has noticed that a node is gone: it asks now and then."""


def run_and_kill(folder: Path, *, seeds: int = 3) -> str:
    """What happened; AssertionError if the tables differ."""
    import ray
    from ray.cluster_utils import Cluster

    study("compare", "copy", vary=VARY, set=SETTINGS, seeds=seeds, out=folder / "here", processes=0)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    ray.init(cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    killed: list[str] = []

    def watch(said: str) -> None:
        """Kill a node when the first cell is done, with both nodes in the middle of one."""
        if said.startswith("cell 1 of") and not killed:
            killed.append(said)
            cluster.remove_node(nodes[0], allow_graceful=False)

    try:
        study("compare", "copy", vary=VARY, set=SETTINGS, seeds=seeds, out=folder / "ray", on="ray", notify=watch)
        end = time.monotonic() + NOTICED
        while (left := int(ray.cluster_resources().get("CPU", 0))) > 1 and time.monotonic() < end:
            time.sleep(0.5)
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert killed, "no node was killed"
    assert left == 1, f"{left} processors are left, not one"
    assert table(folder / "ray") == table(folder / "here")
    return f"the same table with a node killed after {killed[0].split(':')[0]}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as _scratch:
        print(run_and_kill(Path(_scratch), seeds=int((sys.argv[1:] or ["3"])[0])))
