"""Broken corpora by the hundred: every kind of breakage in every form of file at every place.

Each is told with its file and line; and where bad pairs may be dropped, exactly those that are bad are, so that every pair
that is kept is one of the true ones.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from regard.data.pair_reader import Corpus, read_corpus
from regard.data.text_files import MAX_LINE_BYTES
from regard.errors import DataError

TRUE = [(f"source {n} {'s' * n}", f"target {n} {'t' * n}") for n in range(1, 10)]
PLACES = (1, 5, 9)
FORMS = ("text", "tsv", "headed", "csv", "jsonl")
FAULTS = {
    # what stands in the place of a text: bytes, the kind they are counted as, and what is said
    "a stray byte": (b"ab\xffcd", "not UTF-8", "not UTF-8 at byte {at}: got ff 63 64"),
    "half a character": (b"ab\xe2\x82 d", "not UTF-8", "not UTF-8 at byte {at}: got e2 82 20 64"),
    "an overlong form": (b"ab\xc0\xafcd", "not UTF-8", "not UTF-8 at byte {at}: got c0 af 63 64"),
    "a surrogate": (b"ab\xed\xa0\x80d", "not UTF-8", "not UTF-8 at byte {at}: got ed a0 80 64"),
    "Latin-1": ("M\xfcller".encode("latin-1"), "not UTF-8", "not UTF-8 at byte {at}: got fc 6c 6c 65"),
    "a NUL": (b"ab\0cd", "a NUL", "a NUL at byte {at}: this is not text"),
    "nothing": (b"", "an empty side", "the {side} is empty"),
    "spaces": (b"  ", "an empty side", "the {side} is empty"),
    "wide spaces": ("\u3000\u2028\x85".encode(), "an empty side", "the {side} is empty"),
    "no end": (b"x" * (MAX_LINE_BYTES + 1), "a line that is too long", "more than 100,000 bytes in a line"),
}
ROWS = {
    # what stands in the place of a whole row of a table
    ("tsv", "one column"): (b"alone", "another number of columns", "1 columns, but the first line has 2"),
    ("tsv", "three columns"): (b"a\tb\tc", "another number of columns", "3 columns, but the first line has 2"),
    ("tsv", "no columns"): (b"", "another number of columns", "1 columns, but the first line has 2"),
    ("csv", "one column"): (b"alone", "another number of columns", "1 columns, but the first line has 2"),
    ("csv", "three columns"): (b"a,b,c", "another number of columns", "3 columns, but the first line has 2"),
    ("csv", "no columns"): (b"", "another number of columns", "0 columns, but the first line has 2"),
    ("jsonl", "half an object"): (b'{"source": "a", "tar', "not JSON", "not JSON: Unterminated string"),
    ("jsonl", "no JSON"): (b"source\ttarget", "not JSON", "not JSON: Expecting value"),
    ("jsonl", "no line"): (b"", "not JSON", "not JSON: Expecting value"),
    ("jsonl", "too deep"): (b"[" * 99_000, "not JSON", "not JSON: "),
    ("jsonl", "a key twice"): (
        b'{"source": "a", "source": "b", "target": "c"}', "a key twice", "the key 'source' comes twice; leave one of them",
    ),
    ("jsonl", "a key less"): (b'{"source": "a"}', "other JSON", "should be an object with the texts 'source' and"),
    ("jsonl", "a number"): (b'{"source": "a", "target": 1}', "other JSON", "should be an object with the texts"),
    ("jsonl", "a list"): (b'["a", "b"]', "other JSON", "should be an object with the texts 'source' and 'target', got ["),
    ("jsonl", "null"): (b"null", "other JSON", "should be an object with the texts"),
    ("jsonl", "an escaped NUL"): (
        b'{"source": "a\\u0000", "target": "b"}', "a NUL or half a character", "a text contains a NUL or half a surrogate pair",
    ),
    ("jsonl", "half a pair"): (
        b'{"source": "a", "target": "\\ud800"}', "a NUL or half a character", "a text contains a NUL or half a surrogate pair",
    ),
}  # fmt: skip


def encoded(form: str, rows: list[tuple[bytes, bytes]]) -> list[bytes]:
    """Each row as a line of a table."""
    if form == "jsonl":
        return [b'{"source": "%b", "target": "%b"}' % row for row in rows]
    return [(b"," if form == "csv" else b"\t").join(row) for row in rows]


@dataclass(frozen=True)
class Broken:
    """Files, what should be said of them, and what should be lost; nothing if they should be refused all the same."""

    name: str
    files: dict[str, bytes]
    said: str
    lost: int | None
    kind: str = ""

    def corpus(self, folder: Path, **settings: str) -> Corpus:
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        return Corpus.parse({"paths": [str(folder / name) for name in self.files], **settings})


def files_of(form: str, rows: list[tuple[bytes, bytes]], packed: bool = False) -> dict[str, bytes]:
    """The files of a form; the last line has an end only if there is nothing else in it."""
    if form == "text":
        files = {"x.en": [one for one, _ in rows], "x.de": [two for _, two in rows]}
    elif form == "headed":
        files = {"x.tsv": [b"target\tsource", *encoded(form, [(two, one) for one, two in rows])]}
    else:
        files = {f"x.{form}": encoded(form, rows)}
    pack = gzip.compress if packed else bytes
    return {
        name + packed * ".gz": pack(b"\n".join(lines) + (b"" if lines[-1] else b"\n")) for name, lines in files.items()
    }


def broken() -> Iterator[Broken]:
    sound = [(one.encode(), two.encode()) for one, two in TRUE]
    for form in FORMS:
        for packed in (False, True):
            for place in PLACES[packed : 3 - packed]:
                for name, (content, kind, said) in FAULTS.items():
                    for side in (0, 1):
                        rows = list(sound)
                        rows[place - 1] = (content, rows[place - 1][1]) if side == 0 else (rows[place - 1][0], content)
                        files = files_of(form, rows, packed)
                        file = list(files)[side if form == "text" else 0]
                        whole = gzip.decompress(files[file]) if packed else files[file]
                        start = next((i for i, byte in enumerate(content) if byte > 127 or not byte), 0)
                        told = said.format(at=whole.find(content) + start, side=("source", "target")[side])
                        line = place + (form == "headed")
                        fatal = form == "csv" and name == "no end"
                        fatal |= form in ("tsv", "csv") and place == 1 and kind != "an empty side"
                        yield Broken(
                            f"{form}{'.gz' * packed}, line {line}, {('source', 'target')[side]}: {name}",
                            files, f"{file}, line {line}: {told}", None if fatal else place, kind,
                        )  # fmt: skip
    for (form, name), (content, kind, said) in ROWS.items():
        for place in PLACES if form == "jsonl" else PLACES[1:]:
            lines = encoded(form, sound)
            lines[place - 1] = content
            files = {f"x.{form}": b"\n".join(lines) + b"\n"}
            yield Broken(f"{form}, line {place}: {name}", files, f"x.{form}, line {place}: {said}", place, kind)


def refused() -> Iterator[Broken]:
    """What no dropping of pairs can mend."""
    one, two = (b"\n".join(text.encode() for text in side) for side in zip(*TRUE, strict=True))
    for packed in (False, True):
        pack = gzip.compress if packed else bytes
        end = packed * ".gz"
        for name, left, right, said in (
            ("a line less at the end", one, two.rpartition(b"\n")[0], "x.en{} has 9 lines and "),
            ("a line less at the start", one.partition(b"\n")[2], two, "x.en{} has 8 lines and "),
            ("a line more", one, two + b"\nmore", "has 9 lines and "),
            ("an empty line more", one, b"\n" + two, "has 9 lines and "),
            (
                "many lines more",
                one,
                two + b"\nx" * 999,
                "x.de{} has 1008; parallel files need the same number of lines",
            ),
            ("an empty source", b"", two, "x.en{} is empty"),
            ("an empty target", one, b"", "x.de{} is empty"),
            (
                "UTF-16",
                one.decode().encode("utf-16"),
                two,
                "x.en{}, line 1: not UTF-8 at byte 0: this looks like UTF-16",
            ),
        ):
            yield Broken(f"{name}{end}", {f"x.en{end}": pack(left), f"x.de{end}": pack(right)}, said.format(end), None)
    whole = gzip.compress(one)
    for name, content, said in (
        ("cut in the middle", whole[: len(whole) // 2], "x.en.gz cannot be read past line "),
        ("cut at the end", whole[:-3], "x.en.gz cannot be read past line "),
        ("a wrong sum", whole[:-8] + b"12345678", "CRC check failed"),
        ("a flipped bit", whole[:30] + bytes([whole[30] ^ 4]) + whole[31:], "x.en.gz cannot be read past line "),
        ("rubbish at the end", whole + b"rubbish", "Not a gzipped file"),
    ):
        yield Broken(f"gzip: {name}", {"x.en.gz": content, "x.de": two}, said, None)
    for name, file, content, said in (
        ("a quotation mark too many", "x.csv", b'a,A\n"b,B\nc,C\n', "x.csv, line 2: not CSV: unexpected end of data"),
        (
            "a quotation mark in a field",
            "x.csv",
            b'a,A\nb,"B"b\nc,C\n',
            "x.csv, line 2: not CSV: ',' expected after '\"'",
        ),
        (
            "a quotation mark far away",
            "x.csv",
            b'a,A\n"' + b"b\n" * 99_999,
            "x.csv, line 2: not CSV: field larger than",
        ),
        ("a header that is no text", "x.tsv", b"target\tsour\xff\nA\ta\n", "line 1: not UTF-8 at byte 11"),
        ("a header that is no text", "x.csv", b"target,source\0\nA,a\n", "line 1: a NUL at byte 13"),
        ("three columns", "x.tsv", b"a\tb\tc\n", "x.tsv has 3 columns and no header with source and target"),
        ("only a header", "x.csv", b"source,target\n", "x.csv contains no pairs"),
        ("only bad pairs", "x.jsonl", b"{}\n[]\n", "x.jsonl"),
        ("nothing", "x.jsonl", b"", "x.jsonl is empty"),
    ):
        yield Broken(f"{file}: {name}", {file: content}, said, None)


BROKEN, REFUSED = list(broken()), list(refused())


def name_of(case: Broken) -> str:
    return case.name


def test_there_are_hundreds() -> None:
    assert len({case.name for case in BROKEN + REFUSED}) == len(BROKEN + REFUSED) > 400


@pytest.mark.parametrize("case", BROKEN + REFUSED, ids=name_of)
def test_file_and_line_are_told_and_only_what_is_bad_is_dropped(case: Broken, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read_corpus(case.corpus(tmp_path))
    assert case.said in str(caught.value)
    if case.lost is None:
        with pytest.raises(DataError) as caught:
            read_corpus(case.corpus(tmp_path), on_bad="drop")
        assert case.said in str(caught.value)
        return
    assert str(caught.value).endswith("; fix it, or set on_bad: drop (--on-bad drop) to drop such pairs")
    pairs = read_corpus(case.corpus(tmp_path, on_bad="drop"))
    assert list(zip(pairs.source, pairs.target, strict=True)) == [*TRUE[: case.lost - 1], *TRUE[case.lost :]]
    (dropped,) = pairs.dropped
    assert (dropped.reason, dropped.count) == (case.kind, 1)
    assert case.said in dropped.examples[0]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("begin", "end", "inside"),
    [
        (b"\xef\xbb\xbf", b"\n", ""), (b"", b"\r\n", ""), (b"\xef\xbb\xbf", b"\r\n", " \u2028 "), (b"", b"\n", "\u2029\x85"),
        (b"", b"\n", "\x0b\x0c\x1c\x1d\x1e"), (b"", b"\n", "\ufeff\u200b\ufffd\ufffe"), (b"", b"\n", "\U0010ffff\x7f\x01"),
    ],
)  # fmt: skip
def test_what_looks_broken_and_is_not(
    form: str, packed: bool, begin: bytes, end: bytes, inside: str, tmp_path: Path
) -> None:
    """Marks at the start, other line ends, and what only some call a line end."""
    rows = [(one + inside, two + inside + "x") for one, two in TRUE]
    put = (lambda text: json.dumps(text, ensure_ascii=False)[1:-1].encode()) if form == "jsonl" else str.encode
    files = files_of(form, [(put(one), put(two)) for one, two in rows])
    pack = gzip.compress if packed else bytes
    made = {name: pack(begin + content.replace(b"\n", end) + end) for name, content in files.items()}
    pairs = read_corpus(Broken("", made, "", None).corpus(tmp_path))
    assert list(zip(pairs.source, pairs.target, strict=True)) == rows
    assert pairs.dropped == ()


def test_bad_pairs_are_counted_by_kind_and_a_pair_that_is_bad_twice_once(tmp_path: Path) -> None:
    (tmp_path / "x.en").write_bytes(b"a\n\xff\n\0\n\ne\nf\n\n" + b"h" * (MAX_LINE_BYTES + 1) + b"\ni\n")
    (tmp_path / "x.de").write_bytes(b"A\n\xff\nC\nD\n\xff\nF\n\n\nI\n")
    pairs = read_corpus(Corpus((str(tmp_path / "x.en"), str(tmp_path / "x.de")), on_bad="drop"))
    assert (pairs.source, pairs.target) == (["a", "f", "i"], ["A", "F", "I"])
    assert {each.reason: each.count for each in pairs.dropped} == {
        "not UTF-8": 2,
        "a NUL": 1,
        "an empty side": 2,
        "a line that is too long": 1,
    }
    assert pairs.lost()[0]["corpus"] == "x.en + x.de"
    assert read_corpus(Corpus((str(tmp_path / "x.en"), str(tmp_path / "x.de"))), on_bad="drop").source == pairs.source


def test_lines_out_of_step_are_told_before_what_is_wrong_with_one(tmp_path: Path) -> None:
    (tmp_path / "x.en").write_bytes(b"a\n\nc\n")
    (tmp_path / "x.de").write_bytes(b"A\nB\n")
    with pytest.raises(DataError, match="has 3 lines and "):
        read_corpus(Corpus((str(tmp_path / "x.en"), str(tmp_path / "x.de"))))


@pytest.mark.parametrize("how", ["same", "dots", "symlink", "hardlink"])
def test_one_file_twice_is_refused_whatever_it_is_called(how: str, tmp_path: Path) -> None:
    one, other = tmp_path / "x.en", tmp_path / "x.de"
    one.write_text("a\n")
    if how == "symlink":
        other.symlink_to(one)
    elif how == "hardlink":
        other.hardlink_to(one)
    else:
        other = one if how == "same" else tmp_path / ".." / tmp_path.name / "x.en"
    for on_bad in ("error", "drop"):
        with pytest.raises(DataError, match=r"x\.en and .* are the same file; give the source and then the target"):
            read_corpus(Corpus.parse({"paths": [str(one), str(other)], "on_bad": on_bad}))


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", "cannot read .*nowhere: No such file"),
        ("folder", "folder is a directory; name a file in it"),
        ("pipe", "pipe is a pipe or device; save its output to a file"),
        ("a" * 999, "cannot read .*: File name too long"),
        ("a\0b", "cannot read .*null"),
        ("loop", "cannot read .*loop: Too many levels of symbolic links"),
        ("dangling", "cannot read .*dangling: No such file"),
    ],
)
def test_what_is_no_file(name: str, message: str, side: int, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a\n")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    paths = [str(tmp_path / name), str(tmp_path / "x")]
    with pytest.raises(DataError, match=message):
        read_corpus(Corpus(tuple(paths if side == 0 else reversed(paths)), on_bad="drop"))


READING = """
import sys
from regard.data.pair_reader import Corpus, read_corpus
pairs = read_corpus(Corpus(tuple(sys.argv[1:]), on_bad="drop"))
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(len(pairs), sum(each.count for each in pairs.dropped), peak.split()[1])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux to tell a process' peak memory")
def test_hundreds_of_broken_megabytes_are_read_in_little_memory(tmp_path: Path) -> None:
    """Two files of 60 MB, of whose lines every third is broken; and then a line of 200 MB that never ends."""
    good, bad = b"g" * 3999 + b"\n", b"\xff" * 3999 + b"\n"
    for name in ("x.en", "x.de"):
        with (tmp_path / name).open("wb") as file:
            for _ in range(50):
                file.write((good + good + bad) * 100)
            if name == "x.en":
                file.truncate(file.tell() + 200_000_000)
            else:
                file.write(b"the end")
    command = [sys.executable, "-c", READING, str(tmp_path / "x.en"), str(tmp_path / "x.de")]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    kept, dropped, peak = map(int, found.stdout.split())
    assert (kept, dropped) == (10_000, 5_001)
    assert peak * 1024 < 300e6
