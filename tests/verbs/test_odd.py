"""Ten thousand odd lines: as many come out, in their order, whatever bytes they are."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.close import assert_close
from tests.verbs.calling import ENVIRONMENT, UNKNOWN, call, start

pytestmark = pytest.mark.numeric

Draw = random.Random
LETTERS = "abcdefghij"


def of(alphabet: str, longest: int) -> Callable[[Draw], bytes]:
    """Strings of these characters."""
    return lambda draw: "".join(draw.choices(alphabet, k=draw.randint(1, longest))).encode(errors="surrogatepass")


def any_bytes(draw: Draw) -> bytes:
    return draw.randbytes(draw.randint(1, 40)).replace(b"\n", b"")


def any_text(draw: Draw) -> bytes:
    return "".join(chr(draw.randrange(0x110000)) for _ in range(draw.randint(1, 12))).encode(errors="replace")


KINDS: dict[str, Callable[[Draw], bytes]] = {
    "letters": of(LETTERS, 12),
    "words": of(LETTERS + "  ", 20),
    "empty": lambda draw: b"",
    "spaces": of(" \t\v\f\u00a0\u2003\u3000\x1c\x1f", 9),
    "separators": of(LETTERS + "\u2028\u2029\u0085\r", 9),
    "carriage return": lambda draw: b"\r" * draw.randint(1, 3),
    "controls": of("".join(map(chr, [*range(10), *range(11, 32), 127, 0x9B])), 9),
    "nul": lambda draw: b"ab\0c" * draw.randint(1, 4),
    "escape": lambda draw: b"\x1b[2J\x1b]0;x\x07abc",
    "bad utf-8": any_bytes,
    "overlong": lambda draw: b"\xc0\xaf\xe0\x80\xaf\xf8\x88\x80\x80\x80",
    "cut utf-8": lambda draw: "abc🙂".encode()[: -draw.randint(1, 3)],
    "surrogates": of("a\ud800\udfff", 5),
    "emoji": of("🙂👩‍👩‍👧🇩🇪✌🏽️", 9),
    "combining": of("\u0301\u0300\u0327\u20dd", 30),
    "stacked": of("a\u0301\u0302\u0303\u0334", 30),
    "right to left": of("שלום عالم\u202e\u200f", 12),
    "zero width": of("\u200b\u200c\u200d\u2060\ufeff", 6),
    "scripts": of("日本語한국어हिन्दीไทยΩЖ", 12),
    "ligatures": of("ﬁﷺ㌖½ß", 9),
    "not characters": of("\ufffe\uffff\U0010ffff\ufdd0\ue000", 6),
    "any text": any_text,
    "marks": lambda draw: draw.choice((b"<s> </s>", b"<pad>", b"<unk>", b"<2de> abc", b"[MASK]", b"@@ a@@", b"##a")),
    "markup": lambda draw: draw.choice((b'{"a": "b"}', b"--json", b"%s%n", b"$(ls)", b"'; --", b"\\n\\0", b"a\tb\tc")),
    "repeated": lambda draw: draw.choice((b"a", b"ab", b"abc ", b"!")) * draw.randint(10, 60),
    "long": lambda draw: of(LETTERS + " .", 1)(draw) * draw.randint(70, 300),
}


def odd_lines(count: int) -> list[bytes]:
    """Lines of every kind in turn, and a few that are very long."""
    draw, kinds = Draw(4), list(KINDS.values())
    lines = [kinds[i % len(kinds)](draw) for i in range(count)]
    assert not any(b"\n" in line for line in lines)
    lines[count // 3] = b"abcdefghij. " * 800
    lines[count // 2] = b"\xf0\x9f\x99" * 3_000
    return lines


def test_ten_thousand_odd_lines(model: Path) -> None:
    lines = odd_lines(10_000)
    said = call("run", model, stdin=b"".join(line + b"\n" for line in lines))
    assert said.code == 0
    assert len(said.lines) == 10_000
    texts = [line.removesuffix(b"\r").decode(errors="replace") for line in lines]
    for text, out in zip(texts, said.lines, strict=True):
        assert out == "" or text.strip()
        assert "\r" not in out
    notes = said.err.splitlines()
    assert [note.split("; ")[0].split(" ", 3)[3] for note in notes] == [
        "is not UTF-8",
        UNKNOWN,
        "is longer than the model can read",
    ]
    again = Draw(5).sample(range(10_000), 60)
    alone = call("run", model, stdin=b"".join(lines[i] + b"\n" for i in again))  # in another order, other company
    assert alone.lines == [said.lines[i] for i in again]
    assert len(set(alone.lines)) > 20, "what comes out depends on what goes in"


def test_a_long_line_is_read_in_pieces_and_its_outputs_are_joined(model: Path) -> None:
    long = "abc. " * 30 + "jihgf " * 20 + "j" * 100
    said = call("run", model, "--json", stdin=f"abc\n{long}\n{long}\n".encode())
    assert said.err == (
        "regard: input 2 is longer than the model can read; it is read in parts, as are later ones "
        "(cut leaves out the end instead)\n"
    )
    first, second, third = map(json.loads, said.lines)
    assert_close({**third, "source": ""}, {**second, "source": ""})  # its pieces stand in other places of a batch
    (output,) = second["outputs"]
    assert output["text"].startswith(" ".join([call("run", model, "abc.").out[:-1]] * 3))
    assert [w["text"] for w in output["words"]] == output["text"].split()
    assert [j for _, j in output["alignment"]] == list(range(len(output["words"])))
    assert 0 <= min(i for i, _ in output["alignment"]) <= max(i for i, _ in output["alignment"]) < 60
    assert len(first["outputs"]) == 1


def test_no_such_way_with_long_lines(model: Path) -> None:
    said = call("run", model, "--long", "spilt", "abc")
    assert (said.code, said.err) == (2, "regard: no way to treat long texts 'spilt'; did you mean 'split'?\n")


@pytest.mark.parametrize("tail", [b"\nabc\n", b""])
def test_a_line_of_ten_megabytes(model: Path, tail: bytes) -> None:
    """What is kept of it is bounded; the next line is the next line."""
    given = "é".encode() * 5_000_000 + tail
    with start("run", model, "--long", "cut") as process:
        out, err = process.communicate(given, timeout=120)
    assert process.returncode == 0
    assert out.count(b"\n") == 1 + bool(tail)
    assert err.decode().splitlines() == [
        "regard: line 1 has more than 1,048,576 bytes; the rest is left out, here and in later lines",
        f"regard: input 1 {UNKNOWN}",
        "regard: input 1 is longer than the model can read; the end is left out, here and in later inputs",
    ]


def test_a_long_line_takes_little_memory(model: Path, tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes("é".encode() * 50_000_000)
    # a process is charged for what its parent held when it was born: a small one stands between
    peak = "import resource as r, subprocess as s, sys; s.run(sys.argv[1:], check=True, stdout=s.DEVNULL, stderr=s.DEVNULL); "
    peak += "print(r.getrusage(r.RUSAGE_CHILDREN).ru_maxrss)"
    command = [sys.executable, "-c", peak, sys.executable, "-m", "regard", "run", str(model), "--long", "cut"]
    with (tmp_path / "long").open("rb") as given:
        said = subprocess.run(command, stdin=given, stdout=subprocess.PIPE, env=ENVIRONMENT, check=True, timeout=120)
    assert int(said.stdout) < 600_000, "in kB; the line has 100 MB, torch and the model take about 360"
