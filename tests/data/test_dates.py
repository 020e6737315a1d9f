"""The date generator: CLDR's texts exactly, one meaning a text, a pure function of seed and index, days split for good."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from datetime import date, datetime, timedelta

import pytest
from babel import Locale
from babel.dates import format_date, get_day_names, get_month_names
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import dates
from regard.data.dates import (
    LOCALES,
    generate_example,
    generate_pairs,
    is_held_out,
    load_locale,
    parse_style,
    showcase,
    split_days,
)
from regard.errors import UnknownName

MONTH_FIRST = {"en-US", "fil"}
YEAR_FIRST = {"sv", "eu", "lt", "hu", "fa", "ne", "zh-CN", "zh-TW", "ja", "ko"}
SOME_DAYS = [
    date(1999, 12, 31),
    *(date(2003 + i % 9, i % 12 + 1, (7 * i) % 28 + 1) for i in range(24)),
    date(2024, 2, 29),
]


@pytest.fixture(scope="module")
def sample() -> list[tuple[str, str]]:
    began = time.process_time()
    made = generate_pairs(seed=7, count=180_000) + generate_pairs(seed=7, count=20_000, split="valid")
    assert time.process_time() - began < 10
    return made


def styles(tag: str) -> list[dates.Style]:
    return list(dict.fromkeys(itertools.chain(*load_locale(tag).groups)))


def every_style() -> list[tuple[dates.DateLocale, dates.Style]]:
    return [(load_locale(tag), how) for tag in LOCALES for how in styles(tag)]


def expand(short: int) -> int:
    return 2000 + short if short < 50 else 1900 + short


def read_numbers(text: str) -> date | None:
    """An independent reader of dates without words; None for texts with any."""
    tag, body = re.fullmatch(r"(?:\[(.+?)\] )?(.*)", text).groups()
    numbers = [int(n) for n in re.findall(r"\d+", body)]
    if re.search(r"[^\W\d]", body) or not numbers:
        return None
    if len(numbers) == 1:
        return datetime.strptime(str(numbers[0]), "%Y%m%d").date()
    spelling = {t.lower(): t for t in LOCALES}
    where = spelling[tag.lower()] if tag else None
    a, b, c = numbers
    if a > 99:
        return date(a, b, c)
    if c > 99 or where not in YEAR_FIRST:
        year, day, month = (c if c > 99 else expand(c)), a, b
        if where in MONTH_FIRST or (where is None and b > 12):
            day, month = b, a
        return date(year, month, day)
    return date(expand(a), b, c)


def test_there_are_many_locales_and_each_is_drawn() -> None:
    assert len(set(LOCALES)) == len(LOCALES) >= 46
    seen = {m[1] for text, _ in generate_pairs(1, 20_000) if (m := re.match(r"\[(.+?)\]", text))}
    assert set(LOCALES) <= seen


@pytest.mark.parametrize("tag", LOCALES)
def test_cldr_styles_are_written_as_babel_writes_them(tag: str) -> None:
    locale = Locale.parse(tag, sep="-")
    patterns = [*locale.date_formats.values(), *(locale.datetime_skeletons.get(s) for s in dates.SKELETONS)]
    patterns = [p for p in patterns if p is not None]
    assert len(patterns) >= 8
    known = {s.template for s in styles(tag)}
    for pattern in patterns:
        template = dates.from_cldr(pattern.pattern).replace("{G}", locale.eras["abbreviated"][1])
        assert template in known
        for day in SOME_DAYS:
            assert load_locale(tag).write(day, parse_style(template)) == format_date(day, pattern, locale)


def test_a_text_has_one_meaning(sample: list[tuple[str, str]]) -> None:
    meaning: dict[str, str] = {}
    for text, iso in sample:
        assert meaning.setdefault(text, iso) == iso, text


def test_a_text_has_one_meaning_even_to_a_careless_reader() -> None:
    """Over every style of every locale: letters' case, digits' script, and dots and commas beside words do not matter."""
    beside_word = re.compile(r"(?<=[^\W\d])[.,]|[.,](?=\s*[^\W\d])|[.,]$")
    confusing = [date(y, m, d) for y in (2003, 2011) for m in range(1, 13) for d in (3, 6, 11, 25)]
    meaning: dict[str, set[date]] = defaultdict(set)
    for (lang, how), day in itertools.product(every_style(), confusing):
        text = beside_word.sub("", lang.write(day, how).casefold())
        meaning[lang.add_tag(text) if lang.needs_tag(day, how) else text].add(day)
    assert not {text: found for text, found in meaning.items() if len(found) > 1}


def test_numbers_read_back_by_an_independent_reader(sample: list[tuple[str, str]]) -> None:
    read = [(text, got.isoformat(), iso) for text, iso in sample if (got := read_numbers(text))]
    assert len(read) > 30_000
    assert not [row for row in read if row[1] != row[2]]


def test_named_styles_read_back_with_babels_names() -> None:
    """With the names of month and weekday taken away, a text with a full year has two numbers: the day and the year."""
    checked = set()
    widths = {"MMM": "abbreviated", "MMMM": "wide", "E": "abbreviated", "EEE": "abbreviated", "EEEE": "wide"}
    for lang, how in every_style():
        locale = Locale.parse(lang.tag, sep="-")
        month = next((f for f in how.fields if f.startswith("MMM")), None)
        weekday = next((f for f in how.fields if f in ("E", "EEE", "EEEE")), None)
        if month is None or how.short:
            continue
        for day in SOME_DAYS:
            text = lang.write(day, how)
            names = [get_month_names(widths[month], "format", locale)[day.month]]
            names += [get_day_names(widths[weekday], "format", locale)[day.weekday()]] if weekday else []
            for name in sorted(names, key=len, reverse=True):
                assert name in text
                text = text.replace(name, " ", 1)
            assert sorted(map(int, re.findall(r"\d+", text))) == [day.day, day.year], text
        checked.add(lang.tag)
    assert set(LOCALES) - checked == {"zh-CN", "zh-TW", "ja"}  # where CLDR has numbers only


def test_weekdays_are_those_of_the_calendar() -> None:
    for tag in LOCALES:
        locale = Locale.parse(tag, sep="-")
        for day in SOME_DAYS:
            assert (
                load_locale(tag).write(day, parse_style("{EEEE}"))
                == get_day_names("wide", "format", locale)[day.weekday()]
            )
    for i in range(0, 70_000, 97):
        day = dates.FIRST + timedelta(i)
        text = load_locale("en-US").write(day, parse_style("{EEEE}, {MMMM} {d}, {y}"))
        assert text == day.strftime("%A, %B ") + f"{day.day}, {day.year}"


def test_month_names_of_a_locale_differ_in_any_case() -> None:
    for tag, field, case in itertools.product(LOCALES, ("MMM", "MMMM"), dates.CASES[::3]):
        lang = load_locale(tag)
        written = {lang.change_case(name, case).strip(".") for name in lang.names.get(field, range(0))}
        assert len(written) == (12 if field in lang.names else 0)


def test_what_is_open_carries_its_locale_and_what_is_not_need_not() -> None:
    third_of_april, christmas = date(2021, 4, 3), date(2021, 12, 25)
    us, pl, hr, ko = map(load_locale, ("en-US", "pl", "hr", "ko"))
    assert us.needs_tag(third_of_april, parse_style("{MM}/{dd}/{y}"))
    assert not us.needs_tag(christmas, parse_style("{MM}/{dd}/{y}"))
    assert not us.needs_tag(date(2021, 5, 5), parse_style("{MM}/{dd}/{y}"))
    assert us.needs_tag(christmas, parse_style("{MM}/{dd}/{yy}"))
    assert not pl.needs_tag(third_of_april, parse_style("{d}.{MM}.{y}"))
    assert not pl.needs_tag(third_of_april, parse_style("{y}-{MM}-{dd}"))
    assert ko.needs_tag(third_of_april, parse_style("{yy}. {M}. {d}."))
    assert not ko.needs_tag(third_of_april, parse_style("{yy}년 {M}월 {d}일"))
    assert pl.needs_tag(date(2021, 7, 25), parse_style("{d} {MMM} {y}")) and hr.needs_tag(
        date(2021, 6, 25), parse_style("{d} {MMM} {y}")
    )
    assert not pl.needs_tag(third_of_april, parse_style("{d} {MMM} {y}"))


def test_none_of_our_locales_breaks_the_rules_that_spare_a_tag() -> None:
    for _, how in every_style():
        assert not re.search(r"{MM?}\. ?{dd?}", how.template) or how.order == "yMd"
        assert how.order != "ydM" or {"M", "MM"}.isdisjoint(how.fields)
        assert (
            how.tag != "never"
            or how.order.index("d") < how.order.index("y")
            or not how.short
            or how.template[4] in "年년"
        )


def test_few_unambiguous_texts_carry_a_tag(sample: list[tuple[str, str]]) -> None:
    texts = [text for text, _ in sample if re.search(r"\d{4}-\d\d-\d\d$", text)]
    assert 0.05 < sum(text.startswith("[") for text in texts) / len(texts) < 0.15


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(-(2**70), 2**70),
    start=st.integers(0, 2**40),
    count=st.integers(0, 5),
    split=st.sampled_from(dates.SPLITS),
)
def test_an_example_is_a_function_of_seed_split_and_index(seed: int, start: int, count: int, split: str) -> None:
    several = generate_pairs(seed, count, split, start=start)
    assert several == [generate_example(seed, start + i, split) for i in range(count)]
    assert several == generate_pairs(seed, count + 3, split, start=start)[:count]


def test_seeds_and_splits_name_different_streams() -> None:
    assert len({tuple(generate_pairs(seed, 5, split)) for seed in range(20) for split in dates.SPLITS}) == 40


def test_the_order_in_which_locales_are_loaded_does_not_matter() -> None:
    """Babel resolves some names lazily in tables that locales share, so what one sees may depend on who came before."""
    script = (
        "import hashlib, sys; from regard.data.dates import LOCALES, load_locale\n"
        "for tag in eval(sys.argv[1]): load_locale(tag)\n"
        "print(hashlib.sha256(repr([load_locale(tag) for tag in LOCALES]).encode()).hexdigest())"
    )
    here = hashlib.sha256(repr([load_locale(tag) for tag in LOCALES]).encode()).hexdigest()
    run = [sys.executable, "-c", script, "LOCALES[::-1]"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run(run, env=env, capture_output=True, text=True, check=True).stdout.strip() == here


def test_no_day_is_in_both_splits(sample: list[tuple[str, str]]) -> None:
    train, valid = set(split_days("train")), set(split_days("valid"))
    assert not train & valid
    assert len(train | valid) == (dates.LAST - dates.FIRST).days + 1
    assert 0.045 < len(valid) / len(train | valid) < 0.055
    assert {iso for _, iso in sample[:180_000]} <= {day.isoformat() for day in train}
    assert {iso for _, iso in sample[180_000:]} <= {day.isoformat() for day in valid}


def test_held_out_days_are_spread_over_the_calendar() -> None:
    valid = split_days("valid")
    assert {d.month for d in valid} == set(range(1, 13)) and {d.day for d in valid} == set(range(1, 32))
    assert {d.year for d in valid} == set(range(1900, 2100)) and {d.weekday() for d in valid} == set(range(7))


def test_leap_days_are_drawn_in_both_splits(sample: list[tuple[str, str]]) -> None:
    assert any(iso.endswith("-02-29") for _, iso in sample[:180_000])
    assert any(iso.endswith("-02-29") for _, iso in sample[180_000:])


def test_two_digit_years_stay_within_their_century(sample: list[tuple[str, str]]) -> None:
    found = {(m[1], iso[:4]) for text, iso in sample if (m := re.fullmatch(r"\d\d\.\d\d\.(\d\d)", text))}
    assert {int(short) for short, _ in found} == set(range(100))
    assert all(expand(int(short)) == int(year) for short, year in found)
    assert {int(iso[:4]) for _, iso in sample} == set(range(1900, 2100))


def test_every_group_can_write_any_year() -> None:
    assert all(any(not s.short for s in group) for tag in LOCALES for group in load_locale(tag).groups)


def test_letters_follow_the_language() -> None:
    tr, el, ka, en = map(load_locale, ("tr", "el", "ka", "en-US"))
    assert tr.change_case("5 Nisan, Kasım", "upper") == "5 NİSAN, KASIM"
    assert tr.change_case("KASIM NİSAN", "lower") == "kasım nisan"
    assert el.change_case("Μαρτίου", "upper") == "ΜΑΡΤΙΟΥ"
    assert ka.change_case("მარტი", "upper") == "მარტი"
    assert en.change_case("the 1st of may", "capitals") == "The 1st Of May"


@pytest.mark.parametrize(
    ("tag", "template", "day", "text"),
    [
        ("en-GB", "{nth_d} {MMMM} {y}", date(2026, 11, 22), "22nd November 2026"),
        ("en-GB", "{nth_d} {MMMM} {y}", date(2026, 11, 12), "12th November 2026"),
        ("fr", "{nth_d} {MMMM} {y}", date(2026, 5, 1), "1er mai 2026"),
        ("fr", "{nth_d} {MMMM} {y}", date(2026, 5, 2), "2 mai 2026"),
        ("sv", "den {nth_d} {MMMM} {y}", date(2026, 5, 21), "den 21:a maj 2026"),
        ("hu", "{y}. {MMMM} {nth_d}", date(2026, 3, 20), "2026. március 20-án"),
        ("pl", "{d} {roman_M} {y}", date(2026, 9, 4), "4 IX 2026"),
        ("ja", "{han_y}年{han_M}月{han_d}日", date(2010, 12, 21), "二〇一〇年十二月二十一日"),
    ],
)
def test_styles_of_our_own(tag: str, template: str, day: date, text: str) -> None:
    assert load_locale(tag).write(day, parse_style(template)) == text


def test_native_digits() -> None:
    assert {tag: load_locale(tag).to_native_digits("1950") for tag in ("ar-EG", "fa", "ne", "bn", "th", "de")} == {
        "ar-EG": "١٩٥٠", "fa": "۱۹۵۰", "ne": "१९५०", "bn": "১৯৫০", "th": "๑๙๕๐", "de": "1950",
    }  # fmt: skip


def test_texts_stay_short_and_their_characters_few(sample: list[tuple[str, str]]) -> None:
    assert len(set().union(*(text for text, _ in sample))) < 700
    assert max(len(text) for text, _ in sample) <= 48
    assert all(text == text.strip() and "\n" not in text and "\t" not in text for text, _ in sample)


def test_the_showcase_is_unseen_and_in_many_languages() -> None:
    rows = showcase()
    assert len({name for name, _, _ in rows}) == len(rows) >= 12
    assert all(is_held_out(date.fromisoformat(iso)) for _, _, iso in rows)
    (_, american, one), (_, british, other) = rows[-2:]
    assert american.removeprefix("[en-US] ") == british.removeprefix("[en-GB] ")
    assert one != other
    assert [read_numbers(text) for text in (american, british)] == [date.fromisoformat(one), date.fromisoformat(other)]
    for name, tag, template in dates.SHOWCASE:
        assert parse_style(template) in styles(tag), name


def test_unknown_names_are_told_the_near_ones() -> None:
    with pytest.raises(UnknownName, match=r"no split 'vald'; did you mean 'valid'\?"):
        generate_pairs(0, 1, "vald")
    with pytest.raises(UnknownName, match=r"no locale 'en_US'; did you mean 'en-US'\?"):
        load_locale("en_US")
