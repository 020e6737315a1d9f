"""Pairs from files: every format gives the same pairs, and every fault is told with file and line."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from regard.data.drops import Dropped
from regard.data.files import read_lines
from regard.data.lines import Pile
from regard.data.sources import Corpus, Pairs, fingerprint, read, sample, split
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
    pairs = read(put({name + packed * ".gz": pack(content.encode()) for name, content in files.items()}))
    assert (pairs.source, pairs.target) == (SOURCE, TARGET)
    assert (pairs.tag, pairs.weight, pairs.dropped) == (None, 1.0, ())


@given(pairs=PAIRS)
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]) -> None:
    folder = tmp_path_factory.mktemp("pairs")
    source, target = [s for s, _ in pairs], [t for _, t in pairs]
    assume(not source[0].startswith("\ufeff"))  # at the start of a file it is a mark
    assume({s.strip().lower() for s in pairs[0]} != {"source", "target"})  # a header
    for name, content in {
        "x.en": as_text(source),
        "x.de": as_text(["-" + t for t in target], "\r\n"),
        "x.tsv": as_tsv(pairs),
        "x.csv": as_csv(pairs),
        "x.jsonl": as_jsonl(pairs),
    }.items():
        (folder / name).write_bytes(content.encode())
    parallel = read(Corpus(paths=(str(folder / "x.en"), str(folder / "x.de"))))
    assert (parallel.source, parallel.target) == (source, ["-" + t for t in target])
    for form in ("tsv", "csv", "jsonl"):
        table = read(Corpus(paths=(str(folder / f"x.{form}"),)))
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
                pairs = read(Corpus.parse({"paths": paths, "on_bad": on_bad}))
            except DataError as error:
                assert str(path) in str(error) or name in str(error)
            else:
                assert all(text.strip() and "\0" not in text for text in pairs.source + pairs.target)


def test_gzip_is_known_by_its_content_not_its_name(put: Put) -> None:
    pairs = read(put({"x.en": gzip.compress(b"one\n") + gzip.compress(b"two\n"), "x.de.gz": "eins\nzwei\n"}))
    assert (pairs.source, pairs.target) == (["one", "two"], ["eins", "zwei"])


def test_lines_keep_a_carriage_return_that_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"a\rb\r\n\xef\xbb\xbfc \n\nd\r")
    assert list(read_lines(tmp_path / "x")) == ["a\rb", "\ufeffc ", "", "d\r"]


def test_columns_by_position_by_name_and_by_key(put: Put) -> None:
    table = "id\tEnglish\tGerman\n1\tcat\tKatze\n"
    assert read(put({"x.tsv": table}, columns=["German", "English"])).source == ["Katze"]
    assert read(put({"x.tsv": table}, columns=[2, 3])).target == [
        "German",
        "Katze",
    ]  # no header: the first row is a pair
    assert read(put({"x.csv": '1,"cat, ""big""",Katze\n'}, columns=[2, 3])).source == ['cat, "big"']
    assert read(put({"x.csv": "n,Target, source\n1,Katze,cat\n"})).source == ["cat"]  # the default names
    assert read(put({"x.jsonl": '{"en": "cat", "de": "Katze", "n": 1}\n'}, columns=["en", "de"])).target == ["Katze"]


def test_a_quoted_field_may_go_over_lines_and_lines_are_still_counted(put: Put) -> None:
    assert read(put({"x.csv": '"a\nb",c\r\nd,e\r\n'})).source == ["a\nb", "d"]
    with pytest.raises(DataError, match=r"x\.csv, line 3: the target is empty"):
        read(put({"x.csv": '"a\nb",c\nd,\n'}))


