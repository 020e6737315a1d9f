"""Pairs from files: every format gives the same pairs, and every fault is told with file and line."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from regard.data.pair_reader import Corpus, read_corpus
from regard.data.text_files import read_lines
from regard.errors import DataError, SpecError

SOURCE, TARGET = ["a cat", "two dogs", "ein \u2028 \x85 \x0b \x0c line"], ["eine Katze", 'zwei "Hunde"', "ô, là"]
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\t\r\n"), min_size=1).filter(str.strip)
PAIRS = st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=8)

FORMS = st.sampled_from(["x", "x.tsv", "x.csv", "x.jsonl"])

Put = Callable[..., Corpus]


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Writes files given as name=content, and gives their corpus."""

    def write(files: dict[str, str | bytes], **settings: object) -> Corpus:
        for name, content in files.items():
            (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return Corpus.parse({"paths": [str(tmp_path / name) for name in files], **settings})

    return write


def as_text(texts: list[str], end: str = "\n") -> str:
    return "".join(text + end for text in texts)


def as_tsv(pairs: list[tuple[str, str]]) -> str:
    return as_text(["\t".join(pair) for pair in pairs])


def as_csv(pairs: list[tuple[str, str]]) -> str:
    file = io.StringIO(newline="")
    csv.writer(file).writerows(pairs)
    return file.getvalue()


def as_jsonl(pairs: list[tuple[str, str]]) -> str:
    return as_text([json.dumps({"source": s, "target": t}) for s, t in pairs])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("form", ["parallel", "windows", "tsv", "csv", "jsonl"])
def test_every_format_gives_the_same_pairs(put: Put, form: str, packed: bool) -> None:
    both = list(zip(SOURCE, TARGET, strict=True))
    files = {
        "parallel": {"x.en": as_text(SOURCE), "x.de": as_text(TARGET)[:-1]},  # the last line may lack its end
        "windows": {"x.en": "\ufeff" + as_text(SOURCE, "\r\n"), "x.de": "\ufeff" + as_text(TARGET)},
        "tsv": {"x.tsv": as_tsv(both)},
        "csv": {"x.csv": as_csv(both)},
        "jsonl": {"x.jsonl": as_jsonl(both)},
    }[form]
    pack = gzip.compress if packed else bytes
    pairs = read_corpus(put({name + packed * ".gz": pack(content.encode()) for name, content in files.items()}))
    assert (pairs.source, pairs.target) == (SOURCE, TARGET)
    assert (pairs.tag, pairs.weight, pairs.dropped) == (None, 1.0, ())


@given(pairs=PAIRS)
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]) -> None:
    folder = tmp_path_factory.mktemp("pairs")
    source, target = [s for s, _ in pairs], [t for _, t in pairs]
    assume(not source[0].startswith("\ufeff"))  # at the start of a file it is a mark
    for name, content in {
        "x.en": as_text(source),
        "x.de": as_text(["-" + t for t in target], "\r\n"),
        "x.tsv": as_tsv(pairs),
        "x.csv": as_csv(pairs),
        "x.jsonl": as_jsonl(pairs),
    }.items():
        (folder / name).write_bytes(content.encode())
    parallel = read_corpus(Corpus(paths=(str(folder / "x.en"), str(folder / "x.de"))))
    assert (parallel.source, parallel.target) == (source, ["-" + t for t in target])
    for form in ("tsv", "csv", "jsonl"):
        table = read_corpus(Corpus(paths=(str(folder / f"x.{form}"),), header=False))
        assert (table.source, table.target) == (source, target), form


@given(content=st.binary(max_size=60) | st.text('ab",\t\r\n{}[]\0\ufeff', max_size=30).map(str.encode), name=FORMS)
def test_any_bytes_are_pairs_or_our_error(tmp_path_factory: pytest.TempPathFactory, content: bytes, name: str) -> None:
    path = tmp_path_factory.mktemp("bytes") / name
    for packed in (content, gzip.compress(content), gzip.compress(content)[: len(content)]):
        for file in (path, path.with_suffix(".y")):
            file.write_bytes(packed)
        for on_bad in ("error", "drop"):
            try:
                paths = [str(path), str(path.with_suffix(".y"))][: 2 if name == "x" else 1]
                pairs = read_corpus(Corpus.parse({"paths": paths, "on_bad": on_bad}))
            except DataError as error:
                assert str(path) in str(error) or name in str(error)
            else:
                assert all(text.strip() and "\0" not in text for text in pairs.source + pairs.target)


def test_gzip_is_known_by_its_content_not_its_name(put: Put) -> None:
    pairs = read_corpus(put({"x.en": gzip.compress(b"one\n") + gzip.compress(b"two\n"), "x.de.gz": "eins\nzwei\n"}))
    assert (pairs.source, pairs.target) == (["one", "two"], ["eins", "zwei"])


def test_lines_keep_a_carriage_return_that_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"a\rb\r\n\xef\xbb\xbfc \n\nd\r")
    assert list(read_lines(tmp_path / "x")) == ["a\rb", "\ufeffc ", "", "d\r"]


