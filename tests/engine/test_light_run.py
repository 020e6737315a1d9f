"""`regard run` without torch: the same outputs as with it, and nothing of torch is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard.api import Model
from regard.api.light_model import LightModel
from regard.api.open_light import open_light
from regard.decode import Search
from regard.engine.engine_plan import PLAN
from regard.engine.torch_engine import TorchEngine
from regard.errors import CheckpointError, SpecError
from regard.families import bert, gpt, transformer
from regard.files.folder import WEIGHTS, Folder, read_folder, write_folder
from regard.files.tensors import pack
from regard.serialization.model_folder import CONFIG, sign_plan
from regard.spec import Plain
from regard.tasks.classify import Classify, ClassifyData
from regard.tasks.common.seq2seq import TextPairsOptions
from regard.tasks.common.task import Output, Task
from regard.tasks.embed import Embed, EmbedData
from regard.tasks.lm import Lm, LmData
from regard.tasks.tag import Tag, TagData
from regard.tasks.translate import Translate, TranslateData
from regard.text import Bpe, Chars, Tokenizer
from tests.engine.models import build

pytestmark = pytest.mark.numeric
TEXTS = ["the cat sat on the mat", "a dog runs in the park", "two men play music", "the dog sat", "a cat and a dog"]
SCRIPT = """
import sys
from regard.__main__ import main
sys.argv = ["regard", "run", *sys.argv[1:]]
try:
    main()
finally:
    heavy = [name for name in ("torch", "numpy", "regard.model", "regard.training") if name in sys.modules]
    print(f"heavy: {heavy}", file=sys.stderr)
