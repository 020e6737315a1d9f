"""The page of claims: what the papers say, the study that tests it, and the verdict on this machine."""

from __future__ import annotations

from collections import Counter

from bench.claims import CLAIMS, STUDIES, judge
from bench.readings import FAILS, HOLDS, NOT_RUN, OPEN
from bench.readme import stored

INTRO = """# Claims

Claims of the Transformer story that can be tested on a small machine, and what came of it. Verdicts are read from
`results/*.json` when this page is built: a claim *holds here* if its study gives the expected verdict, *does not hold here* if
it gives the opposite one, and is *not shown* if the difference could be chance. "Here" means small models on the data of that
study, nothing more. [Comparing fairly](studies.md) says how a verdict is reached.
"""


def page() -> str:
    """The whole page."""
    found = stored()
    verdicts = {claim: judge(claim, found) for claim in CLAIMS}
    counts = Counter(word for word, _ in verdicts.values())
    words = {HOLDS: "hold here", FAILS: "do not", OPEN: "are not shown", NOT_RUN: "were not run"}
    said = ", ".join(f"{counts[word]} {text}" for word, text in words.items() if counts[word])
    lines = [INTRO, f"Of {len(CLAIMS)} claims {said}.", ""]
    lines += ["| claim | by | verdict | figure | study |", "|---|---|---|---|---|"]
    for claim, (word, figure) in verdicts.items():
        study = f"[{claim.result}](results.md#{claim.result})" if word != NOT_RUN else f"`{claim.result}`"
        shown, bold = figure.replace("; ", "<br>"), "**" if word == HOLDS else ""
        lines.append(f"| {claim.text} | {claim.source} | {bold}{word}{bold} | {shown} | {study} |")
    lines += ["", "## Studies", "", "| study | command |", "|---|---|"]
    lines += [f"| `{name}` | `{command}` |" for name, command in STUDIES.items()]
    return "\n".join(lines) + "\n"