def test_columns_by_position_by_name_and_by_key(put: Put) -> None:
    table = "id\tEnglish\tGerman\n1\tcat\tKatze\n"
    assert read_corpus(put({"x.tsv": table}, columns=["German", "English"])).source == ["Katze"]
    assert read_corpus(put({"x.tsv": table}, columns=[2, 3])).target == ["Katze"]
    assert read_corpus(put({"x.tsv": table}, columns=[2, 3], header=False)).target == ["German", "Katze"]
    assert read_corpus(put({"x.csv": '1,"cat, ""big""",Katze\n'}, columns=[2, 3])).source == ['cat, "big"']
    assert read_corpus(put({"x.csv": "n,Target, source\n1,Katze,cat\n"})).source == ["cat"]  # the default names
    assert read_corpus(put({"x.jsonl": '{"en": "cat", "de": "Katze", "n": 1}\n'}, columns=["en", "de"])).target == [
        "Katze"
    ]


def test_a_quoted_field_may_go_over_lines_and_lines_are_still_counted(put: Put) -> None:
    assert read_corpus(put({"x.csv": '"a\nb",c\r\nd,e\r\n'})).source == ["a\nb", "d"]
    with pytest.raises(DataError, match=r"x\.csv, line 3: the target is empty"):
        read_corpus(put({"x.csv": '"a\nb",c\nd,\n'}))


