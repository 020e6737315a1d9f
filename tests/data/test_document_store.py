"""Documents that stay in their files are those that `split_documents` finds; a changed file is noticed."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import scratch, text_files
from regard.data.document_parts import (
    MAX_HELD_OUT,
    TextSample,
    cut_at_line,
    hold_out,
    iter_pieces,
    join,
    plan_parts,
    survey,
)
from regard.data.document_store import Documents, HeldDocuments, open_documents
from regard.data.documents import DocumentUnit, hold_out_documents, split_documents
from regard.errors import DataError

UNITS: tuple[DocumentUnit, ...] = ("file", "blank", "line")
TEXT = st.lists(st.sampled_from(["a", "bä", "€", " ", "\t", "\n", "\n", "\r\n", "\r", "\u2003", "\ufeff"]), min_size=1)


@pytest.fixture(autouse=True, scope="module")
def small() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_files, "PIECE", 3)
        patch.setattr(scratch, "ROOM", 40)
        patch.setattr(scratch, "BLOCK", 2)
        yield None


@settings(max_examples=300)
@given(TEXT.map("".join), st.booleans())
def test_documents_in_a_file_are_those_of_its_text(
    tmp_path_factory: pytest.TempPathFactory, text: str, packed: bool
) -> None:
    path = tmp_path_factory.mktemp("documents") / "text"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    whole = text.removeprefix("\ufeff")
    for unit in UNITS:
        wanted = split_documents(whole, unit) if whole else []
        found = open_documents(path, unit)
        assert list(found) == wanted, unit
        assert found[:] == wanted
        assert found[1:][::-1] == wanted[1:][::-1]


@given(st.lists(st.text("aä€ \n", max_size=30), min_size=1, max_size=8), st.integers(4, 20))
def test_parts_cover_everything_once(texts: list[str], size: int) -> None:
    documents = HeldDocuments(texts)
    parts = plan_parts(documents, cut_at_line, size)
    found, held = list[str](), ""
    for part in parts:
        for text in part.texts(documents):
            held += text
            if part.ends:
                found.append(held)
                held = ""
        assert sum(map(len, part.texts(documents))) <= 3 * size + 30
    assert found == texts


def test_a_long_document_is_read_in_pieces(tmp_path: Path) -> None:
    text = "".join(f"Zeile {i} mit Umläuten äöü €\n" for i in range(3000))
    (tmp_path / "a").write_text(text)
    documents = open_documents(tmp_path / "a", "file")
    parts = plan_parts(documents, cut_at_line, 1000)
    assert "".join(text for part in parts for text in part.texts(documents)) == text
    assert max(len(text) for part in parts for text in part.texts(documents)) <= 2000
    assert len(parts) > 80


@pytest.mark.parametrize("share", [0.01, 0.1, 0.25, 0.5, 0.99])
@pytest.mark.parametrize("unit", UNITS)
def test_what_is_held_out_is_what_it_was(tmp_path: Path, unit: DocumentUnit, share: float) -> None:
    text = "".join(f"Wörter {i}\n{i}\n\n" for i in range(17))
    (tmp_path / "a").write_text(text)
    rest, held = hold_out(open_documents(tmp_path / "a", unit), share)
    assert ([*rest], [*held]) == hold_out_documents(split_documents(text, unit), share)


def test_no_more_than_enough_is_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of ten gigabytes would be validated on for days."""
    monkeypatch.setattr("regard.data.document_parts.MAX_HELD_OUT", 10)
    rest, held = hold_out(HeldDocuments(["x" * 1000]), 0.1)
    assert (len(rest[0]), len(held[0])) == (990, 10)
    rest, held = hold_out(HeldDocuments([str(i) for i in range(100)]), 0.5)
    assert list(held) == ["95", "96", "97", "98", "99"]
    assert len(rest) == 95
    rest, held = hold_out(HeldDocuments(["a" * 50, "b" * 50]), 0.5)
    assert list(held) == ["b" * 50]  # one at least
    assert MAX_HELD_OUT == 1 << 23


def test_counts_and_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("äb\n\nc\n")
    one, two = (open_documents(tmp_path / "a", unit) for unit in ("file", "line"))
    (whole,), (lines,), (both,) = survey(one), survey(two), survey(join([two, two]))
    assert (whole.characters, whole.distinct) == (6, 4)
    assert (lines.characters, lines.distinct) == (3, 3)
    assert both.characters == 6
    assert len({found.fingerprint for found in (whole, lines, both)}) == 3
    assert survey(HeldDocuments(["äb", "c"]))[0] == lines
    assert survey(HeldDocuments(["äbc"]))[0].fingerprint != lines.fingerprint


def test_several_files_are_one_sequence(tmp_path: Path) -> None:
    parts = list[Documents]()
    for name in "abc":
        (tmp_path / name).write_text(f"{name} one\n{name} two\n")
        parts.append(open_documents(tmp_path / name, "line"))
    joined = join(parts)
    assert list(joined) == [f"{name} {word}" for name in "abc" for word in ("one", "two")]
    assert joined.take(1, 4)[:] == ["a two", "b one", "b two"]
    assert joined.sizes(0, 6).tolist() == [5] * 6
    assert joined[5] == "c two"


def test_a_vocabulary_is_learned_from_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    documents = HeldDocuments([f"line {i}" for i in range(1000)])
    assert list(TextSample(documents)) == list(documents)
    monkeypatch.setattr("regard.data.document_parts.PIECE", 100)
    monkeypatch.setattr("regard.data.document_parts.plan_parts.__defaults__", (100,), raising=False)
    monkeypatch.setattr(plan_parts, "__defaults__", (100,))
    monkeypatch.setattr("regard.data.document_parts.MAX_SAMPLE", 2000)
    sample = TextSample(documents)
    some = list(sample)
    assert 200 < len(some) < 400
    assert some == list(sample)
    assert {*some} < {*documents}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"ok\n\xff\n", r"a, line 2: not UTF-8 at byte 3: got ff 0a; convert the file \(iconv\)"),
        (b"ok\nab\xc3", r"a, line 2: not UTF-8 at byte 5: got c3"),
        (b"ok\na\0b", r"a, line 2: a NUL at byte 4: this is not text"),
        (b"\xff\xfeo\0", "looks like UTF-16"),
        (b"", "is empty"),
        (gzip.compress(b"abc" * 1000, mtime=0)[:-9], "cannot be read past line"),
    ],
)
def test_what_is_not_text_is_told(tmp_path: Path, raw: bytes, message: str) -> None:
    (tmp_path / "a").write_bytes(raw)
    with pytest.raises(DataError, match=message):
        open_documents(tmp_path / "a", "blank")


def test_a_file_that_changes_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\ntwo\n")
    documents = open_documents(tmp_path / "a", "line")
    (tmp_path / "a").write_text("other\ntexts\n")
    with pytest.raises(DataError, match=r"a changed while it was read; run the same command again"):
        list(iter_pieces(documents))
