"""How the time of each regular expression of the package grows with a text made against it.

For every pattern, texts with a way into each of its loops, a word repeated and an end that does not match are tried, and the
slowest is doubled three times. The exponent is the growth of the time over these doublings: 1 is linear.
"""

from __future__ import annotations

import argparse
import math
import re
import time
from collections.abc import Callable
from itertools import islice

from tests.laws.backtracking import Mode, hard_texts
from tests.laws.patterns import Pattern, find_patterns
from tokenizers import Regex, normalizers

from bench.results import parse, write

TRIED, SHORT, LONG, SECONDS = 3000, 2_000, 1_000_000, 0.01
LIMIT = 1.2


def main() -> None:
    grown = {}
    for pattern in find_patterns():
        for mode in pattern.modes:
            exponent, text = measure(pattern, mode)
            grown[f"{pattern.place} {mode} {pattern.theirs or pattern.text}"] = exponent
            print(
                f"{exponent:5.2f}  {pattern.place}  {mode}  {pattern.theirs or pattern.text!r}  on {text[:12]!r}…",
                flush=True,
            )
    worst = max(grown, key=grown.__getitem__)
    figures = {"patterns": len(grown), "worst exponent": round(grown[worst], 2), "worst": worst, "limit": LIMIT}
    title = "Regular expressions: growth of their time on texts made against them"
    print(write("regular_expressions", title=title, command="python -m bench.regular_expressions", figures=figures))


def measure(pattern: Pattern, mode: Mode) -> tuple[float, str]:
    """The exponent on the slowest text, and that text."""
    run = _runner(pattern, mode)
    texts = [*islice(hard_texts(pattern.text, pattern.flags, mode, SHORT), TRIED)]
    if not texts:  # no loop: nothing grows
        return 0.0, ""
    slowest = max(range(len(texts)), key=lambda at: min(_time(run, texts[at]) for _ in range(2)))

    def text(length: int) -> str:
        return next(islice(hard_texts(pattern.text, pattern.flags, mode, length), slowest, None))

    length = SHORT
    while (least := _time(run, text(length))) < SECONDS and length < LONG:
        length *= 2
    most = min(_time(run, text(8 * length)) for _ in range(3 if least < 1 else 1))
    least = min(least, *(_time(run, text(length)) for _ in range(5)))
    return max(0.0, math.log2(most / least) / 3), texts[slowest]


def _runner(pattern: Pattern, mode: Mode) -> Callable[[str], object]:
    if pattern.theirs:
        return normalizers.Replace(Regex(pattern.theirs), "").normalize_str
    made = re.compile(pattern.text, pattern.flags)
    return {
        "search": lambda text: sum(1 for _ in made.finditer(text)),
        "match": made.match,
        "fullmatch": made.fullmatch,
    }[mode]


def _time(run: Callable[[str], object], text: str) -> float:
    start = time.process_time()
    run(text)
    return time.process_time() - start


if __name__ == "__main__":
    parse(argparse.ArgumentParser(prog="python -m bench.regular_expressions", description=__doc__))
    main()
