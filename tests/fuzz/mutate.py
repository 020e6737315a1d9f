"""Mutants of files: bytes of any file, values of JSON and YAML, rows of tables; `headers.py` has the binary formats.

A mutator takes the bytes of an honest file and a random number generator, and returns other bytes. Everything comes from the
generator, so a seed gives the same mutants everywhere.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from ruamel.yaml import YAML

Mutator = Callable[[bytes, random.Random], bytes]
NUMBERS = (0, 1, 2, 127, 128, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**63 - 1, 2**63,
           2**64 - 1, 2**64, 2**100, 10**400)  # fmt: skip
TEXTS = (
    "", " ", "\n", "\0", "a\nregard: all fine", "\x1b[2J", "\u202e", "\ufeff", "\ud800", "é" * 3, "x" * 300,
    "x" * 100_000, "../../etc/passwd", "/dev/zero", "none", "null", "auto", "nan", "1e999", "%s%n{0}", "<pad>",
    "</s>", "[UNK]", "$A", "🙂", "\udcff", "(a+)+$", "[", "\\", "os.system", "__class__", "-1",
)  # fmt: skip
TOKENS = (
    b"\0", b"\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\n\n\n", b"\x1b[2J", "\u2028".encode(), b"\xed\xa0\x80",
    b'"', b"'", b"{", b"[", b"]", b"}", b",", b":", b"\t", b"\t\t\t", b"-1", b"1e999", b"NaN", b"Infinity", b"null",
    b"true", b"9" * 5000, b"&a *a", b"!!python/object:os.system", b"<<", b"? ", b"%YAML 3.0\n", b"---\n", b"...\n",
    b"# ", b"|\n", b">",
)  # fmt: skip


class Raw(str):
    """A value as it is to be written: a number of 6,000 digits, or what JSON does not have."""

    __slots__ = ()


RAWS = (
    "NaN", "Infinity", "-Infinity", "9" * 6000, "-" + "9" * 400, "1e999", "-0.0", "1e-400", "0x10", "01", "undefined",
    "0.1" + "0" * 5000,
)  # fmt: skip


def mutate_bytes(data: bytes, draw: random.Random) -> bytes:
    """One to eight small changes, or a large one."""
    if draw.random() < 0.1:
        return _replace_whole(data, draw)
    out = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 3, 8))):
        draw.choice(_CHANGES)(out, draw)
    return bytes(out)


def _replace_whole(data: bytes, draw: random.Random) -> bytes:
    makers: tuple[Callable[[], bytes], ...] = (
        lambda: b"",
        lambda: draw.randbytes(draw.choice((1, 8, 100, 5000))),
        lambda: draw.choice(TOKENS) * draw.choice((1, 100, 20_000)),
        lambda: data * draw.choice((2, 3, 50)),
        lambda: data[::-1],
        lambda: data[: draw.randrange(len(data) + 1)],
        lambda: data.decode(errors="replace").encode("utf-16"),
        lambda: data.replace(b"\n", b"\r\n"),
        lambda: data.replace(b"\n", b"\r"),
        lambda: b"\x1f\x8b" + data,
    )
    return draw.choice(makers)()


def _place(out: bytearray, draw: random.Random) -> int:
    """Any place, but often one near the beginning, where headers are."""
    return draw.randrange(max(1, min(len(out), draw.choice((8, 64, 512, 1 << 30)))))


def _flip(out: bytearray, draw: random.Random) -> None:
    if out:
        out[_place(out, draw)] ^= 1 << draw.randrange(8)


def _set(out: bytearray, draw: random.Random) -> None:
    if out:
        out[_place(out, draw)] = draw.choice((0, 1, 0x20, 0x7F, 0x80, 0xFF, draw.randrange(256)))


def _insert(out: bytearray, draw: random.Random) -> None:
    at = _place(out, draw)
    out[at:at] = draw.choice(TOKENS) if draw.random() < 0.7 else draw.randbytes(draw.randrange(1, 20))


def _delete(out: bytearray, draw: random.Random) -> None:
    at = _place(out, draw)
    del out[at : at + draw.choice((1, 2, 8, 100, 1000))]


def _copy(out: bytearray, draw: random.Random) -> None:
    """A part of it somewhere else as well."""
    start, at = _place(out, draw), _place(out, draw)
    out[at:at] = out[start : start + draw.choice((1, 8, 100, 1000))]


def _number(out: bytearray, draw: random.Random) -> None:
    """A whole number in binary."""
    at, size = _place(out, draw), draw.choice((1, 2, 4, 8))
    number = draw.choice(NUMBERS) % 256**size
    out[at : at + size] = number.to_bytes(size, draw.choice(("little", "big")))


def _digits(out: bytearray, draw: random.Random) -> None:
    """A number in digits becomes another."""
    places = [i for i, byte in enumerate(out[:100_000]) if 48 <= byte <= 57]
    if places:
        at = draw.choice(places)
        end = at
        while end < len(out) and 48 <= out[end] <= 57:
            end += 1
        out[at:end] = str(draw.choice(NUMBERS)).encode()


_CHANGES = (_flip, _flip, _set, _set, _insert, _insert, _delete, _copy, _number, _digits)


# -------------------------------------------------------------------------------------------------------------- JSON


def mutate_json(data: bytes, draw: random.Random) -> bytes:
    """Change values of a JSON file, or its bytes."""
    try:
        value = json.loads(data)
    except ValueError:
        return mutate_bytes(data, draw)
    if draw.random() < 0.15:
        return mutate_bytes(data, draw)
    return dump(mutate_value(value, draw), draw).encode("utf-8", errors="surrogatepass")


def mutate_json_lines(data: bytes, draw: random.Random) -> bytes:
    """Change one object of a JSON Lines file, or its lines."""
    lines = data.split(b"\n")
    if draw.random() < 0.4:
        return mutate_rows(data, draw)
    at = draw.randrange(len(lines))
    lines[at] = mutate_json(lines[at] or b"{}", draw)
    return b"\n".join(lines)


def mutate_value(value: Any, draw: random.Random) -> Any:
    """Change one to three values of a tree."""
    tree = {"": value}
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        places = _places(tree)
        if not places:
            break
        owner, key = draw.choice(places)
        _change_at(owner, key, places, draw)
    return tree.get("", {})


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Every value: what holds it, and under which key."""
    out, todo = list[tuple[Any, Any]](), [tree]
    while todo:
        owner = todo.pop()
        for key in owner if isinstance(owner, dict) else range(len(owner)):
            out.append((owner, key))
            if isinstance(owner[key], dict | list):
                todo.append(owner[key])
    return out


