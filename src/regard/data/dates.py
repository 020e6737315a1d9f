"""Generated dates in many languages and their ISO 8601 form.

This is the built-in default task:

    15. November 2026  ->  2026-11-15            [en-US] 03/04/2021  ->  2021-03-04

Names and patterns come from CLDR, through Babel; the calendar is Gregorian. Every text determines its day:

- a two-digit year lies in `SHORT_YEARS`: 00-49 is 20xx, 50-99 is 19xx;
- numbers that begin with a full year are year, month, day; other numbers with dots are day.month.year, because none of the
  locales writes month.day.year; in other formats only one order may give a date (7/20/1953, 5/5/1953);
- texts that are still ambiguous start with their locale in brackets: 03/04/2021, or `lip` (June in Croatian, July in Polish).

Each day belongs to one split, whatever the seed: training sees no validation day in any style or language.
"""

from __future__ import annotations

import itertools
import re
import string
import zlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from typing import Literal

import numpy as np
from babel import Locale

from regard.errors import UnknownName

FIRST, LAST = date(1900, 1, 1), date(2099, 12, 31)
SHORT_YEARS = range(1950, 2050)
"""Years that may be written with two digits."""
SPLITS = ("train", "valid")

# fmt: off
LOCALES = (
    "en-US", "en-GB", "de", "nl", "sv", "da", "nb", "is", "fr", "es", "it", "pt", "ca", "ro", "eu", "ga", "cy", "pl", "cs",
    "sk", "sl", "hr", "sr", "bg", "uk", "ru", "lt", "lv", "et", "fi", "hu", "sq", "el", "tr", "kk", "uz", "ka", "hy", "he",
    "ar-EG", "fa", "ur", "hi", "mr", "ne", "bn", "ta", "th", "vi", "id", "ms", "sw", "fil", "zh-CN", "zh-TW", "ja", "ko",
)
SKELETONS = ("yMd", "yMEd", "yMMMd", "yMMMEd", "yMMMMd", "yMMMMEEEEd")
"""CLDR's names of the styles used in addition to full, long, medium and short."""

