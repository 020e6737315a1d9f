"""Search by meaning: the texts nearest to a question, whatever words they use. `python examples/search.py MODEL "a question"`.

MODEL is any sentence embedding model of ours, such as a converted one:
`regard convert path/to/all-MiniLM-L6-v2 runs/minilm`.
"""

import sys
from collections.abc import Sequence

import regard

NOTES = [
    "The meeting was moved to Thursday because the projector is broken.",
    "Our cat sleeps on the radiator all winter.",
    "The train to Vienna leaves from platform nine at dawn.",
    "To stop the tap from dripping, replace the rubber washer inside.",
    "She finished her first marathon in just under four hours.",
    "The bakery around the corner sells out of rye bread by noon.",
    "Interest rates went up again, so our mortgage will cost more.",
    "Boil the pasta two minutes less than the packet says.",
    "The doctor told him to rest his knee and come back in a month.",
    "The telescope showed the rings of Saturn quite clearly.",
]


def search(model: regard.Model, question: str, texts: Sequence[str], count: int = 3) -> list[tuple[float, str]]:
    """The nearest texts with their cosines, best first."""
    near = model.embed(texts) @ model.embed([question])[0]
    return [(float(near[i]), texts[i]) for i in near.argsort(descending=True)[:count]]


def main(path: str, questions: Sequence[str]) -> None:
    model = regard.load(path)
    for question in questions or ("plumbing repair", "Where can I see planets?", "running a long race", "pets"):
        print(question)
        for cosine, text in search(model, question, NOTES):
            print(f"  {cosine:5.2f}  {text}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "runs/minilm", sys.argv[2:])
