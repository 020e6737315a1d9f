"""Reading pages back: a strict parser that fails on anything unbalanced and remembers what it saw."""

from html.parser import HTMLParser

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Reader(HTMLParser):
    """All elements with their attributes, and all text; every element must be closed in its turn."""

    def __init__(self, document: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(document)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        assert len(dict(attrs)) == len(attrs), f"an attribute given twice: {attrs}"
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data):
        if data.strip():
            self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, tag: str, **wanted: str) -> list[dict[str, str | None]]:
        """The attributes of every such element."""
        return [a for t, a in self.elements if t == tag and all(a.get(k.rstrip("_")) == v for k, v in wanted.items())]

    def said(self, tag: str) -> list[str]:
        """The text directly inside such elements."""
        return [text for t, text in self.texts if t == tag]
