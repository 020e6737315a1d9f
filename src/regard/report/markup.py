"""HTML that cannot be injected: text is always escaped.

tag("p", "1 < 2", tag("b", "really"), class_="note")   ->   <p class="note">1 &lt; 2<b>really</b></p>
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

VOID = frozenset({"br", "hr", "link", "meta"})
# Characters that no document may contain: control characters, halves of surrogate pairs (UTF-8 has none), non-characters.
FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def escape(text: str) -> Html:
    """Escape text for HTML; characters that cannot be shown become U+FFFD. Markup is unchanged."""
    return text if isinstance(text, Html) else Html(html.escape(FORBIDDEN.sub("\ufffd", text)))


def join(parts: Iterable[str]) -> Html:
    """Join pieces of text and markup."""
    return Html("".join(escape(p) for p in parts))


def tag(name: str, /, *children: str, **attributes: str | float | None) -> Html:
    """One element. `class_` is class, `stroke_width` is stroke-width; an attribute that is None is left out."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value if isinstance(value, str) else f"{value:g}")}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{said}>" if name in VOID else f"<{name}{said}>{join(children)}</{name}>")