def _change_at(owner: Any, key: Any, places: list[tuple[Any, Any]], draw: random.Random) -> None:
    how = draw.random()
    if how < 0.6:
        owner[key] = make_value(owner[key], draw)
    elif how < 0.7:
        del owner[key]
    elif how < 0.8 and isinstance(owner, dict):
        owner[draw.choice(TEXTS) if draw.random() < 0.5 else f"{key}_"] = owner.pop(key)
    elif how < 0.9:
        other, there = draw.choice(places)
        if other is not owner or isinstance(owner, dict):
            owner[key] = json.loads(json.dumps(other[there], default=str)) if _small(other[there]) else other[there]
    elif isinstance(owner, dict):
        owner[draw.choice((*TEXTS, "kind", "extra"))] = make_value(None, draw)
    else:
        owner.append(make_value(owner[key], draw))


def _small(value: Any) -> bool:
    return not isinstance(value, dict | list) or len(value) < 10_000


def make_value(old: Any, draw: random.Random) -> Any:
    """Something else in place of a value: often of the same kind, near it or at its limits."""
    if draw.random() < 0.4:
        if isinstance(old, bool):
            return not old
        if isinstance(old, int | float):
            whole = (old + 1, old - 1, -old, old * 2, 0, old * 1000, -1)
            return draw.choice((*whole, old / 3, float(old), old + 0.5) if abs(old) < 1e300 else whole)
        if isinstance(old, str):
            return draw.choice((old + "x", old[:-1], old.upper(), old * 2, old[::-1], f" {old}", f"{old}\n"))
        if isinstance(old, list) and old:
            return draw.choice((old[:-1], old + old, old[::-1], [old], old[0], {str(i): v for i, v in enumerate(old)}))
        if isinstance(old, dict):
            return draw.choice(([*old.values()], [*old], {**old, "kind": "x"}, str([*old])))
    makers: tuple[Callable[[], Any], ...] = (
        lambda: draw.choice(NUMBERS),
        lambda: -draw.choice(NUMBERS),
        lambda: draw.choice(TEXTS),
        lambda: Raw(draw.choice(RAWS)),
        lambda: draw.choice((None, True, False, 0.5, -0.5, 1e-300, 1e300, [], {}, [[]], [None], {"": None})),
        lambda: [draw.choice((0, "a", None))] * draw.choice((2, 100, 50_000)),
        lambda: {str(i): i for i in range(draw.choice((2, 1000)))},
        lambda: _nest(draw.choice((5, 200, 3000)), draw),
    )
    return draw.choice(makers)()


def _nest(depth: int, draw: random.Random) -> Raw:
    opening, closing = draw.choice((("[", "]"), ('{"a":', "}"), ('{"kind":', "}")))
    return Raw(opening * depth + "0" + closing * depth)


