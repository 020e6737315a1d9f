"""Weights of chosen rows of a long text, and how soon the page of a large one opens.

`python -m bench.look_inside` reads 16,384 tokens with a decoder, with fused attention, and records the exact weights of four
rows and two heads: the memory at most, beside a pass that records nothing, and the difference to the formula. Then it opens the
page of 512 tokens in 12 layers of 12 heads in Chromium and waits until the last map is drawn.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from bench.entry import lack, parse
from bench.launch import call
from bench.results import write
from regard.families import bert, gpt
from regard.interpret.look_page import render_page
from regard.interpret.view import look_at
from regard.machine import peak_memory
from regard.nn.core.context import Tape
from regard.nn.core.coords import Coords
from regard.tasks.common.forward_pass import ForwardPass

LENGTH, ROWS, HEADS = 16_384, [0, 5_000, 12_345, 16_383], [0, 3]
SHAPE: dict[str, Any] = dict(width=64, depth=2, heads=4, hidden=128, vocab=100, dropout=0.0)
TIMES = 5


def read_rows(length: int, recorded: bool) -> dict[str, float]:
    """One pass in this process: its memory, and how far the recorded rows are from the formula."""
    net = gpt.spec(**SHAPE, length=length).build(seed=1).eval()
    ids = torch.randint(0, 100, (1, length), generator=torch.Generator().manual_seed(1))
    rows = [row * length // LENGTH for row in ROWS]
    tape = Tape("decoder.blocks.1.mix.weights", "decoder.blocks.0", rows=rows, heads=HEADS) if recorded else Tape()
    with torch.no_grad():
        net(ids, Coords.span(length), tape=tape)
    peak = peak_memory() / 2**20
    if not recorded:
        return {"peak MB": round(peak)}
    mix, norm = net.decoder.blocks[1].mix, net.decoder.blocks[1].mix_norm  # type: ignore[union-attr, index]
    with torch.no_grad():
        x = norm(tape.kept["decoder.blocks.0"][0]).double()
        q, k = (x @ part.weight.double().T + part.bias.double() for part in (mix.q, mix.k))
    found, worst = tape.kept["decoder.blocks.1.mix.weights"][0].double(), 0.0
    for i, head in enumerate(HEADS):
        own = slice(head * 16, head * 16 + 16)
        for j, row in enumerate(rows):
            wanted = (q[row, own] @ k[: row + 1, own].T / 4).softmax(-1)
            worst = max(
                worst, float((found[i, j, : row + 1] - wanted).abs().max()), float(found[i, j, row + 1 :].sum())
            )
    return {"peak MB": round(peak), "largest difference": worst}


def find_chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


def open_page(tokens: int) -> dict[str, float]:
    """Seconds until a page of 12 × 12 heads is drawn, the best and the median of several times."""
    from playwright.sync_api import sync_playwright

    net = bert.spec(width=48, depth=12, heads=12, hidden=24, vocab=11, length=tokens).build(seed=1).eval()
    ids = torch.randint(3, 11, (tokens,), generator=torch.Generator().manual_seed(1)).tolist()
    read = ForwardPass.of(net, ids, [-100] * tokens)
    html = render_page([look_at(net, read, text="long", output="", title="long", names=list("abcdefghijk"))])
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        path = Path(folder) / "page.html"
        path.write_text(html, encoding="utf-8")
        browser = play.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox", "--disable-gpu"])
        seconds = []
        for _ in range(TIMES):
            page = browser.new_page()
            began = time.perf_counter()
            page.goto(path.as_uri())
            assert page.locator(".thumb").count() == 144
            seconds.append(time.perf_counter() - began)
            page.close()
        browser.close()
    return {
        "MB": round(len(html) / 1e6, 2),
        "seconds, best": min(seconds),
        "seconds, median": sorted(seconds)[TIMES // 2],
    }


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m bench.look_inside", description=__doc__)
    arguments.add_argument("--worker", choices=("recorded", "plain"))
    said = parse(arguments)
    length = 256 if said.smoke else LENGTH
    if said.worker:
        print(json.dumps(read_rows(length, said.worker == "recorded")))
        return
    if find_spec("playwright") is None or find_chromium() is None:
        lack("needs Chromium, which opens the page, and the package playwright")
    figures: dict[str, Any] = {}
    for part, title in (("plain", "nothing recorded"), ("recorded", "4 rows of 2 heads recorded")):
        told = call(["bench.look_inside", "--worker", part, *["--smoke"] * said.smoke])
        figures[title] = json.loads(told.splitlines()[-1])
    figures["4 rows of 2 heads recorded"]["MB that all weights of one layer would take"] = round(
        4 * 4 * length**2 / 2**20
    )
    figures["the page of 512 tokens, 12 × 12 heads"] = {
        k: round(v, 3) for k, v in open_page(64 if said.smoke else 512).items()
    }
    print(json.dumps(figures, indent=2, ensure_ascii=False))
    title = f"Chosen rows of {LENGTH:,} tokens, and a page of 512 tokens in 12 × 12 heads"
    print(write("look-inside", title=title, figures=figures))


if __name__ == "__main__":
    main()
