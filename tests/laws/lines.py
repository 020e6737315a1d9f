"""N in, N out: the law that `regard run` obeys for every task, whatever a line is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tests.verbs.calling import call

LINES = (
    "", "a", " ", "nowhere.png", "\t", "a\0b", "\ufffd", "/dev/zero", "<mask>" * 150, "<s></s><pad><unk>", "x" * 3000, "\u2028",
    "/", "-", "a\tb",
)  # fmt: skip
"""What lines may be: nothing, paths to nowhere and to what has no end, special tokens, too much of something."""


def check_lines(run: Path, good: Sequence[str], *bad: str) -> None:
    """Each line has its line: the good ones what they give by themselves, one that cannot be read an empty one."""
    order = ("--no-sample", "--beam", "1")
    lines = [line for pair in zip(good * len(LINES), [*LINES, *bad], strict=False) for line in pair]
    stdin = "".join(f"{line}\n" for line in lines).encode()
    said = call("run", run, "--json", *order, stdin=stdin)
    rows = [json.loads(line) for line in said.lines]
    assert [row["source"] for row in rows] == lines
    failed = [i for i, row in enumerate(rows, 1) if "error" in row]
    alone = [json.loads(line) for line in call("run", run, "--json", *order, stdin="\n".join(good).encode()).lines]
    texts = {row["source"]: [each["text"] for each in row["outputs"]] for row in alone}
    for i, row in enumerate(rows):
        assert row["outputs"] == [] if "error" in row or not row["source"].strip() else row["outputs"] != []
        assert row["source"] not in texts or i % 2 or [each["text"] for each in row["outputs"]] == texts[row["source"]]
    assert {rows[i - 1]["source"] for i in failed} >= set(bad)
    assert not {rows[i - 1]["source"] for i in failed} & set(good)
    assert said.code == (2 if failed else 0)
    for i in failed:
        assert f"regard: input {i} has no output: " in said.err
    assert not failed or f"{len(failed)} of {len(lines)} inputs could not be read; their lines are empty" in said.err
    plain = call("run", run, *order, stdin=stdin)
    assert (len(plain.lines), plain.code) == (len(lines), said.code)
    assert [i for i in failed if plain.lines[i - 1]] == []
    assert "unexpected" not in said.err + plain.err
