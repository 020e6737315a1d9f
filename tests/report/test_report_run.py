"""The report of a run: all of it when all is known, and no less than what is known."""

import math
import time

from hypothesis import given, settings
from hypothesis import strategies as st
from reading import Reader

from regard.report import RunFacts, run_report
from regard.report.chart import POINTS

LOG = [
    {"event": "start", "step": 0},
    *({"event": "train", "step": s, "loss": 4 / s, "rate": 1e-3, "grad_norm": 1.0, "tokens_per_s": 8000 + s,
       "seconds": s / 10} for s in range(1, 1001, 10)),
    {"event": "valid", "step": 500, "loss": 0.3, "scores": {"exact": 0.91, "signature": "v1"}, "seconds": 50.0},
    {"event": "valid", "step": 750, "loss": 0.2, "scores": {"exact": 0.95}, "seconds": 75.0},
    {"event": "valid", "step": 1000, "loss": 0.25, "scores": {"exact": 0.93}, "seconds": 100.0},
    {"event": "resume", "step": 400, "from_checkpoint": "step-400"},
    {"event": "done", "step": 1000, "seconds": 126.4, "reason": "all steps taken"},
]  # fmt: skip
EVIL = "<script>alert('x')</script>"
EXAMPLES = [
    {"source": "15. November 2026", "reference": "2026-11-15", "output": "2026-11-15"},
    {"source": EVIL, "reference": "1984-03-03", "output": "1984-05-03"},
]
WHOLE = RunFacts(
    name="dates",
    log=LOG,
    recipe="task: translate\nwidth: 128 # <small>",
    tree="model\n└── head",
    examples=EXAMPLES,
    data={
        "train": {"pairs": 40000, "mean_length": 20.31},
        "valid": {"pairs": 1000},
        "problems": ["a:1 empty", "a:9 long"],
    },
    facts={"command": "regard train dates", "parameters": 1204352, "device": "cpu", "versions": {"torch": "2.13.0"}},
)


def test_the_whole_report():
    read = Reader(run_report(WHOLE))
    sections = ["Curves", "Examples", "Events", "Data", "Architecture", "Recipe", "Environment"]
    assert read.said("h2") == sections and read.said("a") == sections
    assert read.said("b") == ["Loss", "Exact", "Learning rate", "Gradient norm", "Tokens per second"]
    assert read.said("pre") == [WHOLE.tree, WHOLE.recipe, "regard train dates"]
    assert "Finished: all steps taken." in read.said("p")


def test_headline():
    read = Reader(run_report(WHOLE))
    assert read.said("dt") == ["Best exact", "Steps", "Time", "Tokens per second", "Parameters"]
    assert read.said("dd") == [
        "0.95", "at step 750", "1,000", "2 min 06 s", "8,496", "median", "1.2M", "1,204,352",
    ]  # fmt: skip


def test_the_best_error_rate_is_the_least():
    log = [{"event": "valid", "step": s, "scores": {"wer": w}} for s, w in ((1, 0.5), (2, 0.25), (3, 0.75))]
    assert Reader(run_report(RunFacts(log=log, least=["wer"]))).said("dd")[:2] == ["0.25", "at step 2"]
    assert Reader(run_report(RunFacts(log=log))).said("dd")[:2] == ["0.75", "at step 3"]


def test_what_the_finished_model_scores_comes_first():
    log = [*LOG[:-1], {**LOG[-1], "scores": {"exact": 0.94}}]
    read = Reader(run_report(RunFacts(log=log)))
    assert read.said("dt")[:2] == ["Final exact", "Best exact"]
    assert read.said("dd")[:4] == ["0.94", "of the finished model", "0.95", "at step 750"]


def test_without_scores_the_best_is_the_least_loss():
    log = [{"event": "valid", "step": s, "loss": v} for s, v in ((1, 0.5), (2, 0.25), (3, math.nan))]
    read = Reader(run_report(RunFacts(log=log)))
    assert read.said("dt")[0] == "Best validation loss" and read.said("dd")[:2] == ["0.25", "at step 2"]


def test_examples_say_whether_they_are_equal_and_where_not():
    read = Reader(run_report(WHOLE))
    assert [s["title"] for s in read.all("span", role="img")] == ["equal", "not equal"]
    assert read.said("mark") == ["5"]
    assert "1 of these 2 outputs equal their reference." in read.said("p")
    assert EVIL in read.said("td") and not read.all("script")