def dump(value: Any, draw: random.Random | None = None) -> str:
    """JSON text, with raw values as they are, numbers of any length, and now and then a key twice."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        pairs = [f"{json.dumps(str(k))}: {dump(v, draw)}" for k, v in value.items()]
        if draw is not None and pairs and draw.random() < 0.02:
            pairs.append(draw.choice(pairs))
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(dump(item, draw) for item in value) + "]"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**64:
        return "1" + "0" * 400 if value > 0 else "-1" + "0" * 400
    return json.dumps(value)


# -------------------------------------------------------------------------------------------------------------- YAML

SNIPPETS = (
    "a: &a [x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b, *b, *b]\n"
    "d: &d [*c, *c, *c, *c, *c, *c, *c, *c]\ne: [*d, *d, *d, *d, *d, *d, *d, *d]\n",
    "about: &r [*r]\n", "data: *nowhere\n", "? [a, b]\n: 1\n", "1: 2\n", "null: 3\n", "train: 2001-01-01\n",
    "train: 2001-01-01T25:61:61Z\n", "task: !!python/object/apply:os.system [true]\n",
    "task: !!binary gICBgoOEhYaHiImKi4yNjo+Q\n", "task: !!set {a, b}\n", "model: !!omap [a: 1]\n",
    "train: !!float 'x'\n", "train: !!int 'x'\n", "train: !!timestamp x\n", "task: !!null x\n", "<<: {task: lm}\n",
    "<<: 3\n", "task: !<tag:yaml.org,2002:str> lm\n", "train: {steps: 0o17}\n", "train: {steps: 1_000}\n",
    "train: {steps: 190:20:30}\n", "train: {steps: .inf}\n", "train: {steps: .nan}\n", "train: {steps: 0b11}\n",
    f"train: {{steps: {'9' * 6000}}}\n", f"train: {{steps: 1e{'9' * 50}}}\n", f"train: {{steps: 0x{'f' * 9000}}}\n",
    "%YAML 1.1\n---\ntask: lm\n", "%TAG ! !x\n---\n!a b\n", "\ttask: lm\n", "task: 'x\n", "task: \"\\xZZ\"\n",
    "task: \"\\ud800\"\n", "task: \"\\U00110000\"\n", "- a\n- b\n", "task: lm\ntask: mlm\n", "[" * 500, "{a: " * 500,
    "- " * 2000, "task: |999999999\n x\n", "!!python/name:os.system x\n", "--- a\n--- b\n", "task: !!str {}\n",
    "task: !!map []\n", "task: !!seq {}\n", "data: {valid: !!bool x}\n",
)  # fmt: skip


def mutate_yaml(data: bytes, draw: random.Random) -> bytes:
    """Change values of a YAML file, its bytes, or its syntax."""
    how = draw.random()
    if how < 0.2:
        return mutate_bytes(data, draw)
    if how < 0.35:
        lines = data.decode().splitlines(keepends=True)
        at = draw.randrange(len(lines) + 1)
        snippet = draw.choice(SNIPPETS)
        return "".join([*lines[:at], snippet, *lines[at:]] if draw.random() < 0.5 else [*lines, snippet]).encode(
            errors="surrogatepass"
        )
    value = YAML(typ="safe", pure=True).load(data.decode())
    return dump(mutate_value(value, draw), draw).encode("utf-8", errors="surrogatepass")


# -------------------------------------------------------------------------------------------------------------- rows


def mutate_rows(data: bytes, draw: random.Random) -> bytes:
    """Change the rows and fields of a text or table, or its bytes."""
    if draw.random() < 0.4:
        return mutate_bytes(data, draw)
    rows = data.split(b"\n")
    for _ in range(draw.choice((1, 1, 2, 5))):
        at = draw.randrange(len(rows))
        rows[at : at + 1] = _mutate_row(rows[at], draw)
        rows = rows or [b""]
    return b"\n".join(rows)


def _mutate_row(row: bytes, draw: random.Random) -> list[bytes]:
    """The rows in place of one."""
    mark = b"," if b"," in row else b"\t"
    fields = row.split(mark)
    i = draw.randrange(len(fields))
    before, after = fields[:i], fields[i + 1 :]
    text = draw.choice(TEXTS).encode(errors="surrogatepass")
    return draw.choice(
        (
            [],
            [row, row],
            [b""],
            [b" \t "],
            [mark.join(before + after)],
            [mark.join([*before, b"", *after])],
            [mark.join([*before, text, *after])],
            [mark.join(fields[::-1])],
            [row[:100_000] + mark + row[:100_000]],
            [row[:10_000] * 10],
            [row[:100] * 2000],
            [b'"' + row],
            [draw.choice(TOKENS)],
            [b"source\ttarget"],
            [b"text,label"],
            [b"english,german"],
        )
    )
