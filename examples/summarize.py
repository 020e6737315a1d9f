"""What a summary was copied from, token by token. `python examples/summarize.py runs/summarize "A long text."`."""

import sys

import torch

import regard
from regard.nn.core.context import Tape


def main(path: str, *texts: str) -> None:
    model = regard.load(path)
    for text, summary in zip(texts, model.run(list(texts)), strict=True):
        print(f"{text}\n→ {summary}\n")
        tape, step = Tape("head.gate", "head.copy"), model.task.forward_pass(model.net, text, summary)
        with torch.no_grad():
            step.run(model.net, tape)
        if not tape.kept:
            print("This model only writes; one with model.head.kind=pointer also copies.")
            continue
        gates, copies = (tape.kept[f"head.{name}"][0] for name in ("gate", "copy"))
        for token, gate, weights in zip([*step.tokens[1:], "end"], gates, copies, strict=True):
            source = step.source_tokens[int(weights.argmax())]
            print(f"  {token:<20} {1 - float(gate.sigmoid()):4.0%} copied, mostly from {source}")
        print()


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) > 2 else print(__doc__)
