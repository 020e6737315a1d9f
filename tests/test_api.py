"""The Python interface as the design promises it: two calls and a handle, without a trace left in the process."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from html import escape
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

import regard
from regard.api import Attention
from regard.errors import CheckpointError, DataError, NoRoom, SpecError, UnknownName
from regard.families import transformer
from regard.nn.core.context import Tape
from regard.text import Tokenizer
from regard.training.train import run_training
from tests.close import assert_close
from tests.training.small import COPY, TINY, tiny, traces
from tests.verbs.calling import call

pytestmark = pytest.mark.numeric

SETTINGS: dict[str, Any] = {**COPY, **TINY, "decode.beam": 2}
TEXTS = ["abc", "b", "cabd"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("api") / "run"
    regard.train("copy", set=SETTINGS, out=path, quiet=True)
    return path


@pytest.fixture(scope="module")
def model(folder: Path) -> regard.Model:
    return regard.load(folder)


def test_everything_public_is_there_and_nothing_is_imported_before() -> None:
    assert dir(regard) == regard.__all__ == sorted(regard.__all__)
    public = (
        "CallStopped Model Stop __version__ convert doctor evaluate families load look look_at_data show study train"
    )
    assert regard.__all__ == public.split()
    for name in regard.__all__:
        assert getattr(regard, name)
    with pytest.raises(AttributeError, match="module 'regard' has no attribute 'laod'"):
        regard.laod  # noqa: B018
    code = "import sys, regard; assert 'torch' not in sys.modules; regard.load; regard.Model; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_family_is_a_spec_that_builds() -> None:
    spec = regard.families.gpt.spec(width=32, depth=2, heads=4, vocab=65, length=16)
    net = spec.build()
    assert net.spec == spec


def test_train_gives_the_model_that_load_gives(folder: Path, model: regard.Model) -> None:
    """And the same call again trains nothing."""
    before = traces(folder)
    again = regard.train("copy", set=SETTINGS, out=folder, quiet=True)
    assert traces(folder) == before
    assert again.run(TEXTS) == model.run(TEXTS)
    assert again.path == model.path == folder / "final"


def test_what_a_model_knows(model: regard.Model) -> None:
    assert isinstance(model.net, torch.nn.Module)
    assert not model.net.training
    assert model.spec == model.net.spec
    assert model.spec == transformer.spec(
        width=16, depth=1, heads=2, hidden=32, dropout=0.0, norm="pre", vocab=model.tokenizer.size, length=66
    )
    assert isinstance(model.tokenizer, Tokenizer)
    assert model.tokenizer.decode(model.tokenizer.encode("abc")) == "abc"
    assert repr(model) == f"Model({str(model.path)!r}, 5,856 parameters)"
    assert model.search.beam == 2, "as the recipe said"


def test_run(model: regard.Model) -> None:
    outputs = model.run(TEXTS)
    assert len(outputs) == 3
    assert all(isinstance(text, str) for text in outputs)
    assert model.run([]) == []
    assert model.run(TEXTS[::-1]) == outputs[::-1]
    assert model.run(["", "abc", " "]) == ["", outputs[0], ""], "nothing in, nothing out"
    assert model.run("abc") == model("abc") == outputs[0], "a text gives a text"
    assert model("") == ""


def test_run_all(model: regard.Model) -> None:
    found = model.run_all(TEXTS, beam=4, n_best=3)
    for each in found:
        assert len(each) == 3
        assert [o.score for o in each] == sorted((o.score for o in each), reverse=True)
    assert [each[0].text for each in found] == model.run(TEXTS, beam=4)
    drawn = model.run(TEXTS, sample=True, seed=3, beam=1)
    assert drawn == model.run(TEXTS, sample=True, seed=3, beam=1)
    assert any(drawn != model.run(TEXTS, sample=True, seed=seed, beam=1) for seed in range(4, 9))


def test_an_ensemble_of_one_model_with_itself_is_that_model(model: regard.Model, folder: Path) -> None:
    alone, both = model.run_all(TEXTS), model.run_all(TEXTS, others=[regard.load(folder)])
    assert [each[0].text for each in both] == [each[0].text for each in alone]
    for one, two in zip(alone, both, strict=True):
        assert two[0].log_prob == pytest.approx(one[0].log_prob, rel=1e-4)


def test_an_ensemble_shares_a_vocabulary(model: regard.Model, tmp_path: Path) -> None:
    other = regard.train("copy", set=SETTINGS | {"data.generate.symbols": 4}, out=tmp_path / "x", quiet=True)
    with pytest.raises(SpecError, match=r"x/final has another vocabulary than .*; an ensemble must share one"):
        model.run(TEXTS, others=[other])


def test_options_that_do_not_exist(model: regard.Model) -> None:
    with pytest.raises(UnknownName, match="no option 'beem'; did you mean 'beam'"):
        model.run(TEXTS, beem=2)
    with pytest.raises(SpecError, match="n_best=3 needs a beam of at least as many"):
        model.run(TEXTS, n_best=3, beam=2)
    with pytest.raises(
        SpecError, match=r"run_all takes a list of texts, got one text; write model\.run_all\(\[text\]\)"
    ):
        model.run_all("abc")
    with pytest.raises(SpecError, match="temperature, seed would have no effect without sampling; set sample=True"):
        model.run("abc", temperature=2.0, seed=3)
    with pytest.raises(UnknownName, match="no way to treat long texts 'spilt'; did you mean 'split'"):
        model.run("abc", long="spilt")
    with pytest.raises(DataError, match="prefixes should have one entry per input, got 1 for 3"):
        model.run(TEXTS, prefixes=["a"])


def test_more_outputs_than_the_beam_widen_it(model: regard.Model) -> None:
    assert [len(each) for each in model.run_all(TEXTS, n_best=3)] == [3, 3, 3]


LINES = ["abc", "", "jih. " * 40, "日本語", "cab", "abc"]
WAYS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "as it is": ([], {}),
    "a beam": (["--beam", "3", "--alpha", "1"], {"beam": 3, "alpha": 1.0}),
    "n-best": (["--n-best", "3"], {"n_best": 3}),
    "sampling": (["--sample", "--seed", "5", "--temperature", "2"], {"sample": True, "seed": 5, "temperature": 2.0}),
    "cut": (["--long", "cut"], {"long": "cut"}),
    "a prefix": (["--prefix", "fed"], {"prefix": "fed"}),
    "small batches": (["--batch", "2"], {"batch": 2}),
}


@pytest.mark.parametrize("way", WAYS)
def test_python_and_command_line_agree(folder: Path, model: regard.Model, way: str) -> None:
    """The same lines with the same options give the same outputs and the same notes; scores as close as two engines are."""
    words, options = WAYS[way]
    notes: list[str] = []
    found = model.run_all(LINES, **options, words=True, notify=notes.append)
    said = call("run", folder, "--json", *words, stdin="\n".join(LINES).encode())
    rows = [{"source": line, "outputs": [o.plain() for o in each]} for line, each in zip(LINES, found, strict=True)]
    assert_close([json.loads(line) for line in said.lines], json.loads(json.dumps(rows)), rel=1e-4)
    assert said.err.splitlines() == [f"regard: {note}" for note in notes]
    if way != "n-best":
        plain = call("run", folder, *words, stdin="\n".join(LINES).encode())
        assert plain.lines == model.run(LINES, **options, notify=notes.append)


def test_a_glossary_is_a_file_or_a_mapping(folder: Path, model: regard.Model, tmp_path: Path) -> None:
    (tmp_path / "terms.tsv").write_text("abc\tgag\n")
    said = call("run", folder, "--glossary", tmp_path / "terms.tsv", "abc", "cab").lines
    assert said == model.run(["abc", "cab"], glossary={"abc": "gag"})
    assert said == model.run(["abc", "cab"], glossary=tmp_path / "terms.tsv")
    assert "gag" in said[0]


def test_notes_are_logged_once_of_each_kind(model: regard.Model, caplog: pytest.LogCaptureFixture) -> None:
    model.run(["日本語", "語本日", "abc " * 40])
    assert [record.name for record in caplog.records] == ["regard", "regard"]
    assert caplog.messages[0].startswith("input 1 is largely unknown to the model's vocabulary")
    assert caplog.messages[1].startswith("input 3 is longer than the model can read; it is read in parts")


def test_an_input_without_room_is_found_in_a_divided_batch(model: regard.Model) -> None:
    real, notes = model.task.run, list[str]()  # type: ignore[attr-defined]

    def run(nets: Any, inputs: list[str], search: Any, options: Any) -> Any:
        if len(inputs) > 1:
            raise MemoryError
        if inputs == TEXTS[2:3] and options.prefixes != [""]:
            raise NoRoom("source 0: no room", [0])
        return real(nets, inputs, search, options)

    with mock.patch.object(model.task, "run", run):
        found = model.run(TEXTS, prefix="a", notify=notes.append)
    assert found == [*model.run(TEXTS[:2], prefix="a"), *model.run(TEXTS[2:])]
    assert notes[1].startswith("input 3 has no room for what its output must include")


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_a_batch_that_does_not_fit_into_memory_is_divided(model: regard.Model, error: Exception) -> None:
    wanted, real, notes = model.run(TEXTS, sample=True, seed=2, prefixes=["a", "b", "c"]), model.task.run, list[str]()  # type: ignore[attr-defined]

    def run(nets: Any, inputs: list[str], *rest: Any) -> Any:
        if len(inputs) > 1:
            raise error
        return real(nets, inputs, *rest)

    with mock.patch.object(model.task, "run", run):
        found = model.run(TEXTS, sample=True, seed=2, prefixes=["a", "b", "c"], notify=notes.append)
    assert found == wanted
    assert notes == ["3 inputs at once do not fit into memory; they are run in smaller batches"]
    tight = pytest.raises(SpecError, match="input 1 does not fit into memory; shorten it, or use a smaller beam")
    with mock.patch.object(model.task, "run", side_effect=error), tight:
        model.run("abc")
    with (
        mock.patch.object(model.task, "run", side_effect=RuntimeError("a bug")),
        pytest.raises(RuntimeError, match="a bug"),
    ):
        model.run("abc")


@pytest.mark.parametrize(
    "options", [{"beam": 1}, {"sample": True, "seed": 7, "temperature": 2.0}], ids=["greedy", "sampling"]
)
def test_a_stream_is_the_output_in_pieces(model: regard.Model, options: dict[str, Any]) -> None:
    for text in ("abc", "abc. " * 30, ""):
        pieces = list(model.stream(text, **options))
        assert "".join(pieces) == model.run(text, **options)
        assert all(pieces)
    assert "sample" not in options or len(list(model.stream("abc. " * 30, **options))) > 10


def test_a_beam_cannot_stream(model: regard.Model) -> None:
    with pytest.raises(SpecError, match="beam search cannot stream, got beam=2; use beam=1 or sample, or use run"):
        list(model.stream("abc"))


def test_a_model_can_be_saved(model: regard.Model, tmp_path: Path) -> None:
    assert model.save(tmp_path / "copy") == tmp_path / "copy"
    again = regard.load(tmp_path / "copy")
    assert again.run(TEXTS) == model.run(TEXTS)
    assert again.search == model.search
    assert (tmp_path / "copy" / "README.md").read_text() == (model.path / "README.md").read_text()


def test_a_notebook_shows_a_table(model: regard.Model) -> None:
    html = model._repr_html_()
    assert "<tr><th>task</th><td>translate</td></tr>" in html
    assert "<tr><th>parameters</th><td>5,856</td></tr>" in html
    assert "<summary>parts</summary><pre" in html
    assert "encoder" in html
    assert escape(model.card.splitlines()[-1]) in html


def test_a_notebook_shows_results(model: regard.Model, tmp_path: Path) -> None:
    """Maps, trees and scores, whatever the text."""
    found = model.attention("abc", "<b>")
    html = found._repr_html_()
    assert html.startswith('<iframe sandbox="" ')
    assert "mean of 2 heads" in html
    assert "<b>" not in html
    assert (
        "decoder.blocks.0.mix (2, " in Attention({"decoder.blocks.0.mix": torch.zeros(2, 3, 9)}, [], [])._repr_html_()
    )
    assert "parameters" in regard.show("tiny")._repr_html_()
    (tmp_path / "t.tsv").write_text("abc\tabc\n", encoding="utf-8")
    assert "exact" in regard.evaluate(model, tmp_path / "t.tsv", samples=5)._repr_html_()


@pytest.mark.parametrize("what", ["tiny", "gpt"])
def test_show_agrees_with_the_command_line(what: str) -> None:
    found = regard.show(what)
    assert call("show", what).out == f"{found}\n"
    assert json.loads(call("show", what, "--json").out) == json.loads(json.dumps(found.plain()))
    assert str(regard.show(what, set={"model.depth": 1})) != str(found)


def test_convert_agrees_with_the_command_line(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="there is no file or folder nowhere"):
        regard.convert("nowhere", tmp_path / "x")
    said = call("convert", folder, tmp_path / "out")
    try:
        found = regard.convert(folder, tmp_path / "again")
    except SpecError as error:
        assert said.err == f"regard: {error}\n"
    else:
        assert said.out.splitlines()[1:] == found.render().splitlines()[1:]


def test_doctor_agrees_with_the_command_line() -> None:
    found = regard.doctor()
    assert found.healthy
    assert [each["what"] for each in json.loads(call("doctor", "--json").out)] == [
        each["what"] for each in found.plain()
    ]


def test_score(model: regard.Model) -> None:
    """The log-probability of each target, which is what a search reports for its own outputs."""
    scores = model.score(TEXTS, ["abc", "a", "zz"])
    assert len(scores) == 3
    assert all(score < 0 for score in scores)
    best = model.run_all(TEXTS, beam=4)
    again = model.score(TEXTS, [each[0].text for each in best])
    for each, score in zip(best, again, strict=True):
        assert each[0].log_prob == pytest.approx(score, abs=1e-4)


def test_attention(model: regard.Model) -> None:
    found = model.attention("abc")
    assert found.source == ["a", "b", "c", "</s>"]
    assert found.target[0] == "<s>"
    assert found.target[1:] == list(model.run(["abc"])[0])
    assert set(found) == set(found.keys()) == {"encoder.blocks.0.mix", "decoder.blocks.0.mix", "decoder.blocks.0.cross"}
    assert len(found) == 3
    assert "encoder.blocks.0.mix" in found and "encoder" not in found
    assert [name for name, _ in found.items()] == list(found)
    assert all(torch.equal(a, found[name]) for name, a in zip(found, found.values(), strict=True))
    weights = found["decoder.blocks.0.cross"]
    assert weights.shape == (2, len(found.target), 4)
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2]))
    assert model.attention("abc", "cb").target == ["<s>", "c", "b"]
    assert model.attention("abc", beam=1).source == found.source


def test_a_watching_tape_sees_score_and_confidence(model: regard.Model) -> None:
    for method in (model.score, model.confidence):
        with model.net.watch(Tape("decoder.blocks.0.cross.weights")) as tape:
            method(["abc"], ["cb"])
        assert list(tape.kept) == ["decoder.blocks.0.cross.weights"], method


def test_a_recording_of_nothing_says_why(model: regard.Model) -> None:
    with pytest.raises(UnknownName, match=r"no place 'decoder.blocks.7'; did you mean 'decoder.blocks.0'"):  # noqa: SIM117
        with model.net.watch(Tape("decoder.blocks.7")):
            model.run(["abc"])
    with pytest.raises(SpecError, match="nothing was recorded: this net ran no pass within the block"):  # noqa: SIM117
        with model.net.watch(Tape("decoder.*")):
            pass


def test_looking_changes_nothing(model: regard.Model) -> None:
    before = model.run(TEXTS)
    model.attention("abc")
    assert model.run(TEXTS) == before


def test_load_from_anywhere(folder: Path, tmp_path: Path) -> None:
    assert regard.load(str(folder)).path == regard.load(folder / "final").path
    assert regard.load(folder / "best").path == folder / "best"
    with pytest.raises(SpecError, match="there is no model folder"):
        regard.load(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match=r"has no manifest\.json: it is not a Regard model folder"):
        regard.load(tmp_path)
    with pytest.raises(UnknownName, match="no device 'gpu'"):
        regard.load(folder, device="gpu")
    assert regard.load(folder, device="auto").to("cpu").net.device.type in ("cpu", "cuda", "mps")


def test_a_recipe_as_a_mapping(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("".join(f"a{i}\t{i}a\n" for i in range(30)))
    recipe = {"task": "translate", "train": {"steps": 4}, "model": {"width": 16, "heads": 2, "depth": 1}}
    recipe["data"] = {"tokenizer": "chars", "metrics": ["exact"]}
    model = regard.train(recipe, [str(tmp_path / "x.tsv")], out=tmp_path / "run", quiet=True)
    assert len(model.run(["a1", "a2"])) == 2
    assert recipe["train"] == {"steps": 4}, "what was given is not changed"


def test_twice_in_one_process(tmp_path: Path) -> None:
    """One run after the other is each run alone: no state is left in the process."""
    changes: dict[str, Any] = {"model__dropout": 0.2}
    for name in ("one", "other", "last"):
        run_training(tiny(tmp_path / name, **changes, train__seed=2 if name == "other" else 1))
        torch.rand(3)
    assert traces(tmp_path / "one") == traces(tmp_path / "last")
    assert traces(tmp_path / "one")["bits"] != traces(tmp_path / "other")["bits"]


def test_from_a_thread(tmp_path: Path) -> None:
    found: list[Any] = []

    def work() -> None:
        found.append(regard.train("copy", set=SETTINGS | {"model.dropout": 0.2}, out=tmp_path / "thread", quiet=True))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    regard.train("copy", set=SETTINGS | {"model.dropout": 0.2}, out=tmp_path / "main", quiet=True)
    assert traces(tmp_path / "thread") == traces(tmp_path / "main")
    assert found[0].run(TEXTS) == regard.load(tmp_path / "main").run(TEXTS)