def test_a_letter_and_its_marks_are_marked_together():
    for output, reference, marked in (("cafe\u0301", "cafe", "e\u0301"), ("e\u0301a", "e\u0300a", "e\u0301"),
                                      ("a\u0301x", "b\u0301x", "a\u0301")):  # fmt: skip
        example = {"reference": reference, "output": output}
        assert Reader(run_report(RunFacts(examples=[example]))).said("mark") == [marked]


def test_a_task_may_judge_by_itself_or_not_at_all():
    read = Reader(run_report(RunFacts(examples=[{"reference": "A", "output": "a", "equal": True}])))
    assert [s["title"] for s in read.all("span", role="img")] == ["equal"] and not read.all("mark")
    read = Reader(run_report(RunFacts(examples=[{"source": "Once", "output": "upon a time"}])))
    assert read.said("th") == ["source", "output"] and not read.all("span", role="img")


def test_data_has_a_column_for_each_part():
    read = Reader(run_report(RunFacts(data=WHOLE.data)))
    assert read.said("th") == ["train", "valid", "problems"]
    assert read.said("td") == ["pairs", "40,000", "1,000", "mean length", "20.31", "–", "a:1 empty, a:9 long"]


def test_several_corpora_have_a_column_each():
    corpora = [
        {"name": "a", "pairs": 3, "dropped": [], "source": {"mean": 2}},
        {"name": "b", "pairs": 4, "source": {}},
    ]
    read = Reader(run_report(RunFacts(data={"train": corpora, "valid": [{"name": "c", "pairs": 1}]})))
    assert read.said("th") == ["train 1", "train 2", "valid"]
    assert read.said("td") == ["name", "a", "b", "c", "pairs", "3", "4", "1", "source mean", "2", "–", "–"]


def test_events_are_told_up_to_a_limit():
    rows = [{"event": "skip", "step": i, "why": "gradient not finite"} for i in range(60)]
    read = Reader(run_report(RunFacts(log=rows)))
    assert read.said("td").count("why: gradient not finite") == 50
    assert "and 10 more, all in log.jsonl" in read.said("p")


def test_what_is_missing_is_left_out():
    read = Reader(run_report(RunFacts()))
    assert read.said("h1") == ["Training run"] and "Nothing logged yet." in read.said("p")
    assert not read.all("section") and not read.all("dl") and not read.all("nav")
    for part, section in (({"tree": "model"}, "Architecture"), ({"facts": {"device": "cpu"}}, "Environment"),
                          ({"log": LOG[:3]}, "Curves"), ({"data": {"pairs": 3}}, "Data")):  # fmt: skip
        assert Reader(run_report(RunFacts(**part))).said("h2") == [section]


def test_an_unfinished_run_says_so():
    assert "Not finished." in Reader(run_report(RunFacts(log=LOG[:5]))).said("p")
    log = [{"event": "done", "step": 1, "reason": "all steps done"}, {"event": "train", "step": 2, "loss": 1.0}]
    assert "Not finished." in Reader(run_report(RunFacts(log=log))).said("p")


def test_a_step_logged_twice_counts_once():
    log = [{"event": "train", "step": s, "loss": v} for s, v in ((1, 3.0), (2, 9.0), (2, 2.0), (3, 1.0))]
    document = run_report(RunFacts(log=log))
    assert "training: 2 (step 2)" in document and "9" not in Reader(document).said("title")[1]


def test_numbers_that_are_none_interrupt_the_curve():
    log = [
        {"event": "train", "step": s, "loss": v} for s, v in enumerate((1.0, None, math.inf, math.nan, 10**400, 2.0))
    ]
    assert len(Reader(run_report(RunFacts(log=log))).all("path", class_="lost")) == 4


def test_a_wide_range_is_drawn_on_a_log_axis():
    assert Reader(run_report(WHOLE)).said("span").count("log scale") == 1  # the loss, from 4 to 0.004


def test_nothing_is_fetched():
    document = run_report(WHOLE)
    links = [a[k] for _, a in Reader(document).elements for k in ("src", "href", "action", "xlink:href") if k in a]
    assert links and all(link.startswith(("#", "data:,")) for link in links)
    assert not any(k.startswith("on") for _, a in Reader(document).elements for k in a)