def test_quotation_marks_in_tsv_are_text(put: Put) -> None:
    assert read(put({"x.tsv": '"a\tb"\n'})).source == ['"a']


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"x.en": "a\n \nc\n", "x.de": "A\nB\nC\n"},
            r"x\.en, line 2: the source is empty; mend it, or say on_bad: drop",
        ),
        ({"x.en": "a\nb\nc\n", "x.de": "A\n\nC\n"}, r"x\.de, line 2: the target is empty"),
        ({"x.tsv": "a\tA\nb\t\nc\tC\n"}, r"x\.tsv, line 2: the target is empty"),
        ({"x.tsv": "a\tA\nb\tB\tb\nc\tC\n"}, r"x\.tsv, line 2: 3 columns, the first line has 2"),
        ({"x.csv": "a,A\n\nc,C\n"}, r"x\.csv, line 2: 0 columns, the first line has 2"),
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
            r"x\.jsonl, line 2: should be an object with texts 'source' and 'target', got \{\"source\": \"b\"\}",
        ),
        (
            {"x.jsonl": '{"source": "a", "target": "A"}\n["b", "B"]\n{"source": "c", "target": "C"}\n'},
            r"should be an object with texts 'source' and 'target', got \[\"b\", \"B\"\]",
        ),
        (
            {
                "x.jsonl": '{"source": "a", "target": "A"}\n{"source": "b", "target": 2}\n{"source": "c", "target": "C"}\n'
            },
            "line 2: should be an object with texts",
        ),
        (
            {"x.jsonl": as_jsonl([("a", "A"), ("b", "\ud800"), ("c", "C")])},
            "line 2: a text holds a NUL or half a surrogate pair",
        ),
        ({"x.jsonl": as_jsonl([("a", "A"), ("\0", "B"), ("c", "C")])}, "line 2: a text holds a NUL"),
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
        read(put(files))
    pairs = read(put(files, on_bad="drop"))
    assert (pairs.source, pairs.target, [each.count for each in pairs.dropped]) == (["a", "c"], ["A", "C"], [1])


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"x.en": "a\nb\n", "x.de": "A\n"}, r"x\.en has 2 lines and \S*x\.de has 1; line n of one belongs to line n"),
        ({"x.en": "", "x.de": "A\n"}, r"x\.en is empty"),
        ({"x.en": gzip.compress(b""), "x.de": "A\n"}, r"x\.en is empty"),
        (
            {"x.en": "ab\n".encode("utf-16"), "x.de": "A\n"},
            "line 1: not UTF-8 at byte 0: this looks like UTF-16; convert",
        ),
        (
            {"x.en": gzip.compress(b"a\n" * 9)[:-9], "x.de": "A\n"},
            r"x\.en cannot be read past line \d: .*; copy it or pack",
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
            r"x\.tsv has 3 columns and no header with source and target; say which as columns",
        ),
        ({"x.tsv": "source\ttarget\n"}, r"x\.tsv holds no pairs$"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_even_when_pairs_may_be_dropped(
    put: Put, files: dict[str, str | bytes], message: str
) -> None:
    for on_bad in ("error", "drop"):
        with pytest.raises(DataError, match=message):
            read(put(files, on_bad=on_bad))


def test_columns_that_are_not_there(put: Put) -> None:
    with pytest.raises(DataError, match=r"x\.csv has no column 'Germn'; did you mean 'German'\?"):
        read(put({"x.csv": "English,German\na,b\n"}, columns=["English", "Germn"]))
    with pytest.raises(DataError, match=r"x\.csv has no column 3, its first line has 2"):
        read(put({"x.csv": "a,b\n"}, columns=[1, 3]))


def test_when_all_are_dropped_the_first_reason_is_told(put: Put) -> None:
    with pytest.raises(
        DataError, match=r"holds no pairs: 2 dropped: other JSON, such as \S*x.jsonl, line 1: should be"
    ):
        read(put({"x.jsonl": '{"en": "a"}\n{"en": "b"}\n'}, on_bad="drop"))


def test_what_is_not_a_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, message in (
        ("nowhere", "cannot read .*nowhere: No such file"),
        ("", "is a directory; name a file in it"),
        ("pipe", "is a pipe or device; save what it gives to a file"),
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
            r"two text files side by side or one \.tsv, \.csv, \.jsonl file .*, got x\.en; list several",
        ),
        ({"paths": []}, "got none"),
        ({"paths": ["a.tsv", "b.tsv"]}, "got a.tsv, b.tsv; list several corpora in a recipe"),
        ({"paths": ["a.en", "a.de", "a.fr"]}, "got a.en, a.de, a.fr"),
        ({"paths": ["a.en", "a.de"], "columns": [1, 2]}, r"columns \[1, 2\] are for a table, got the text a.en"),
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
    pairs = read(corpus)
    assert (pairs.tag, pairs.weight, pairs.name) == ("2de", 2.0, "x.tsv (en-de)")


def test_pairs_go_in_step() -> None:
    with pytest.raises(DataError, match="odd has 2 sources and 1 targets"):
        Pairs(["a", "b"], ["A"], name="odd")


def numbers(n: int, copies: int = 1) -> Pairs:
    texts = [str(i) for i in range(n)] * copies
    return Pairs(texts, [t + "!" for t in texts], tag="2de", weight=2.0, dropped=(Dropped("a NUL", 3),))


@pytest.mark.parametrize(("n", "size"), [(2, 1), (39, 1), (400, 20), (30000, 1000)])
def test_split_sets_a_twentieth_aside_but_not_too_much(n: int, size: int) -> None:
    train, valid = split(numbers(n))
    assert (len(train), len(valid)) == (n - size, size)
    assert sorted(train.source + valid.source) == sorted(numbers(n).source)
    assert train.source == sorted(train.source, key=int)  # in the order they came
    assert all(t == s + "!" for s, t in zip(valid.source, valid.target, strict=True))
    assert (train.tag, train.weight) == (valid.tag, valid.weight) == ("2de", 2.0)
    assert (valid.name, valid.dropped, train.dropped) == ("pairs, set aside", (), (Dropped("a NUL", 3),))


@given(PAIRS, st.integers(0, 9), st.data())
def test_copies_of_a_pair_stay_on_one_side(rows: list[tuple[str, str]], seed: int, data: st.DataObject) -> None:
    rows = [*rows, ("other", "pair"), *data.draw(st.lists(st.sampled_from(rows), max_size=8))]
    assume(len(set(rows)) > 1)
    pairs = Pairs([s for s, _ in rows], [t for _, t in rows])
    train, valid = split(pairs, size=data.draw(st.integers(1, len(rows) - 1)), seed=seed)
    assert train.source and valid.source and len(train) + len(valid) == len(pairs)
    sides = [set(zip(part.source, part.target, strict=True)) for part in (train, valid)]
    assert not sides[0] & sides[1]


def test_split_hardly_moves_when_lines_are_added_and_moves_with_the_seed() -> None:
    assert split(numbers(40))[1].source == ["25", "27"]  # the same on every machine
    before = set(split(numbers(1000), size=50)[1].source)
    more = numbers(1010)
    shuffled = Pairs(more.source[::-1], more.target[::-1])
    assert len(before & set(split(shuffled, size=50)[1].source)) >= 45
    assert len(before & set(split(numbers(1000), size=50, seed=1)[1].source)) < 20


def test_split_of_what_cannot_be_split() -> None:
    with pytest.raises(DataError, match="cannot set 1 of the 1 pairs of pairs aside for validation"):
        split(numbers(1))
    with pytest.raises(DataError, match="cannot set 5 of the 5 pairs"):
        split(numbers(5), size=5)
    with pytest.raises(DataError, match="all 30 pairs of pairs are the same: none can be set aside"):
        split(numbers(1, copies=30))
    assert len(split(numbers(2, copies=30))[1]) == 30  # more than asked for, but copies stay together


def test_a_fingerprint_tells_every_change_and_no_renaming() -> None:
    base = Pairs(["a", "bc"], ["A", "B"])
    changed = [
        Pairs(["ab", "c"], ["A", "B"]),
        Pairs(["a", "bc"], ["B", "A"]),
        Pairs(["bc", "a"], ["B", "A"]),
        Pairs(["a"], ["A"]),
        Pairs(["A", "B"], ["a", "bc"]),
        Pairs(["a", "bc"], ["A", "B"], tag="2de"),
        Pairs(["a", "bc"], ["A", "B"], weight=2),
    ]
    prints = {fingerprint(pairs) for pairs in [base, *changed]} | {fingerprint(base, base), fingerprint()}
    assert len(prints) == len(changed) + 3
    assert fingerprint(base) == fingerprint(
        Pairs(["a", "bc"], ["A", "B"], weight=1, name="moved", dropped=(Dropped("x", 2),))
    )
    assert fingerprint(base) == "b1349ca45de19641a5c9a5d0b77a854ae0ed20678e638ec8a90bd6f2cee11954"


def test_a_sample_takes_of_every_corpus_its_share_in_order() -> None:
    corpora = [numbers(100), numbers(900)]
    some = sample(corpora, 50)
    assert [len(pairs) for pairs in some] == [5, 45]
    assert some == sample(corpora, 50)
    for pairs in some:
        assert list(pairs.source) == sorted(pairs.source, key=int)
        assert all(t == s + "!" for s, t in zip(pairs.source, pairs.target, strict=True))
    assert sample(corpora, 1000) is corpora
    assert [len(pairs) for pairs in sample([numbers(1), numbers(999)], 10)] == [1, 9]


@given(PAIRS, st.integers(0, 9))
def test_texts_in_a_scratch_file_are_split_and_known_as_those_in_memory(rows: list[tuple[str, str]], seed: int) -> None:
    def kept(texts: list[str], room: int) -> Sequence[str]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("regard.data.lines.ROOM", room)
            pile = Pile()
        for text in texts:
            pile.add(text)
        return pile.lines()

    rows = [*rows, ("other", "pair")]
    assume(len(set(rows)) > 1)
    here, there = (Pairs(*(kept([row[side] for row in rows], room) for side in (0, 1))) for room in (1 << 20, 0))
    assert isinstance(here.source, list) and not isinstance(there.source, list)
    for one, other in zip((here, *split(here, seed=seed)), (there, *split(there, seed=seed)), strict=True):
        assert fingerprint(one) == fingerprint(other)
        assert (list(one.source), list(one.target)) == (list(other.source), list(other.target))


def test_lines_out_of_step_are_told_before_a_bad_pair(put: Put) -> None:
    with pytest.raises(DataError, match=r"x\.en has 4 lines and \S*x\.de has 3"):
        read(put({"x.en": "a\n\nb\nc\n", "x.de": "A\nB\nC\n"}))