"""


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = Tokenizer.train(TEXTS, Bpe(vocab=60))
    net = build(transformer.spec(width=32, depth=2, heads=4, hidden=48, vocab=tokenizer.size, dropout=0.0, length=14))
    task = Translate(TranslateData(max_length=12), tokenizer)
    return Model(TorchEngine(net), task, Search(beam=3, max_extra=5), Path("x")).save(
        tmp_path_factory.mktemp("pairs") / "model"
    )


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = Tokenizer.train(TEXTS, Chars())
    net = build(gpt.spec(width=32, depth=2, heads=4, vocab=tokenizer.size, length=16, dropout=0.0))
    task = Lm(LmData(context=16), tokenizer)
    return Model(TorchEngine(net), task, Search(beam=1, max_extra=30), Path("x")).save(
        tmp_path_factory.mktemp("lm") / "model"
    )


def run(light: LightModel, texts: list[str], **options: object) -> list[list[object]]:
    return [[o.text for o in outputs] for batch in light.run_lazily(texts, **options) for _, outputs in batch]  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{}, {"beam": 1}, {"n_best": 2}, {"sample": True, "seed": 5}, {"prefix": "the"}])
def test_pairs_run_as_with_torch(pairs: Path, options: dict[str, object]) -> None:
    texts = [*TEXTS, "", "the cat sat on the mat. a dog runs in the park. two men play music.", "漢字漢字"]
    light = open_light(pairs)
    assert light is not None
    wanted = regard.load(pairs, engine="torch").run_all(texts, **options)  # type: ignore[arg-type]
    assert run(light, texts, **options) == [[o.text for o in outputs] for outputs in wanted]


@pytest.mark.parametrize("options", [{}, {"sample": True, "seed": 5}])
def test_a_language_model_runs_as_with_torch(lm: Path, options: dict[str, object]) -> None:
    light = open_light(lm)
    assert light is not None
    wanted = regard.load(lm, engine="torch").run_all(TEXTS, **options)  # type: ignore[arg-type]
    assert run(light, TEXTS, **options) == [[o.text for o in outputs] for outputs in wanted]


@pytest.mark.parametrize("options", [{"beam": 1}, {"sample": True, "seed": 5}])
def test_streams_what_it_runs(pairs: Path, lm: Path, options: dict[str, object]) -> None:
    """In pieces as they are written, without torch; also beyond what a language model can see at once."""
    for folder in (pairs, lm):
        light = open_light(folder)
        assert light is not None
        for text in (TEXTS[0], "the cat sat on the mat. a dog runs in the park. two men play music."):
            pieces = [*light.stream(text, **options)]  # type: ignore[arg-type]
            assert "".join(pieces) == run(light, [text], **options)[0][0] and len(pieces) > 1
        assert [*regard.load(folder).stream(TEXTS[0], **options)] == [*light.stream(TEXTS[0], **options)]  # type: ignore[arg-type]


def test_the_command_line_streams_without_torch(pairs: Path, lm: Path) -> None:
    for folder, options in ((pairs, ["--beam", "1"]), (lm, [])):
        command = [sys.executable, "-c", SCRIPT, str(folder), *TEXTS[:2], *options]
        plain, streamed = (
            subprocess.run([*command, *more], capture_output=True, text=True, check=True, cwd=folder)
            for more in ([], ["--stream"])
        )
        assert streamed.stdout == plain.stdout and "heavy: []" in streamed.stderr
    done = subprocess.run([*command, "--stream", "--json"], capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode and "--stream shows the text of one model; leave out --json" in done.stderr


def test_the_command_line_imports_no_torch(pairs: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(pairs), *TEXTS], capture_output=True, text=True, check=True, cwd=pairs
    )
    assert "heavy: []" in done.stderr
    assert done.stdout.splitlines() == regard.load(pairs).run(TEXTS)


LABELS = ("calm", "loud", "odd")


def save_encoder(task: Task, home: Path) -> Path:
    net = build(
        task.adapt_spec(bert.spec(width=32, depth=2, heads=4, hidden=48, dropout=0.0, **task.model_arguments()))
    )
    return Model(TorchEngine(net), task, Search(), Path("x")).save(home)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home, tokenizer = tmp_path_factory.mktemp("encoders"), Tokenizer.train(TEXTS, Bpe(vocab=60))
    tasks: dict[str, Task] = {
        "classify": Classify(ClassifyData(max_length=12), tokenizer, LABELS),
        "mean": Classify(ClassifyData(max_length=12, pool="mean"), tokenizer, LABELS),
        "tag": Tag(TagData(max_length=12), tokenizer, LABELS),
        "letters": Tag(TagData(max_length=12, unit="letters"), Tokenizer.train(TEXTS, Chars()), LABELS),
        "embed": Embed(EmbedData(max_length=12), tokenizer),
        "first": Embed(EmbedData(max_length=12, pool="first", unit=False), tokenizer),
        "pair": Classify(ClassifyData(max_length=16, pair=True), tokenizer, LABELS),
    }
    return {name: save_encoder(task, home / name) for name, task in tasks.items()}


@pytest.mark.parametrize("name", ["classify", "mean", "tag", "letters", "embed", "first"])
def test_an_encoder_runs_as_with_torch(encoders: dict[str, Path], name: str, tmp_path: Path) -> None:
    """Classes of texts, labels of words and letters, vectors: also of texts that are too long, and in int8."""
    texts = [*TEXTS, "", "the cat sat on the mat. a dog runs in the park. two men play music."]
    light, model = open_light(encoders[name]), regard.load(encoders[name])
    assert light is not None
    found, wanted = ([outputs for batch in each.run_lazily(texts) for _, outputs in batch] for each in (light, model))
    if name in ("embed", "first"):
        for one, other in zip(found, wanted, strict=True):
            assert bool(one) == bool(other) and (not one or np.allclose(vector(one), vector(other), atol=1e-4))
    else:
        assert [[o.text for o in each] for each in found] == [[o.text for o in each] for each in wanted]
        scores = ([o.score for each in some for o in each] for some in (found, wanted))
        assert np.allclose(*scores, atol=1e-4)
    regard.convert(encoders[name], tmp_path / "small", to="int8")
    small = open_light(tmp_path / "small")
    assert small is not None and len(run(small, texts)) == len(texts)


def vector(outputs: Sequence[Output]) -> list[float]:
    return [float(x) for x in str(outputs[0].text).split()]


def test_pairs_with_segments_are_left_to_torch(encoders: dict[str, Path]) -> None:
    assert open_light(encoders["pair"]) is None
    assert regard.load(encoders["pair"]).run(["the cat\ta dog"])[0] in LABELS


def test_a_damaged_head_is_refused(encoders: dict[str, Path], tmp_path: Path) -> None:
    folder = read_folder(encoders["classify"])
    plan = json.loads(folder[PLAN])
    for i, (change, said) in enumerate(
        (
            ({"classes": "nowhere"}, "names the weight 'nowhere', which is not in the file"),
            ({"classes": "embed.weight"}, "does not fit a model of width 32"),
            ({"dense": "head.classes.weight", "dense_bias": "head.classes.bias"}, "does not fit a model of width 32"),
            ({"activation": "sine"}, "there is no activation 'sine'"),
            ({"activation": {}}, "there is no activation {}"),
            ({"pool": "last"}, "does not say what follows the encoder"),
            ({"classes": None}, "does not say how texts become tokens"),
        )
    ):
        changed = {**plan, "head": {**plan["head"], **change}}
        write_folder(tmp_path / str(i), _change_plan(folder, changed))
        with pytest.raises(CheckpointError, match=said):
            open_light(tmp_path / str(i))


def test_a_tagger_that_does_not_say_what_it_tags_is_refused(encoders: dict[str, Path], tmp_path: Path) -> None:
    folder = read_folder(encoders["tag"])
    plan = json.loads(folder[PLAN])
    for i, unit in enumerate(("lines", {"x": 1}, None)):
        changed = {**plan, "frame": {**plan["frame"], "unit": unit}}
        write_folder(tmp_path / str(i), _change_plan(folder, changed))
        with pytest.raises(CheckpointError, match="does not say how texts become tokens"):
            open_light(tmp_path / str(i))


def test_the_command_line_classifies_without_torch(encoders: dict[str, Path]) -> None:
    for name in ("classify", "tag", "embed"):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(encoders[name]), *TEXTS[:2]], capture_output=True, text=True, check=True
        )
        assert "heavy: ['numpy']" in done.stderr and len(done.stdout.splitlines()) == 2


def test_what_needs_torch_runs_on_torch(pairs: Path, tmp_path: Path) -> None:
    folder = read_folder(pairs)
    write_folder(tmp_path / "old", {name: data for name, data in folder.files.items() if name != PLAN})
    assert open_light(tmp_path / "old") is None
    assert open_light(pairs, device="cuda") is None
    light = open_light(pairs)
    assert light is not None
    with pytest.raises(SpecError, match="ensembles and glossaries need torch"):
        run(light, TEXTS, glossary={"cat": "dog"})


def test_unfolded_sources(tmp_path: Path) -> None:
    """The engine reads the columns that dynamic unfolding adds."""
    tokenizer = Tokenizer.train(TEXTS, Bpe(vocab=60))
    net = build(transformer.spec(width=32, depth=2, heads=4, hidden=48, vocab=tokenizer.size, dropout=0.0, length=30))
    task = Translate(TranslateData(max_length=12, unfold=2.0), tokenizer)
    Model(TorchEngine(net), task, Search(beam=1, max_extra=5), Path("x")).save(tmp_path / "model")
    light, whole = open_light(tmp_path / "model"), regard.load(tmp_path / "model")
    assert light is not None
    assert light.task.encode_inputs(TEXTS, TextPairsOptions()) == task.encode_inputs(TEXTS, TextPairsOptions())
    assert run(light, TEXTS) == [[text] for text in whole.run(TEXTS)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_weights_that_are_not_numbers_are_refused(pairs: Path, tmp_path: Path, dtype: torch.dtype) -> None:
    """Even by whoever writes a plan that fits them."""
    folder = read_folder(pairs)
    weights = {name: tensor.to(dtype) for name, tensor in folder.tensors().items()}
    for i, bad in enumerate((1.0, float("nan"))):
        next(iter(weights.values())).view(-1)[3] = bad
        files = {**folder.files, WEIGHTS: pack(weights)}
        files[PLAN] = json.dumps(sign_plan(folder.json(PLAN), files)).encode()
        write_folder(tmp_path / str(i), files)
    assert open_light(tmp_path / "0") is not None
    with pytest.raises(CheckpointError, match=r"has values that are not numbers \(NaN\)"):
        open_light(tmp_path / "1")


def test_plan_that_was_changed_leaves_the_folder_to_torch(pairs: Path, tmp_path: Path) -> None:
    """Other heads fit the same weights and write something else."""
    folder = read_folder(pairs)
    changed = folder.files[PLAN].replace(b'"heads": 4', b'"heads": 2').replace(b'"kv_heads": 4', b'"kv_heads": 2')
    changed = changed.replace(b'"head_width": 16', b'"head_width": 32').replace(b'"head_width": 8', b'"head_width": 16')
    assert changed != folder.files[PLAN]
    write_folder(tmp_path / "changed", {**folder.files, PLAN: changed})
    assert open_light(tmp_path / "changed") is None
    assert regard.load(tmp_path / "changed").run(TEXTS) == regard.load(pairs).run(TEXTS)


def _change_plan(folder: Folder, plan: Plain) -> dict[str, bytes]:
    """The files with another plan, of somebody who signs it."""
    files = {name: data for name, data in folder.files.items() if name != PLAN}
    return {**files, PLAN: json.dumps(sign_plan(plan, files)).encode()}


def test_a_plan_for_other_files_leaves_the_folder_to_torch(pairs: Path, tmp_path: Path) -> None:
    folder = read_folder(pairs)
    config = json.loads(folder[CONFIG])
    config["model"]["decoder"]["kind"] = "os.system"
    write_folder(tmp_path / "config", {**folder.files, CONFIG: json.dumps(config).encode()})
    write_folder(tmp_path / "names", {**folder.files, WEIGHTS: pack({"x": torch.zeros(3), **folder.tensors()})})
    for name in ("config", "names"):
        assert open_light(tmp_path / name) is None
        with pytest.raises(CheckpointError):
            regard.load(tmp_path / name)


def test_a_plan_that_does_not_fit_is_refused(pairs: Path, tmp_path: Path) -> None:
    folder = read_folder(pairs)
    plan = json.loads(folder[PLAN])
    for i, (change, said) in enumerate(
        (
            ({"frame": {"kind": "pairs", "max_length": "many"}}, "does not say how texts become tokens"),
            ({"frame": {"kind": "pairs", "max_length": 12, "unfold": 1e9}}, "does not say how texts become tokens"),
            ({"embed": {**plan["embed"], "table": "nowhere"}}, "names the weight 'nowhere', which is not in the file"),
            ({"width": "wide"}, "has 'wide' where a number should be"),
            ({"width": 10**400}, "has 1000.* where a number should be"),
            ({"decoder": {**plan["decoder"], "wiring": "odd"}}, "has 'odd' where one of post, pre"),
        )
    ):
        write_folder(tmp_path / str(i), _change_plan(folder, {**plan, **change}))
        with pytest.raises(CheckpointError, match=said):
            open_light(tmp_path / str(i))