def test_a_huge_log_is_quick_and_small():
    log = [{"event": "train", "step": i, "loss": math.cos(i), "rate": 1e-3} for i in range(100_000)]
    log[54_321] = {**log[54_321], "loss": 7.0}
    begun = time.process_time()
    document = run_report(RunFacts(log=log))
    assert time.process_time() - begun < 5 and len(document) < 40 * 2 * POINTS + 60_000
    assert "training: 7 (step 54,321)" in document


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(["event", "step", "loss", "scores", "rate", "grad_norm", "tokens_per_s", "seconds", "why"])
ROWS = st.lists(
    st.dictionaries(KEYS, PLAIN | st.sampled_from(["train", "valid", "done", "start"]), max_size=6).map(
        lambda row: {"event": "train", **row} if len(row) % 2 else {**row, "event": "valid"}
    ),
    max_size=6,
)
MAPS = st.dictionaries(st.text(max_size=6), PLAIN, max_size=4)
EXAMPLE = st.dictionaries(st.sampled_from(["source", "reference", "output", "equal"]), PLAIN)


@settings(max_examples=60, deadline=None)
@given(st.text(), ROWS, st.lists(EXAMPLE, max_size=3), MAPS, MAPS)
def test_any_plain_data_makes_a_page(text, log, examples, data, facts):
    run = RunFacts(name=text, log=log, recipe=text, tree=text, examples=examples, data=data, facts=facts)
    document = run_report(run)
    assert Reader(document).said("script") == [] and document.encode()


def test_what_was_left_out_of_the_data():
    dropped = [
        {
            "corpus": "x",
            "reason": "ratio",
            "count": 1200,
            "remark": "1.1 to one",
            "examples": [EVIL, "line 9: a ||| b"],
        },
        {"corpus": "x", "reason": "near", "count": 0, "remark": "", "examples": []},
    ]
    read = Reader(run_report(RunFacts(dropped=dropped)))
    assert read.said("h2") == ["Left out"]
    cells = read.said("td")
    assert [cell for cell in cells if cell] == [
        "x",
        "ratio",
        "1.1 to one",
        "1,200",
        EVIL,
        "line 9: a ||| b",
        "x",
        "near",
        "0",
    ]


def text_of(read: Reader) -> str:
    """All text that people see."""
    return "\n".join(text for tag, text in read.texts if tag != "style")


def test_lists_of_records_are_tables_and_never_json() -> None:
    longest = [{"pair": 7, "characters": 812, "start": "It was"}, {"pair": 3, "characters": 5, "start": "b"}]
    data = {"train": {"pairs": 9, "source": {"mean": 2.5, "longest_texts": longest}}, "of all": {"a": {"b": 1}}}
    read = Reader(run_report(RunFacts(data=data)))
    assert "train: source longest texts" in text_of(read)
    assert "It was" in text_of(read) and "812" in text_of(read)
    assert "{" not in text_of(read) and '"pair"' not in text_of(read)


def test_final_and_best_say_how_they_were_decoded() -> None:
    log = [
        {"event": "valid", "step": 5, "loss": 0.3, "scores": {"bleu": 4.8}, "decoding": "greedy"},
        {"event": "done", "step": 5, "scores": {"loss": 0.3, "bleu": 6.1}, "decoding": "beam 5"},
    ]
    text = text_of(Reader(run_report(RunFacts(log=log))))
    assert "Final bleu" in text and "6.1" in text and "of the finished model, beam 5" in text
    assert "Best bleu" in text and "at step 5, greedy" in text


def test_samples_of_some_validations() -> None:
    log = [
        {"event": "valid", "step": s, "loss": 1.0, "decoding": "greedy",
         "samples": [{"source": "in", "output": f"out{s}", "reference": "ref"}]} for s in range(1, 101)
    ]  # fmt: skip
    text = text_of(Reader(run_report(RunFacts(log=log))))
    assert "Samples during training" in text and "Decoding: greedy." in text
    assert "out1" in text and "out100" in text, "the first and the last"
    assert text.count("out") - text.count("output") == 8


def test_a_damaged_log_has_no_maps():
    whole = {"source": "a b", "layer": "blocks.0", "rows": ["x", "y"], "columns": ["a"], "percent": [[100], [50]]}
    damage = [
        7, [7], [{}], [whole | {"percent": 3}], [whole | {"percent": [[1], 2]}], [whole | {"percent": [["x"], [2]]}],
        [whole | {"rows": 1}], [whole | {"columns": []}], [whole | {"percent": [[10**400], [2]]}],
    ]  # fmt: skip
    for maps in damage:
        log = [{"event": "valid", "step": 1, "loss": 1.0, "attention": maps, "samples": maps}]
        assert "blocks.0" not in run_report(RunFacts(name="x", log=log)).replace("&#x27;", "'")
    assert "blocks.0" in run_report(RunFacts(name="x", log=[{"event": "valid", "step": 1, "attention": [whole]}]))