# A style is a format string with CLDR's field names (d, dd, M, MM, MMM, MMMM, y, yy, E, EEEE ...) and a few of our own:
# {nth_d} is an ordinal, {roman_M} a Roman numeral, and {han_y}, {han_M}, {han_d} are Chinese numerals.
YEAR_FIRST = (
    "{y}-{MM}-{dd}", "{y}/{MM}/{dd}", "{y}.{MM}.{dd}", "{y} {MM} {dd}", "{y}{MM}{dd}", "{y}-{M}-{d}", "{y}/{M}/{d}",
)
NAMED = (
    "{d} {MMMM} {y}", "{d} {MMM} {y}", "{dd} {MMMM} {y}", "{d}-{MMM}-{y}", "{dd}-{MMM}-{y}", "{d}. {MMMM} {y}",
    "{MMMM} {d} {y}", "{MMMM} {d}, {y}", "{MMM} {d}, {y}", "{y} {MMMM} {d}", "{y}-{MMM}-{dd}", "{y}, {d} {MMMM}",
    "{EEEE} {d} {MMMM} {y}", "{E} {d} {MMM} {y}", "{d} {MMMM} {y}, {EEEE}", "{d} {MMM} {y} ({E})",
    "{d} {MMMM} {yy}", "{d} {MMM} {yy}", "{d}-{MMM}-{yy}", "{d} {MMM} '{yy}", "{E} {d} {MMM} {yy}", "{MMM} {d}, '{yy}",
)
HAN = ("{han_y}年{han_M}月{han_d}日", "{han_y}年{han_M}月{han_d}日{EEEE}", "{y}年{MM}月{dd}日", "{yy}年{M}月{d}日")
ROMAN = ("{d} {roman_M} {y}", "{d}.{roman_M}.{y}", "{d}. {roman_M}. {y}")
OWN: Mapping[str, tuple[str, ...]] = {
    "en-US": ("{MMMM} {nth_d}, {y}", "{EEEE}, {MMMM} {nth_d}, {y}", "the {nth_d} of {MMMM}, {y}", "{MMM}. {d}, {y}"),
    "en-GB": ("{nth_d} {MMMM} {y}", "{EEEE} {nth_d} {MMMM} {y}", "the {nth_d} of {MMMM} {y}", "{E}, {dd} {MMM} {y}"),
    "de": ("den {d}. {MMMM} {y}", "{EEEE}, den {d}. {MMMM} {y}", "{EEEE}, {dd}.{MM}.{y}", "{d}. {MMMM} {yy}"),
    "nl": ("{nth_d} {MMMM} {y}", "{EEEE} {nth_d} {MMMM} {y}"),
    "sv": ("den {d} {MMMM} {y}", "den {nth_d} {MMMM} {y}", "{EEEE} den {d} {MMMM} {y}"),
    "da": ("den {d}. {MMMM} {y}", "d. {d}. {MMMM} {y}"),
    "nb": ("den {d}. {MMMM} {y}", "{EEEE} den {d}. {MMMM} {y}"),
    "fr": ("{nth_d} {MMMM} {y}", "le {nth_d} {MMMM} {y}", "{EEEE} {nth_d} {MMMM} {y}", "le {EEEE} {nth_d} {MMMM} {y}"),
    "es": ("{nth_d} de {MMMM} de {y}", "el {d} de {MMMM} de {y}", "{d} de {MMMM} del {y}", "{EEEE} {d} de {MMMM} de {y}"),
    "it": ("{nth_d} {MMMM} {y}", "il {d} {MMMM} {y}", "{EEEE} {nth_d} {MMMM} {y}"),
    "pt": ("{nth_d} de {MMMM} de {y}", "{EEEE}, {nth_d} de {MMMM} de {y}"),
    "ca": ("{d} {MMMM} de {y}", "el {d} {MMMM} de {y}"),
    "ro": ROMAN,
    "ga": ("{nth_d} {MMMM} {y}", "an {nth_d} {MMMM} {y}"),
    "pl": ("{d} {MMMM} {y} r.", "{EEEE}, {d} {MMMM} {y} roku", *ROMAN),
    "hr": ("{d}. {MMMM} {y}. godine",),
    "sr": ("{d}. {MMMM} {y}. године",),
    "bg": ("{d} {MMMM} {y} година", *ROMAN),
    "uk": ("{d} {MMMM} {y} року", "{nth_d} {MMMM} {y} року"),
    "ru": ("{d} {MMMM} {y} года", "{nth_d} {MMMM} {y} года", "{EEEE}, {d} {MMMM} {y} года"),
    "lt": ("{y} metų {MMMM} {d} diena",),
    "hu": ("{y}. {MMMM} {nth_d}", "{y}. {roman_M}. {d}."),
    "sq": ("më {d} {MMMM} {y}",),
    "el": ("{nth_d} {MMMM} {y}", "{EEEE}, {d} {MMMM} {y}"),
    "kk": ("{y} жылғы {d} {MMMM}",),
    "uz": ("{y}-yil {d}-{MMMM}",),
    "ka": ("{y} წლის {d} {MMMM}",),
    "hy": ("{y} թվականի {MMMM} {d}",),
    "he": ("ה-{d} ב{MMMM} {y}",),
    "ar-EG": ("يوم {EEEE} {d} {MMMM} {y}",),
    "fa": ("{d} {MMMM} {y} میلادی",),
    "th": ("วันที่ {d} {MMMM} {y}", "วันที่ {d} {MMMM} ค.ศ. {y}"),
    "vi": ("ngày {d} tháng {M} năm {y}", "{EEEE}, ngày {d} tháng {M} năm {y}", "ngày {dd} tháng {MM} năm {y}"),
    "id": ("tanggal {d} {MMMM} {y}",),
    "ms": ("{d} hb {MMMM} {y}",),
    "sw": ("tarehe {d} {MMMM} {y}",),
    "fil": ("ika-{d} ng {MMMM}, {y}", "ika-{d} ng {MMMM} {y}"),
    "zh-CN": (*HAN, "{y}年{M}月{d}号"),
    "zh-TW": HAN,
    "ja": (*HAN, "{y}年{M}月{d}日({E})"),
    "ko": ("{y}년{M}월{d}일", "{y}년 {MM}월 {dd}일", "{yy}년 {M}월 {d}일"),
}
SHOWCASE = (
    ("English", "en-US", "{EEEE}, {MMMM} {nth_d}, {y}"), ("German", "de", "{d}. {MMMM} {y}"),
    ("French", "fr", "le {EEEE} {nth_d} {MMMM} {y}"), ("Polish", "pl", "{d} {roman_M} {y}"),
    ("Russian", "ru", "{d} {MMMM} {y} года"), ("Greek", "el", "{EEEE} {d} {MMMM} {y}"),
    ("Arabic", "ar-EG", "{EEEE}، {d} {MMMM} {y}"), ("Hindi", "hi", "{d} {MMMM} {y}"),
    ("Thai", "th", "วันที่ {d} {MMMM} {y}"), ("Vietnamese", "vi", "ngày {d} tháng {M} năm {y}"),
    ("Chinese", "zh-CN", "{han_y}年{han_M}月{han_d}日"), ("Korean", "ko", "{y}년 {MMMM} {d}일 {EEEE}"),
)
# fmt: on