def test_quotation_marks_in_tsv_are_text(put: Put) -> None:
    assert read_corpus(put({"x.tsv": '"a\tb"\n'})).source == ['"a']


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"x.en": "a\n \nc\n", "x.de": "A\nB\nC\n"},
            r"x\.en, line 2: the source is empty; fix it, or set on_bad: drop",
        ),
        ({"x.en": "a\nb\nc\n", "x.de": "A\n\nC\n"}, r"x\.de, line 2: the target is empty"),
        ({"x.tsv": "a\tA\nb\t\nc\tC\n"}, r"x\.tsv, line 2: the target is empty"),
        ({"x.tsv": "a\tA\nb\tB\tb\nc\tC\n"}, r"x\.tsv, line 2: 3 columns, but the first line has 2"),
        ({"x.csv": "a,A\n\nc,C\n"}, r"x\.csv, line 2: 0 columns, but the first line has 2"),
        (
            {"x.jsonl": '{"source": "a", "target": "A"}\n{"source"\n{"source": "c", "target": "C"}\n'},
            "line 2: not JSON: ",
        ),
        (
            {"x.jsonl": f'{{"source": "a", "target": "A"}}\n{"[" * 99999}\n{{"source": "c", "target": "C"}}'},
            "not JSON: ",
        ),
        (
            {"x.jsonl": '{"source": "a", "target": "A"}\n{"source": "b"}\n{"source": "c", "target": "C"}\n'},
            r"x\.jsonl, line 2: should be an object with the texts 'source' and 'target', got \{\"source\": \"b\"\}",
        ),
        (
            {"x.jsonl": '{"source": "a", "target": "A"}\n["b", "B"]\n{"source": "c", "target": "C"}\n'},
            r"should be an object with the texts 'source' and 'target', got \[\"b\", \"B\"\]",
        ),
        (
            {
                "x.jsonl": '{"source": "a", "target": "A"}\n{"source": "b", "target": 2}\n{"source": "c", "target": "C"}\n'
            },
            "line 2: should be an object with the texts",
        ),
        (
            {"x.jsonl": as_jsonl([("a", "A"), ("b", "\ud800"), ("c", "C")])},
            "line 2: a text contains a NUL or half a surrogate pair",
        ),
        ({"x.jsonl": as_jsonl([("a", "A"), ("\0", "B"), ("c", "C")])}, "line 2: a text contains a NUL"),
        ({"x.en": "a\nb\0d\nc\n", "x.de": "A\nB\nC\n"}, r"x\.en, line 2: a NUL at byte 3: this is not text"),
        (
            {"x.en": "a\nb\nc", "x.de": b"A\nB\xffc\nC"},
            r"x\.de, line 2: not UTF-8 at byte 3: got ff 63 0a; convert the file",
        ),
        ({"x.en": b"a\n\xed\xa0\x80\nc", "x.de": "A\nB\nC"}, r"line 2: not UTF-8 at byte 2: got ed a0 80"),
    ],
)
def test_a_bad_pair_is_an_error_or_dropped_whole(put: Put, files: dict[str, str | bytes], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_corpus(put(files))
    pairs = read_corpus(put(files, on_bad="drop"))
    assert (pairs.source, pairs.target, [each.count for each in pairs.dropped]) == (["a", "c"], ["A", "C"], [1])


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"x.en": "a\nb\n", "x.de": "A\n"},
            r"x\.en has 2 lines and \S*x\.de has 1; parallel files need the same",
        ),
        ({"x.en": "", "x.de": "A\n"}, r"x\.en is empty"),
        ({"x.en": gzip.compress(b""), "x.de": "A\n"}, r"x\.en is empty"),
        (
            {"x.en": "ab\n".encode("utf-16"), "x.de": "A\n"},
            "line 1: not UTF-8 at byte 0: this looks like UTF-16; convert",
        ),
        (
            {"x.en": gzip.compress(b"a\n" * 9)[:-9], "x.de": "A\n"},
            r"x\.en cannot be read past line \d: .*; copy or compress",
        ),
        (
            {"x.en": gzip.compress(b"a\n")[:-8] + b"12345678", "x.de": "A\n"},
            "cannot be read past line 0: CRC check failed",
        ),
        ({"x.en": b"\x1f\x8b", "x.de": "A\n"}, "cannot be read past line 0"),
        ({"x.csv": 'a,A\n"b,B\n'}, r"x\.csv, line 2: not CSV: unexpected end of data"),
        ({"x.csv": "a,A\nb\rc,B\n"}, r"x\.csv, line 2: not CSV: new-line character seen in unquoted field$"),
        ({"x.csv": "\ufeff"}, r"x\.csv has 0 columns and no header with source and target"),
        (
            {"x.tsv": "1\tcat\tKatze\n"},
            r"x\.tsv has 3 columns and no header with source and target; set columns",
        ),
        ({"x.tsv": "source\ttarget\n"}, r"x\.tsv contains no pairs$"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_even_when_pairs_may_be_dropped(
    put: Put, files: dict[str, str | bytes], message: str
) -> None:
    for on_bad in ("error", "drop"):
        with pytest.raises(DataError, match=message):
            read_corpus(put(files, on_bad=on_bad))


def test_columns_that_are_not_there(put: Put) -> None:
    with pytest.raises(DataError, match=r"x\.csv has no column 'Germn'; did you mean 'German'\?"):
        read_corpus(put({"x.csv": "English,German\na,b\n"}, columns=["English", "Germn"]))
    with pytest.raises(DataError, match=r"x\.csv has no column 3; its first line has 2"):
        read_corpus(put({"x.csv": "a,b\n"}, columns=[1, 3]))


def test_when_all_are_dropped_the_first_reason_is_told(put: Put) -> None:
    with pytest.raises(
        DataError, match=r"contains no pairs: 2 dropped: other JSON, such as \S*x.jsonl, line 1: should be"
    ):
        read_corpus(put({"x.jsonl": '{"en": "a"}\n{"en": "b"}\n'}, on_bad="drop"))


def test_what_is_not_a_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, message in (
        ("nowhere", "cannot read .*nowhere: No such file"),
        ("", "is a directory; name a file in it"),
        ("pipe", "is a pipe or device; save its output to a file"),
        ("a\0b", "cannot read .*null"),
        ("a" * 999, "cannot read .*: File name too long"),
    ):
        with pytest.raises(DataError, match=message):
            next(read_lines(tmp_path / name))
    with pytest.raises(DataError, match="/dev/null is a pipe or device"):
        next(read_lines("/dev/null"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"paths": ["x.en"]},
            r"two parallel text files or one \.tsv, \.csv, \.jsonl file .*, got x\.en; list several",
        ),
        ({"paths": []}, "got none"),
        ({"paths": ["a.tsv", "b.tsv"]}, "got a.tsv, b.tsv; list several corpora in a recipe"),
        ({"paths": ["a.en", "a.de", "a.fr"]}, "got a.en, a.de, a.fr"),
        ({"paths": ["a.en", "a.de"], "columns": [1, 2]}, r"columns \[1, 2\] need a table, got the text file a.en"),
        ({"paths": ["a.csv.gz"], "columns": [0, 1]}, r"two names or two positions from 1, got \[0, 1\]"),
        ({"paths": ["a.csv"], "columns": ["en", 2]}, r"two names or two positions from 1, got \['en', 2\]"),
        ({"paths": ["A.JSONL"], "columns": [1, 2]}, r"columns of A.JSONL should be keys of its objects, got \[1, 2\]"),
        ({"paths": ["a.csv"], "weight": 0}, "weight: .* greater than 0, got 0"),
        ({"paths": ["a.csv"], "target_lang": "d e"}, "target_lang: .* got 'd e'"),
        ({"paths": ["a.csv"], "wieght": 2}, "no key 'wieght'; did you mean 'weight'?"),
    ],
)
def test_a_corpus_that_cannot_be_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Corpus.parse(settings)


def test_a_corpus_is_a_plain_value(put: Put) -> None:
    corpus = put({"x.tsv": "a\tA\n"}, columns=[1, 2], source_lang="en", target_lang="de", weight=2)
    assert Corpus.parse(json.loads(corpus.json())) == corpus
    pairs = read_corpus(corpus)
    assert (pairs.tag, pairs.weight, pairs.name) == ("2de", 2.0, "x.tsv (en-de)")


def test_lines_out_of_step_are_told_before_a_bad_pair(put: Put) -> None:
    with pytest.raises(DataError, match=r"x\.en has 4 lines and \S*x\.de has 3"):
        read_corpus(put({"x.en": "a\n\nb\nc\n", "x.de": "A\nB\nC\n"}))
