"""Summaries from a table of texts and summaries, and what was copied. `python examples/summarize.py pairs.tsv`."""

import sys
from pathlib import Path

import torch

import regard
from regard.nn.core.context import Tape


def main(table: str, out: str = "runs/summarize") -> None:
    model = regard.train("summarize", [table], out=out)
    print(regard.evaluate(out, table, samples=200))

    text, wanted = Path(table).read_text(encoding="utf-8").splitlines()[0].split("\t")
    (summary,) = model.run([text])
    print(f"\ntext       {text}\nreference  {wanted}\nmodel      {summary}\n")

    tape = Tape("head.copy", "head.gate")
    step = model.task.forward_pass(model.net, text, summary)
    with torch.no_grad():
        step.run(model.net, tape)
    gates, sources = (tape.kept[f"head.{name}"][0] for name in ("gate", "copy"))
    for token, gate, copied in zip([*step.tokens[1:], "end"], gates, sources, strict=True):
        share, place = 1 - float(gate.sigmoid()), int(copied.argmax())
        print(f"  {token:<16} {share:4.0%} copied, most of it from {step.source_tokens[place]!r}")


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) > 1 else print(__doc__)
