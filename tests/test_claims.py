"""The page of claims: every claim has a study, and its verdict follows from results."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from bench.claims import CLAIMS, STUDIES, judge
from bench.entry import ROOT
from bench.readings import FAILS, HOLDS, NOT_RUN, OPEN, Verdict, is_never_worse
from bench.readme import stored
from bench.study import figures_of, list_calls
from bench.study_commands import COMMANDS
from docs.generators import claims

from regard.studies.ablate import ABLATIONS
from regard.studies.length_generalization import ATTENDED, EMBEDDED
from regard.studies.run_study import STUDIES as KNOWN


def test_every_claim_has_a_study_and_one_text() -> None:
    assert {claim.result for claim in CLAIMS} == set(STUDIES)
    assert len({claim.text for claim in CLAIMS}) == len(CLAIMS) >= 30


def test_claims_name_contenders_that_their_studies_have() -> None:
    known = {
        "study-ablate": [each.name for each in ABLATIONS],
        "study-length": [*EMBEDDED, *ATTENDED],
        "study-pre-post": ["pre"], "study-rotary": ["rotary"], "study-muon": ["muon"],
        "study-calibration": ["smoothing 0.1"],
    }  # fmt: skip
    for claim in CLAIMS:
        if claim.result in known and isinstance(claim.reading, Verdict):
            assert claim.reading.contender in known[claim.result], claim.text


@pytest.mark.parametrize(
    ("word", "wanted", "verdict"),
    [
        ("better", "better", HOLDS),
        ("worse", "better", FAILS),
        ("no difference", "better", FAILS),
        ("no difference", "no difference", HOLDS),
        ("better", "no difference", OPEN),
        ("not shown", "better", OPEN),
        ("preliminary", "better", OPEN),
        ("no result", "better", NOT_RUN),
    ],
)
def test_a_verdict_on_a_claim(word: str, wanted: str, verdict: str) -> None:
    assert Verdict("new", wanted).judge({"verdicts": {"new": word}}) == verdict
    assert Verdict("other", wanted).judge({"verdicts": {"new": word}}) == NOT_RUN
    assert Verdict("new", wanted, "lm").judge({"tasks": {"lm": {"verdicts": {"new": word}}}}) == verdict


def test_no_loss_on_any_task_must_be_shown() -> None:
    assert is_never_worse(["better", "no difference", None]) is True
    assert is_never_worse(["better", "not shown"]) is None
    assert is_never_worse(["better", "not shown", "worse"]) is False


def test_the_page_lists_every_claim() -> None:
    page = claims.page()
    assert all(claim.text in page for claim in CLAIMS)
    assert "| Time of a window grows linearly | Beltagy et al. 2020 | **holds here** | exponent 1.09 |" in page


def test_every_verdict_has_its_figure() -> None:
    found = {claim: judge(claim, stored()) for claim in CLAIMS}
    assert all((figure == "") == (word == NOT_RUN) for word, figure in found.values())
    (rotary,) = (figure for claim, (_, figure) in found.items() if claim.result == "study-rotary")
    assert re.fullmatch(r"BLEU [\d.]+ ± [\d.]+, sinusoidal [\d.]+ ± [\d.]+", rotary)


def test_commands_of_studies_can_be_run() -> None:
    """Each ends in `regard study NAME` of a study that exists, with recipes that exist."""
    for name in COMMANDS:
        *before, last = list_calls(name, Path("out"), 1)
        assert all(words[0].startswith("bench.") for words in before), name
        assert last[:2] == ["regard", "study"]
        assert last[2] in KNOWN, name
        assert last[-4:] == ["--out", "out", "--processes", "1"]
        recipes = re.findall(r"bench/studies/\w+\.yaml", " ".join(last))
        assert all((ROOT / recipe).is_file() for recipe in recipes), name


def test_recurrence_becomes_a_result() -> None:
    row = {
        "layer": "lstm",
        "width": 64,
        "cheaper_from": 129,
        "faster_from": None,
        "time_when_cheaper": 3.25,
        "times": {},
    }
    figures = figures_of({"study": "complexity", "recurrence": [row]})
    assert figures["recurrence"]["lstm, width 64"]["times the time of attention there"] == 3.25
    (claim,) = (claim for claim in CLAIMS if claim.result == "study-recurrence")
    assert judge(claim, {"study-recurrence": {"figures": figures}})[0] == HOLDS


def test_a_study_becomes_a_result() -> None:
    study: dict[str, Any] = {
        "study": "compare", "metric": "bleu", "notes": ["matched"], "timing": {"a": [60.0, 120.0], "b": [60.0, None]},
        "contenders": [
            {"name": n, "mean": 1.0, "deviation": 0.5, "scores": [1, 2], "parameters": 7, "notes": []} for n in "ab"
        ],
        "verdicts": [{"contender": "b", "verdict": "better", "sentence": "b: better"}],
    }  # fmt: skip
    figures = figures_of(study)
    assert figures["verdicts"] == {"b": "better"}
    assert figures["contenders"]["a"]["minutes"] == 1.5
    layers = {"RNN": {"factor_per_step": [0.5, 0.7], "relative_size": [1.0, 0.1]}}
    assert figures_of({"study": "gradients", "layers": layers})["factor per step"] == {"RNN": 0.6}
