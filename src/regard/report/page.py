"""Self-contained HTML pages: nothing is fetched.

The page forbids itself everything else with a content security policy, so that even text that slipped through as markup
could neither run nor call home. The only script that may run is one of ours, which the policy names by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from regard.report.markup import Html, tag

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True)
class Section:
    """A part of a page, listed in its contents; `parts` that are not markup become escaped text."""

    title: str
    parts: tuple[str, ...]


def page(
    title: str,
    sections: Sequence[Section],
    *,
    lead: Sequence[str] = (),
    body: Sequence[str] = (),
    style: str = "",
    script: str = "",
) -> str:
    """A complete document: title, lead, table of contents, sections, and a `body` with a `style` and `script` of its own."""
    names = _anchors([s.title for s in sections])
    links = [tag("li", tag("a", s.title, href=f"#{name}", dir="auto")) for s, name in zip(sections, names, strict=True)]
    contents = tag("nav", tag("ol", *links), aria_label="Contents") if len(links) > 1 else Html()
    parts = [
        tag("section", tag("h2", s.title, dir="auto"), *s.parts, id=name)
        for s, name in zip(sections, names, strict=True)
    ]
    style = resources.files(__package__).joinpath("style.css").read_text(encoding="utf-8") + style
    policy = POLICY if not script else f"{POLICY}; script-src 'sha256-{_hash(script)}'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", Html(style)),
    )
    main = tag("main", tag("header", tag("h1", title, dir="auto"), *lead), *parts, *body)
    code = [tag("script", Html(script))] if script else []
    return f"<!doctype html>\n{tag('html', head, tag('body', contents, main, *code), lang='en')}\n"


def notebook_frame(html: str, *, scripts: bool = False, height: int = 720) -> Html:
    """A page inside a notebook or another page, kept apart from it; `scripts` lets the page's own one run."""
    allowed = "allow-scripts" if scripts else ""
    return tag("iframe", sandbox=allowed, style=f"width:100%;height:{height}px;border:0", srcdoc=html)


def figures(named: Sequence[tuple[str, str, str]]) -> Html:
    """Headline figures: what, how much, and a note below."""
    return tag(
        "dl",
        *(tag("div", tag("dt", what), tag("dd", much), tag("dd", note, class_="note")) for what, much, note in named),
        class_="figures",
    )


def pre(text: str) -> Html:
    """Text as it was typed, in a fixed-width font."""
    return tag("pre", text, tabindex="0")


def grid(parts: Sequence[str]) -> Html:
    """Parts side by side where they fit."""
    return tag("div", *parts, class_="grid")


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _anchors(titles: Sequence[str]) -> list[str]:
    """A unique anchor for every title."""
    names: list[str] = []
    for title in titles:
        stem = re.sub(r"\W+", "-", title.lower()).strip("-") or "section"
        name, n = stem, 2
        while name in names:
            name, n = f"{stem}-{n}", n + 1
        names.append(name)
    return names