ENDINGS: Mapping[str, Mapping[int, str]] = {  # endings of ordinals; 0 stands for all days not listed
    "en": {0: "th", 1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd", 31: "st"},
    "fr": {1: "er"},
    "es": {1: "º"},
    "it": {1: "º"},
    "pt": {1: "º"},
    "nl": {0: "e"},
    "sv": {0: ":e", **dict.fromkeys((1, 2, 21, 22, 31), ":a")},
    "ru": {0: "-го"},
    "uk": {0: "-го"},
    "el": {0: "η"},
    "ga": {0: "ú"},
    "hu": {0: "-én", 1: "-jén", **dict.fromkeys((2, 3, 6, 8, 12, 13, 16, 18, 20, 22, 23, 26, 28, 30), "-án")},
}
ROMAN_MONTHS = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII")
HAN_NUMBERS = tuple(tens + one or "〇" for tens in ("", "十", "二十", "三十") for one in ("", *"一二三四五六七八九"))
NATIVE_ZERO = {"ar-EG": "٠", "fa": "۰", "hi": "०", "mr": "०", "ne": "०", "bn": "০", "th": "๐"}
"""The digit zero of locales with native digits (Babel writes European digits everywhere)."""

TYPED = str.maketrans({"\u202f": " ", "\xa0": " ", "\u200f": "", "\u200c": "", "’": "'", "ʼ": "'"})
"""Replaces characters of CLDR by those on a keyboard."""
BEFORE_UPPER = {"tr": str.maketrans("i", "İ"), "el": str.maketrans("άέήίόύώΐΰ", "αεηιουωϊϋ")}
BEFORE_LOWER = {"tr": str.maketrans("Iİ", "ıi")}

Case = Literal["upper", "lower", "capitals", "as is"]
CASES: tuple[Case, ...] = ("upper",) * 2 + ("lower",) * 3 + ("capitals",) * 2 + ("as is",) * 13
"""Drawn from uniformly, so each case is listed as often as its share."""
Tag = Literal["never", "swappable", "always"]
"""Cases in which a style must name its locale: never, if swapping day and month gives another date, or always."""


@dataclass(frozen=True)
class Style:
    """A way to write a date."""

    template: str
    fields: tuple[str, ...]
    order: str
    short: bool
    tag: Tag


@cache
def parse_style(template: str) -> Style:
    """Return the style of a format string."""
    fields = tuple(re.findall(r"{(\w+)}", template))
    order = "".join(field[-1] for field in fields if field[-1] in "yMd")
    short = "yy" in fields
    return Style(template, fields, order, short, _tag_rule(template, fields, order, short))


def _tag_rule(template: str, fields: tuple[str, ...], order: str, short: bool) -> Tag:
    said = re.search("年|년|tháng ", template)  # every number is labeled
    if said or {"M", "MM"}.isdisjoint(fields):
        return "never"
    if re.search(r"{dd?}\. ?{MM?}\. ?{yy?}", template) or (order == "yMd" and not short):
        return "never"
    return "always" if short else "swappable"


@dataclass(frozen=True)
class DateLocale:
    """Names and styles of a locale; each group of styles is listed as often as its share."""

    tag: str
    names: Mapping[str, tuple[str, ...]]
    groups: tuple[tuple[Style, ...], ...]

    @property
    def base(self) -> str:
        return self.tag.partition("-")[0]

    def write(self, day: date, how: Style) -> str:
        """Write a day in a style, with the characters of CLDR."""
        y, m, d = day.year, day.month, day.day
        endings = ENDINGS.get(self.base, {})
        values = {"y": str(y), "yy": f"{y % 100:02}", "M": str(m), "MM": f"{m:02}", "d": str(d), "dd": f"{d:02}"}
        values |= {field: names[m - 1 if field[0] == "M" else day.weekday()] for field, names in self.names.items()}
        values |= {"nth_d": f"{d}{endings.get(d, endings.get(0, ''))}", "roman_M": ROMAN_MONTHS[m - 1]}
        han_y = "".join(HAN_NUMBERS[int(digit)] for digit in str(y))
        values |= {"han_y": han_y, "han_M": HAN_NUMBERS[m], "han_d": HAN_NUMBERS[d]}
        return how.template.format_map(values)

    def needs_tag(self, day: date, how: Style) -> bool:
        """True if the style asks for a tag, or the text could mean another day in some locale."""
        swappable = day.day <= 12 and day.day != day.month
        if how.tag == "always" or (how.tag == "swappable" and swappable):
            return True
        return any((self.tag, field, day.month) in _ambiguous_months() for field in how.fields)

    def add_tag(self, text: str, case: Case = "as is") -> str:
        """Return the text with its locale in brackets before it."""
        return f"[{self.tag.lower() if case == 'lower' else self.tag}] {text}"

    def change_case(self, text: str, case: Case) -> str:
        """Change the case of a text by the rules of its language."""
        if case == "upper" and self.base != "ka":  # Unicode has Georgian capitals, but they are not used
            return text.translate(BEFORE_UPPER.get(self.base, {})).upper()
        if case == "lower":
            return text.translate(BEFORE_LOWER.get(self.base, {})).lower()
        return string.capwords(text) if case == "capitals" else text

    def to_native_digits(self, text: str) -> str:
        """Return the text with the native digits of the locale, if it has any."""
        zero = ord(NATIVE_ZERO.get(self.tag, "0"))
        return text.translate({ord("0") + i: zero + i for i in range(10)})


@cache
def load_locale(tag: str) -> DateLocale:
    """Load one of `LOCALES`."""
    if tag not in LOCALES:
        raise UnknownName("locale", tag, LOCALES)
    locale = Locale.parse(tag, sep="-")
    cldr = cldr_templates(locale)
    counted = any(c.isdigit() for c in locale.months["format"]["abbreviated"][1])  # 3月, tháng 3
    shares = (
        (8, cldr),
        (4, () if counted else NAMED),
        (4, OWN.get(tag, ())),
        (3, _number_styles(parse_style(cldr[3]).order)),
        (1, YEAR_FIRST),
    )
    groups = tuple(tuple(map(parse_style, templates)) for share, templates in shares for _ in range(share) if templates)
    fields = {field for group in groups for s in group for field in s.fields}
    names = {
        field: _read_names(locale, field) for field in sorted(fields) if re.fullmatch("MMMM?|E|EEEE?|cccc?", field)
    }
    return DateLocale(tag, names, groups)


def cldr_templates(locale: Locale) -> tuple[str, ...]:
    """Return CLDR's styles as format strings: full, long, medium and short, then the available `SKELETONS`."""
    patterns = [locale.date_formats[width].pattern for width in ("full", "long", "medium", "short")]
    patterns += [locale.datetime_skeletons[s].pattern for s in SKELETONS if s in locale.datetime_skeletons]
    return tuple(from_cldr(pattern).replace("{G}", locale.eras["abbreviated"][1]) for pattern in patterns)


def from_cldr(pattern: str) -> str:
    """Convert a CLDR pattern to a format string: "d 'de' MMMM" becomes "{d} de {MMMM}"."""
    return re.sub(r"'([^']*)'|(([A-Za-z])\3*)", lambda m: f"{{{m[2]}}}" if m[2] else m[1], pattern)


def _read_names(locale: Locale, field: str) -> tuple[str, ...]:
    """Return the names of the months, or of the weekdays from Monday, of a CLDR field."""
    table = locale.months if field[0] == "M" else locale.days
    names = table["stand-alone" if field[0] == "c" else "format"]["wide" if len(field) == 4 else "abbreviated"]
    return tuple(names[i] for i in sorted(names))


def _number_styles(order: str) -> tuple[str, ...]:
    """Return the purely numeric styles of a locale that writes day, month and year in this order."""
    forms = itertools.product("/- " if order == "Mdy" else "/- .", (1, 2), ("y", "yy"))
    return tuple(mark.join(f"{{{y if part == 'y' else part * digits}}}" for part in order) for mark, digits, y in forms)


@cache
def _ambiguous_months() -> frozenset[tuple[str, str, int]]:
    """Return the (locale, field, month) whose name means another month in some other locale."""
    uses = defaultdict(set)
    for tag, field in itertools.product(LOCALES, ("MMM", "MMMM")):
        for month, name in enumerate(load_locale(tag).names.get(field, ()), start=1):
            uses[name.casefold().strip(".")].add((tag, field, month))
    return frozenset(use for same in uses.values() if len({month for *_, month in same}) > 1 for use in same)


def is_held_out(day: date) -> bool:
    """True if a day is held out for validation, as about one in twenty is."""
    return zlib.crc32(day.isoformat().encode()) % 20 == 0


@cache
def split_days(split: str) -> tuple[date, ...]:
    """Return all days of a split, in order."""
    if split not in SPLITS:
        raise UnknownName("split", split, SPLITS)
    every = (FIRST + timedelta(i) for i in range((LAST - FIRST).days + 1))
    return tuple(day for day in every if is_held_out(day) == (split == "valid"))


def generate_pairs(seed: int, count: int, split: str = "train", start: int = 0) -> list[tuple[str, str]]:
    """Return `count` examples (text, ISO date) of the endless stream of a seed and a split, from number `start` on."""
    pool = split_days(split)
    key = np.array([seed % 2**64, SPLITS.index(split)], dtype=np.uint64)
    draws = np.random.Philox(counter=2 * start, key=key).random_raw(
        (count, 8)
    )  # an example uses two blocks of four numbers
    return [_generate_pair(pool, *row.tolist()) for row in draws]


def generate_example(seed: int, index: int, split: str = "train") -> tuple[str, str]:
    """Return example number `index` of the stream of a seed and a split."""
    return generate_pairs(seed, 1, split, start=index)[0]


def _generate_pair(
    pool: tuple[date, ...], when: int, where: int, group: int, nth: int, letters: int, digits: int, typed: int, tag: int
) -> tuple[str, str]:
    """Build an example from eight random numbers, each of which decides one aspect."""
    day, lang = pool[when % len(pool)], load_locale(LOCALES[where % len(LOCALES)])
    styles = [s for s in lang.groups[group % len(lang.groups)] if day.year in SHORT_YEARS or not s.short]
    how, case = styles[nth % len(styles)], CASES[letters % len(CASES)]
    text = lang.change_case(lang.write(day, how), case)
    if digits % 2:
        text = lang.to_native_digits(text)
    if typed % 2:
        text = text.translate(TYPED)
    if lang.needs_tag(day, how) or tag % 10 == 0:
        text = lang.add_tag(text, case)
    return text, day.isoformat()


def showcase() -> list[tuple[str, str, str]]:
    """Return held-out examples as (language, text, ISO date): `SHOWCASE`, then two that differ only in their locale."""
    unseen = split_days("valid")
    rows = [
        (name, load_locale(tag), template, unseen[i * len(unseen) // (len(SHOWCASE) + 1)])
        for i, (name, tag, template) in enumerate(SHOWCASE, start=1)
    ]
    twins = ((day, date(day.year, day.day, day.month)) for day in unseen if day.year > 2020 and day.day < day.month)
    american, british = next(both for both in twins if is_held_out(both[1]))
    rows.append(("American English", load_locale("en-US"), "[en-US] {MM}/{dd}/{y}", american))
    rows.append(("British English", load_locale("en-GB"), "[en-GB] {dd}/{MM}/{y}", british))
    return [
        (name, lang.to_native_digits(lang.write(day, parse_style(how))), day.isoformat())
        for name, lang, how, day in rows
    ]
