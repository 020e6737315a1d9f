"""Pages are whole, link to their sections, and fetch nothing."""

import re

from reading import Reader

from regard.report.page import Section, figures, page, pre


def test_a_page_is_whole_and_lists_its_sections():
    read = Reader(page("Title", [Section("Curves", ("text",)), Section("Data & more", ("1 < 2",))], lead=["first"]))
    assert read.said("h1") == ["Title"] and read.said("title") == ["Title"]
    assert [a["href"] for a in read.all("a")] == ["#curves", "#data-more"]
    assert [s["id"] for s in read.all("section")] == ["curves", "data-more"]
    assert read.said("section") == ["text", "1 < 2"] and read.said("header") == ["first"]


def test_sections_of_one_name_have_places_of_their_own():
    titles = ["A", "a", "a 2", "A", "…", "注意"]
    read = Reader(page("t", [Section(t, ()) for t in titles]))
    names = [s["id"] for s in read.all("section")]
    assert names == ["a", "a-2", "a-2-2", "a-3", "section", "注意"]
    assert [a["href"] for a in read.all("a")] == [f"#{n}" for n in names]


def test_contents_need_more_than_one_section():
    assert not Reader(page("t", [Section("Only", ())])).all("nav")


def test_nothing_is_fetched_and_nothing_runs():
    document = page("t", [Section("<script src=//x>", ("<img src=x onerror=alert(1)>",))])
    read = Reader(document)
    assert not read.all("script") and not read.all("img")
    assert [link["href"] for link in read.all("link")] == ["data:,"]
    assert not re.search(r"https?:|//|@import|url\(", document.split("<style>")[1].split("</style>")[0])
    (policy,) = read.all("meta", **{"http-equiv": "Content-Security-Policy"})
    assert policy["content"].startswith("default-src 'none';")


def test_a_page_can_always_be_written():
    assert page("\ud800", [Section("\x00", ("\udfff",))]).encode()


def test_small_parts():
    assert pre("a < b") == '<pre tabindex="0">a &lt; b</pre>'
    assert Reader(figures([("Steps", "3,000", "of 4,000")])).said("dd") == ["3,000", "of 4,000"]


def test_the_style_knows_both_themes_and_paper():
    document = page("t", [])
    assert "screen and (prefers-color-scheme: dark)" in document and "@media print" in document
