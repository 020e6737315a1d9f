"""Memory does not grow with the corpus: every task reads, prepares, encodes and batches five times as much in the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CHILD = """
import json, sys, threading, time
from functools import cache
from pathlib import Path

import numpy as np

from bench import large_corpora
from bench.large_corpora import RECIPES, make_text
from regard import tasks
from regard.data import bucket, document_parts, line_store, pairs, scratch
from regard.tasks.common import encoded_pairs
from regard.tasks.common.training_hooks import augment, encode_to, order_batches

line_store.ROOM, scratch.ROOM, bucket.POOL, encoded_pairs.CHUNK = 1 << 18, 1 << 16, 1 << 11, 1 << 11
document_parts.MAX_SAMPLE, pairs.sample_pairs.__defaults__, pairs.MAX_SORTED = 1 << 19, (2000,), 1 << 12
document_parts.PIECE = 1 << 18
document_parts.plan_parts.__defaults__ = (1 << 18,)
large_corpora.REPEAT, large_corpora.language = 200_000, cache(large_corpora.language)
peak = 0.0

def anonymous():
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon")) / 1024

def watch():
    global peak
    while True:
        peak = max(peak, anonymous())
        time.sleep(0.002)

def prepare(name, size, folder):
    kind = tasks.find(name)
    path = folder / ("text.txt" if name in ("lm", "mlm", "span") else "table.tsv")
    make_text(name, size, path)
    data = {**RECIPES[name]["data"], **kind.configure_data([str(path)]), "hold_out": 0.01}
    data = {key: value for key, value in data.items() if key in kind.Settings.__dataclass_fields__}
    settings = kind.Settings.parse(data)
    dataset = kind.read(settings, 1)
    task = kind.prepare(settings, dataset)
    train = augment(task, encode_to(task, folder / "tokens", dataset.train, dataset.fingerprint), 1, 0)
    batches = order_batches(task, train, tokens=1024, seed=1).epoch(0)
    for place in range(0, len(batches), len(batches) // 20 + 1):
        task.batch(train, batches[place])
    return len(train)

threading.Thread(target=watch, daemon=True).start()
folder, found = Path(sys.argv[1]), {}
for name in sys.argv[2:]:
    peaks, counts = [], []
    for size in (200_000, 500_000, 2_500_000):  # the first only loads what is needed
        place = folder / name / str(size)
        place.mkdir(parents=True)
        peak = 0.0
        counts.append(prepare(name, size, place))
        peaks.append(peak)
    found[name] = [*peaks[1:], *counts[1:]]
print(json.dumps(found))
"""
TASKS = ("lm", "mlm", "span", "classify", "tag", "embed")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system does not tell how much memory is whose")
def test_memory_does_not_grow_with_what_is_read(tmp_path: Path) -> None:
    """Held in lists, two megabytes more of text would take several hundred more of memory."""
    words = [sys.executable, "-c", CHILD, str(tmp_path), *TASKS]
    root = Path(__file__).resolve().parents[2]
    told = subprocess.run(words, capture_output=True, text=True, check=False, cwd=root)
    assert told.returncode == 0, told.stderr
    measured: dict[str, list[float]] = json.loads(told.stdout.splitlines()[-1])
    assert all(many > 3 * few for _, _, few, many in measured.values())
    grown = {task: f"{small:.0f} MB, then {large:.0f} MB" for task, (small, large, _, _) in measured.items()
             if large - small >= 25}  # fmt: skip
    assert grown == {}
