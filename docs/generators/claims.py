"""The page of claims: what the papers say, the study that tests it, and the verdict on this machine."""

from __future__ import annotations

from collections import Counter

from bench.claims import CLAIMS, HOLDS, NOT_RUN, STUDIES, judge
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
    counts = Counter(verdicts.values())
    lines = [
        INTRO,
        f"{len(CLAIMS)} claims: {', '.join(f'{count} {word}' for word, count in counts.most_common())}.",
        "",
    ]
    lines += ["| claim | by | verdict | study |", "|---|---|---|---|"]
    for claim, word in verdicts.items():
        study = f"[{claim.result}](results.md#{claim.result})" if word != NOT_RUN else f"`{claim.result}`"
        lines.append(f"| {claim.text} | {claim.source} | {f'**{word}**' if word == HOLDS else word} | {study} |")
    lines += ["", "## Studies", "", "| study | command |", "|---|---|"]
    lines += [f"| `{name}` | `{command}` |" for name, command in STUDIES.items()]
    return "\n".join(lines) + "\n"
