"""The Python interface as the design promises it: two calls and a handle, without a trace left in the process."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.errors import CheckpointError, SpecError, UnknownName
from regard.families import transformer
from regard.text import Tokenizer
from regard.training.train import run_training
from tests.training.small import COPY, TINY, tiny, traces

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
    assert regard.__all__ == ["Model", "__version__", "families", "load", "train"]
    for name in regard.__all__:
        assert getattr(regard, name)
    with pytest.raises(AttributeError, match="module 'regard' has no attribute 'laod'"):
        regard.laod  # noqa: B018
    code = "import sys, regard; assert 'torch' not in sys.modules; regard.load; assert 'torch' in sys.modules"
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
    assert model.run([""]) == model.run(["", "abc"])[:1], "an empty text is a text"


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
        model.run(TEXTS, n_best=3)
    with pytest.raises(SpecError, match=r"run takes a list of texts, got one text; write model\.run\(\[text\]\)"):
        model.run("abc")  # type: ignore[arg-type]


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
    weights = found["decoder.blocks.0.cross"]
    assert weights.shape == (2, len(found.target), 4)
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2]))
    assert model.attention("abc", "cb").target == ["<s>", "c", "b"]
    assert model.attention("abc", beam=1).source == found.source


def test_looking_changes_nothing(model: regard.Model) -> None:
    before = model.run(TEXTS)
    model.attention("abc")
    assert model.run(TEXTS) == before


def test_load_from_anywhere(folder: Path, tmp_path: Path) -> None:
    assert regard.load(str(folder)).path == regard.load(folder / "final").path
    assert regard.load(folder / "best").path == folder / "best"
    with pytest.raises(SpecError, match="there is no model folder"):
        regard.load(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match=r"has no manifest\.json: it is not a model folder of ours"):
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
