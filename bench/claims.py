"""The claims of the Transformer story that can be tested here, each with its study.

A claim holds here if its study gives the expected verdict, does not if it gives the opposite one, and is not shown otherwise.
`results/study-NAME.json` (`python -m bench.study NAME`) is where verdicts come from; a claim without it has not been run. What
a claim expects is written here before its study runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.readings import (
    HELPS_NOT,
    NOT_RUN,
    Measured,
    Reading,
    Verdict,
    is_never_worse,
    list_factors,
    list_figures,
    list_verdicts,
    read_growth,
    read_property,
)
from bench.study_commands import COMMANDS


@dataclass(frozen=True)
class Claim:
    """A claim, who made it, the result that tests it, and how that is read."""

    text: str
    source: str
    result: str
    reading: Reading


LAYERS = (
    Claim(
        "Dividing by √d_k keeps the variance of scores at one",
        "Vaswani et al. 2017, 3.2.1",
        "study-properties",
        read_property(
            "variance of scores", lambda f: all(0.9 < v < 1.1 for k, v in f.items() if k.endswith("divided"))
        ),
    ),
    Claim(
        "Large scores push the softmax to where its gradient is small",
        "Vaswani et al. 2017, 3.2.1",
        "study-properties",
        read_property("saturation of the softmax", lambda f: f["derivative, plain"] < 0.5 * f["derivative, divided"]),
    ),
    Claim(
        "Attention does not see the order of tokens without positions",
        "Vaswani et al. 2017, 3.5",
        "study-properties",
        read_property("order of tokens", lambda f: f["without positions"] < 1e-5 < 1e-2 < f["sinusoidal"]),
    ),
    Claim(
        "A causal model of two layers sees the order even without positions",
        "Haviv et al. 2022",
        "study-properties",
        read_property("order in a causal model", lambda f: f["1 layer"] < 1e-5 < 1e-3 < f["2 layers"]),
    ),
    Claim(
        "Scores with rotary positions depend on distances only",
        "Su et al. 2021",
        "study-properties",
        read_property("scores by distance", lambda f: f["rotary"] < 1e-9 < f["sinusoidal"]),
    ),
    Claim(
        "A shift of a sinusoidal code is a linear map",
        "Vaswani et al. 2017, 3.5",
        "study-properties",
        read_property("shifted sinusoids", lambda f: f["sinusoidal"] < 1e-6 < f["random"]),
    ),
    Claim(
        "Gradients of the last layer shrink with the depth in pre-norm, not in post-norm",
        "Xiong et al. 2020",
        "study-properties",
        read_property("gradients by norm", lambda f: f["pre"] < 0.7 < f["post"]),
    ),
    Claim(
        "Without residual connections, gradients of the first of 24 layers vanish",
        "He et al. 2015",
        "study-properties",
        read_property("gradients by residual", lambda f: f["norm without residual"] < 0.1 * f["post-norm"]),
    ),
    Claim(
        "Attention alone loses rank with the depth, residual connections prevent it",
        "Dong et al. 2021",
        "study-properties",
        read_property("rank of attention", lambda f: f["attention alone"] < 1e-3 < 0.05 < f["with residual"]),
    ),
    Claim(
        "A memory carries information across segments",
        "Dai et al. 2019",
        "study-properties",
        read_property("memory of segments", lambda f: f["without"] == 0 < 1e-3 < f["with memory"]),
    ),
    Claim(
        "The reach of windows grows linearly with the layers",
        "Beltagy et al. 2020",
        "study-properties",
        read_property("reach of a window", lambda f: f["4 layers"] == 2 * f["2 layers"] == 4 * f["1 layer"]),
    ),
    Claim(
        "Random features come closer to softmax attention the more there are",
        "Choromanski et al. 2020",
        "study-properties",
        read_property(
            "random features", lambda f: f["16 features"] > f["64 features"] > f["256 features"] > f["1024 features"]
        ),
    ),
    Claim(
        "One key head keeps an eighth of what eight heads keep while decoding",
        "Shazeer 2019",
        "study-properties",
        read_property("shared keys", lambda f: 8 * f["1 key heads"] == f["8 key heads"]),
    ),
    Claim(
        "Training takes about six operations per parameter and token",
        "Kaplan et al. 2020",
        "study-properties",
        read_property("operations", lambda f: 5.5 < f["FLOPs per token and parameter"] < 6.5, "FLOPs"),
    ),
    Claim(
        "A recurrent layer takes fewer operations than attention as soon as n > d",
        "Vaswani et al. 2017, 4",
        "study-properties",
        read_property("operations", lambda f: f["LSTM cheaper above n / d"] <= 1.0, "LSTM"),
    ),
    Claim(
        "Any two tokens are one layer of attention apart",
        "Vaswani et al. 2017, Table 1",
        "study-properties",
        read_property("paths", lambda f: f["plain, 16 tokens"] == f["plain, 64 tokens"] == 1, "plain"),
    ),
    Claim(
        "The path between two tokens grows linearly in recurrent layers",
        "Vaswani et al. 2017, Table 1",
        "study-properties",
        read_property("paths", lambda f: 3.5 < f["lstm, 64 tokens"] / f["lstm, 16 tokens"] < 4.5, "lstm"),
    ),
    Claim(
        "Dilated convolutions shorten the path to the logarithm of the length",
        "Kalchbrenner et al. 2016",
        "study-properties",
        read_property(
            "paths",
            lambda f: f["dilated, 64 tokens"] - f["dilated, 16 tokens"] <= 2 < f["conv, 64 tokens"] / 4,
            "dilated",
        ),
    ),
    Claim(
        "Averaging the weights of heads loses resolution",
        "Vaswani et al. 2017, 3.2.2",
        "study-properties",
        read_property("averaged heads", lambda f: f["average of the heads"] > 1.2 * f["single heads"]),
    ),
)
"""Claims about layers as such, which need no training."""

CLAIMS = (
    *LAYERS,
    Claim(
        "The loss falls as powers of parameters and data: a run four times larger is predicted within 5 %",
        "Kaplan et al. 2020, Hoffmann et al. 2022",
        "study-scaling",
        Measured(lambda f: abs(f["miss, %"]) < 5, lambda f: f"missed by {f['miss, %']:+.1f} %"),
    ),
    Claim(
        "The best size of a model grows about as the root of its FLOPs",
        "Hoffmann et al. 2022",
        "study-scaling",
        Measured(
            lambda f: (found := f["interval of the exponent"]) and found[0] <= 0.5 <= found[1],
            lambda f: (
                f"exponent {f['exponent of the best size']}" if f["exponent of the best size"] else "no minimum found"
            ),
        ),
    ),
    Claim(
        "With muP, the best learning rate does not move with the width",
        "Yang et al. 2022",
        "study-rates",
        Measured(lambda f: 0.5 <= f["shift"]["muP"] <= 2.0, lambda f: f"moves {f['shift']['muP']:g}-fold"),
    ),
    Claim(
        "In the standard parametrization, wider models want smaller learning rates",
        "Yang et al. 2022",
        "study-rates",
        Measured(lambda f: f["shift"]["standard"] < 1.0, lambda f: f"moves {f['shift']['standard']:g}-fold"),
    ),
    Claim(
        "Without residual connections a Transformer learns worse",
        "Vaswani et al. 2017",
        "study-ablate",
        Verdict("no residual", "worse"),
    ),
    Claim(
        "Without layer norms a Transformer learns worse",
        "Vaswani et al. 2017",
        "study-ablate",
        Verdict("no norm", "worse"),
    ),
    Claim(
        "Dividing scores by √d_k is needed", "Vaswani et al. 2017, 3.2.1", "study-ablate", Verdict("no √d_k", "worse")
    ),
    Claim(
        "One head is worse than several",
        "Vaswani et al. 2017, Table 3 (A)",
        "study-ablate",
        Verdict("one head", "worse"),
    ),
    Claim(
        "Too many heads are worse, too",
        "Vaswani et al. 2017, Table 3 (A)",
        "study-ablate",
        Verdict("16 heads", "worse"),
    ),
    Claim("Narrower keys are worse", "Vaswani et al. 2017, Table 3 (B)", "study-ablate", Verdict("d_k / 4", "worse")),
    Claim(
        "Without positions a Transformer translates worse",
        "Vaswani et al. 2017, 3.5",
        "study-ablate",
        Verdict("no positions", "worse"),
    ),
    Claim(
        "Learned positions are as good as sinusoids",
        "Vaswani et al. 2017, Table 3 (E)",
        "study-ablate",
        Verdict("learned positions", "no difference"),
    ),
    Claim("Post-norm needs a warm-up", "Xiong et al. 2020", "study-ablate", Verdict("no warm-up", "worse")),
    Claim(
        "Label smoothing helps translation",
        "Vaswani et al. 2017, 5.4",
        "study-ablate",
        Verdict("no smoothing", "worse"),
    ),
    Claim(
        "The feed-forward layers are needed", "Dong et al. 2021", "study-ablate", Verdict("no feed-forward", "worse")
    ),
    Claim(
        "Dropout helps on small data",
        "Vaswani et al. 2017, Table 3 (D)",
        "study-ablate",
        Verdict("no dropout", "worse"),
    ),
    Claim(
        "Pre-norm is better than post-norm at equal steps",
        "Xiong et al. 2020",
        "study-pre-post",
        Verdict("pre", "better"),
    ),
    Claim("Rotary positions are better than sinusoids", "Su et al. 2021", "study-rotary", Verdict("rotary", "better")),
    Claim("Muon learns more per step than AdamW", "Jordan et al. 2024", "study-muon", Verdict("muon", "better")),
    Claim(
        "Sinusoids generalize to longer texts than in training",
        "Vaswani et al. 2017, 3.5",
        "study-length",
        Measured(
            lambda f: min(f["by length"]["sinusoidal"].values()) > 50,
            lambda f: f"exact, %, by length: {list_figures(f['by length']['sinusoidal'])}",
        ),
    ),
    Claim(
        "ALiBi generalizes to longer texts better than sinusoids",
        "Press et al. 2021",
        "study-length",
        Verdict("ALiBi", "better"),
    ),
    Claim(
        "T5's relative positions generalize better than sinusoids",
        "Press et al. 2021",
        "study-length",
        Verdict("T5", "better"),
    ),
    Claim(
        "No positions generalize better than sinusoids",
        "Kazemnejad et al. 2023",
        "study-length",
        Verdict("none", "better"),
    ),
    Claim(
        "Rotary positions generalize better than sinusoids",
        "Press et al. 2021",
        "study-length",
        Verdict("rotary", "better"),
    ),
    Claim(
        "Label smoothing improves calibration",
        "Müller et al. 2019",
        "study-calibration",
        Verdict("smoothing 0.1", "better"),
    ),
    Claim(
        "Gradients of a plain RNN vanish with the distance",
        "Bengio et al. 1994",
        "study-gradients",
        Measured(lambda f: f["factor per step"]["RNN"] < 0.9, list_factors("RNN")),
    ),
    Claim(
        "Gradients of an LSTM vanish more slowly than an RNN's",
        "Hochreiter & Schmidhuber 1997",
        "study-gradients",
        Measured(lambda f: f["factor per step"]["LSTM"] > f["factor per step"]["RNN"], list_factors("LSTM", "RNN")),
    ),
    Claim(
        "Gradients of attention do not vanish with the distance",
        "Vaswani et al. 2017, 4",
        "study-gradients",
        Measured(lambda f: f["factor per step"]["Transformer"] > 0.98, list_factors("Transformer")),
    ),
    Claim(
        "Sparse attention helps classification",
        "survey chapters on sparse attention",
        "study-transfer",
        Verdict("sparse attention", "better", "classification"),
    ),
    Claim(
        "Sparse attention does not help translation",
        "survey chapters on sparse attention",
        "study-transfer",
        Measured(
            lambda f: HELPS_NOT.get(f["tasks"]["translation"]["verdicts"]["sparse attention"]),
            Verdict("sparse attention", "worse", "translation").show,
        ),
    ),
    Claim(
        "Linear attention is general: no task is worse",
        "Choromanski et al. 2020",
        "study-transfer",
        Measured(
            lambda f: is_never_worse([t["verdicts"].get("linear attention") for t in f["tasks"].values()]),
            list_verdicts("linear attention"),
        ),
    ),
    Claim(
        "Few modifications help on all tasks",
        "Narang et al. 2021",
        "study-transfer",
        Measured(
            lambda f: sum(said.startswith("better on all") for said in f["overall"].values()) <= 2,
            lambda f: "; ".join(f"{name}: {said}" for name, said in f["overall"].items()),
        ),
    ),
    Claim(
        "Time of full attention grows with the square of the length",
        "Vaswani et al. 2017, Table 1",
        "complexity",
        read_growth("time", "plain", 1.8, 2.3),
    ),
    Claim(
        "Memory of plain attention grows with the square of the length",
        "Dao et al. 2022",
        "complexity",
        read_growth("memory", "plain", 1.8, 2.2),
    ),
    Claim(
        "Memory of tiled attention grows linearly",
        "Dao et al. 2022",
        "complexity",
        read_growth("memory", "flash", 0.7, 1.2),
    ),
    Claim(
        "Time of a window grows linearly", "Beltagy et al. 2020", "complexity", read_growth("time", "local", 0.8, 1.2)
    ),
    Claim(
        "Time of linear attention grows linearly",
        "Choromanski et al. 2020",
        "complexity",
        read_growth("time", "performer", 0.8, 1.2),
    ),
    Claim(
        "Where a recurrent layer takes fewer operations than attention, it is slower all the same",
        "Vaswani et al. 2017, 4",
        "study-recurrence",
        Measured(
            lambda f: all(row["times the time of attention there"] > 1 for row in f["recurrence"].values()),
            lambda f: f["verdict"],
        ),
    ),
    Claim(
        "Time of a recurrent layer grows linearly",
        "Vaswani et al. 2017, Table 1",
        "complexity",
        read_growth("time", "lstm", 0.8, 1.2),
    ),
)

STUDIES = {
    **{f"study-{name}": command for name, command in COMMANDS.items()},
    "complexity": "regard study complexity --minutes 7",
}
"""The command of each study."""


def judge(claim: Claim, results: Mapping[str, Mapping[str, Any]]) -> tuple[str, str]:
    """The verdict on a claim and the figures that decide it, from the stored results."""
    if claim.result not in results:
        return NOT_RUN, ""
    figures = results[claim.result]["figures"]
    try:
        word = claim.reading.judge(figures)
        return word, claim.reading.show(figures) if word != NOT_RUN else ""
    except KeyError:  # the study ran, but without this contender
        return NOT_RUN, ""
