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

from bench.entry import parse
from bench.results import write
from regard.text.long_text import MAX_PIECE

TRIED, SHORT, LONG, SECONDS = 3000, 2_000, 1_000_000, 0.01
SMOKE = 5
"""Patterns, and texts for each, of a smoke run."""
LIMIT = 1.2


def main() -> None:
    said = parse(argparse.ArgumentParser(prog="python -m bench.regular_expressions", description=__doc__))
    patterns = find_patterns()
    some, tried, longest = (SMOKE, SMOKE, SHORT) if said.smoke else (len(patterns), TRIED, LONG)
    grown = {}
    for pattern in patterns[:some]:
        for mode in pattern.modes:
            exponent, text = measure(pattern, mode, tried, longest)
            grown[f"{pattern.place} {mode} {pattern.theirs or pattern.text}"] = exponent
            print(
                f"{exponent:5.2f}  {pattern.place}  {mode}  {pattern.theirs or pattern.text!r}  on {text[:12]!r}…",
                flush=True,
            )
    worst = max(grown, key=grown.__getitem__)
    figures = {"patterns": len(grown), "worst exponent": round(grown[worst], 2), "worst": worst, "limit": LIMIT}
    title = "Regular expressions: growth of their time on texts made against them"
    print(write("regular_expressions", title=title, figures=figures))


def measure(pattern: Pattern, mode: Mode, tried: int, longest: int) -> tuple[float, str]:
    """The exponent on the slowest text, and that text."""
    run = _runner(pattern, mode)
    texts = [*islice(hard_texts(pattern.text, pattern.flags, mode, SHORT), tried)]
    if not texts:  # no loop: nothing grows
        return 0.0, ""
    slowest = max(range(len(texts)), key=lambda at: min(_time(run, texts[at]) for _ in range(2)))

    def text(length: int) -> str:
        return next(islice(hard_texts(pattern.text, pattern.flags, mode, length), slowest, None))

    length = MAX_PIECE // 8 if pattern.theirs else SHORT  # the library never gets longer texts
    while not pattern.theirs and _time(run, text(length)) < SECONDS and length < longest:
        length *= 2
    short, long = text(length), text(8 * length)
    least = min(_time(run, short) for _ in range(9))
    most = min(_time(run, long) for _ in range(9 if least < 0.1 else 1))
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
    main()
