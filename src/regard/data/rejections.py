"""What was left out of a corpus: reason by reason, how often, and the first few cases."""

from __future__ import annotations

from dataclasses import dataclass, field

SHOWN = 3
"""So many cases of a reason are kept as examples."""


@dataclass
class Dropped:
    """Pairs left out for one reason."""

    reason: str
    count: int = 0
    examples: list[str] = field(default_factory=list)
    remark: str = ""
    """What the reason goes by in this corpus."""

    def add(self, example: str) -> None:
        """One more pair; the first few are kept as examples."""
        self.count += 1
        if len(self.examples) < SHOWN:
            self.examples.append(example)

    def __str__(self) -> str:
        remark = f" ({self.remark})" if self.remark else ""
        such = f", such as {self.examples[0]}" if self.examples else ""
        return f"{self.count:,} dropped: {self.reason}{remark}{such}"


def shortened(text: str, most: int = 60) -> str:
    """The beginning of a text, on one line."""
    text = " ".join(text[: 4 * most].split())
    return text if len(text) <= most else f"{text[: most - 1]}…"
