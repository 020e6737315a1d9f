"""Attackers of all kinds at once; `python -m tests.serve.hostile_clients` measures each for itself, beside a bare server."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("schemathesis", reason="needs schemathesis; make test installs it")

from tests.serve.hostile_clients import ATTACKS, BOUNDS, measure_attack, start_attacked

SECONDS = 2.0
STRUCTURE = ("health failed", "unanswered", "failed", "memory MB", "log MB/min", "tracebacks", "recovery s")
"""Bounds that hold on a machine of any speed."""


def test_a_server_answers_while_it_is_attacked_in_every_way(models: dict[str, Path], tmp_path: Path) -> None:
    with start_attacked(models, tmp_path) as running:
        found = measure_attack(running, [*ATTACKS], SECONDS, connections=2)
        over = {name: found.figures[name] for name in STRUCTURE if found.figures[name] > BOUNDS[name]}
        assert not over, "\n".join([str(found.figures), *found.list_examples()])
        assert found.figures["rate"] > 0 and {"200", "400", "401"} <= {*found.figures["statuses"]}, found.figures
        assert all(seen.visits for seen in found.seen.values())
        assert "Traceback" not in running.log.read_text()
