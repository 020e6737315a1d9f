"""Plans and weights from a stranger: whatever does not fit is refused before it is used.

The C++ program in native/fuzz.cpp does the same a million times under sanitizers (`python -m tests.engine.fuzz`).
"""

from __future__ import annotations

import copy
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.decode import Constraints, Request, Search
from regard.engine.engine_plan import flatten_plan
from regard.engine.native_engine import NativeEngine
from regard.engine.native_library import NativeError, NativeModel, SearchSettings, TokenRows
from regard.engine.quantized_weights import pack_weights, quantize_weights
from regard.engine.write_plan import describe_model
from regard.errors import CheckpointError
from regard.files.tensors import TensorEntry, list_tensors, pack
from regard.model.net import Net
from tests.engine.models import ALL, FAMILIES, SPECIAL, build

Plan = dict[str, Any]
FILE = Path("model.safetensors")


@pytest.fixture(scope="module")
def net() -> Net:
    return build(FAMILIES["t5"])


CHANGES: dict[str, tuple[Callable[[Plan], object], str]] = {
    "a decoder in words": (lambda p: p.update(decoder="six layers"), "where an object should be"),
    "neither encoder nor decoder": (lambda p: p.update(decoder=None, encoder=None), "needs an encoder or a decoder"),
    "a zero vector beyond the table": (
        lambda p: p["embed"].update(zero=53),
        "a token without a vector is out of range",
    ),
    "another width": (lambda p: p.update(width=31), "an embedding should be 53 × 31, is 53 × 32"),
    "a huge vocabulary": (lambda p: p.update(vocab=1e12), "the vocabulary is out of range"),
    "a vocabulary of one half": (lambda p: p.update(vocab=52.5), "the vocabulary is not a whole number"),
    "not a number": (lambda p: p["head"].update(scale=float("nan")), "the head's scale is out of range"),
    "heads that do not divide": (lambda p: p["decoder"]["blocks"][0][0].update(kv_heads=3), "does not divide heads"),
    "no position": (lambda p: p["decoder"]["blocks"][0][0].update(position=7), "there is no position 7"),
    "buckets beyond the table": (lambda p: p["positions"][0]["buckets"].__setitem__(0, 8), "a bucket is out of range"),
    "too few buckets": (lambda p: p["positions"][0]["buckets"].pop(), "is out of range|is missing|not a whole number"),
    "an encoder that looks ahead": (lambda p: p["decoder"]["blocks"][0][0].update(causal=False), "should be causal"),
    "a norm too few": (lambda p: p["decoder"]["blocks"][0][0].update(norm=None), "has a norm that its wiring"),
    "weights of another part": (
        lambda p: p["decoder"]["blocks"][0][2].update(up=p["decoder"]["blocks"][0][2]["down"]),
        "up should be 48 × 32, is 32 × 48",
    ),
    "no word of an encoder": (lambda p: p.pop("encoder"), "it has no 'encoder'"),
    "no room": (lambda p: p.update(room="much"), "its room is 'much'"),
    "a length in words": (lambda p: p.update(length="long"), "its length is 'long'"),
    "an unknown activation": (
        lambda p: p["decoder"]["blocks"][0][2].update(activation="sine"),
        "where one of none, relu",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_plan_is_refused(net: Net, name: str) -> None:
    change, said = CHANGES[name]
    plan, data = copy.deepcopy(describe_model(net)), pack(net.state_dict())
    NativeEngine.open(plan, data, threads=1)
    change(plan)
    with pytest.raises((NativeError, CheckpointError), match=said):
        NativeEngine.open(plan, data, threads=1)


def test_weights_that_lie_elsewhere_are_refused(net: Net) -> None:
    data = pack(net.state_dict())
    tensors = list_tensors(data, FILE)
    first = next(iter(tensors))
    for start in (len(data), len(data) - 8, 1 << 49):
        moved = {**tensors, first: TensorEntry("F32", tensors[first].shape, start)}
        with pytest.raises(NativeError, match="lies outside the weights file"):
            NativeModel(flatten_plan(describe_model(net), moved), data)
    with pytest.raises(CheckpointError, match="not a valid safetensors file"):
        list_tensors(data[: len(data) // 2], FILE)
    with pytest.raises(CheckpointError, match="reads no weights of type I64"):
        flatten_plan(describe_model(net), {**tensors, first: TensorEntry("I64", tensors[first].shape, 0)})


def test_blocks_that_do_not_fit_are_refused(net: Net) -> None:
    plan, weights = describe_model(net), quantize_weights(net.state_dict(), describe_model(net), "int4")
    name = "decoder.blocks.0.mix.q.weight"
    NativeEngine.open(plan, pack(weights), precision="int4", threads=1)
    few, short = weights[name + ".scale"][:-1].clone(), weights[name + ".min"].float()
    for changed in ({name + ".scale": few}, {name + ".min": short}, {name: weights[name][:, :-1].clone()}):
        with pytest.raises(CheckpointError, match="is in blocks and has no scales that fit them"):
            NativeEngine.open(plan, pack({**weights, **changed}), precision="int4", threads=1)
    huge = torch.full_like(weights[name + ".scale"].float(), 1e6)
    with pytest.raises(NativeError, match="a weight is too large, or not a number"):
        NativeEngine.open(
            plan, pack({**weights, name + ".scale": huge, name + ".min": huge.clone()}), precision="int4", threads=1
        )
    tensors = list_tensors(pack(weights), FILE)
    moved = {**tensors, name + ".min": TensorEntry("F16", tensors[name + ".min"].shape, len(pack(weights)) - 8)}
    with pytest.raises(NativeError, match="lies outside the weights file"):
        NativeModel(flatten_plan(plan, moved), pack(weights), precision=2)
    with pytest.raises(NativeError, match="there is no such precision"):
        NativeModel(flatten_plan(plan, tensors), pack(weights), precision=3)


def test_panels_that_do_not_fit_are_refused(net: Net) -> None:
    plan, name = describe_model(net), "decoder.blocks.0.mix.q.weight"
    for to, shape, why in (
        ("int8", (2, 9, 16, 4), "queries should be 32 × 32, is packed for 32 × 36"),
        ("int8", (3, 8, 16, 4), "in panels of an unknown form, or has no scales that fit them"),
        ("int4", (1, 1, 320), "queries should be 32 × 32, is packed for 16 × 32"),
        ("int4", (2, 1, 321), "in panels of an unknown form"),
    ):
        data = pack_weights(quantize_weights(net.state_dict(), plan, to), plan)  # type: ignore[arg-type]
        tensors = list_tensors(data, FILE)
        with pytest.raises((NativeError, CheckpointError), match=why):
            NativeModel(flatten_plan(plan, {**tensors, name: TensorEntry("U8", shape, 8)}), data, precision=1)
        moved = {**tensors, name: TensorEntry("U8", tensors[name].shape, len(data) - 8)}
        with pytest.raises(NativeError, match="lies outside the weights file"):
            NativeModel(flatten_plan(plan, moved), data, precision=1)
    start = tensors[name].start
    for half in (b"\x00\x7c", b"\x01\xfe"):  # infinity, and not a number
        with pytest.raises(NativeError, match="a weight is too large, or not a number"):
            NativeModel(flatten_plan(plan, tensors), data[:start] + half + data[start + 2 :], precision=2)


def test_a_table_that_begins_where_the_head_does_has_its_own_rows() -> None:
    """The engine shares memory with a head only if both are the same matrix."""
    net = build(FAMILIES["transformer"])
    plan, data = describe_model(net), pack(net.state_dict())
    tensors = list_tensors(data, FILE)
    start, rows, width = tensors["embed.weight"].start, 300, 32
    copied = data + data[start : start + 4 * rows * width]
    plan.update(source_vocab=rows, source={**plan["source"], "table": "wide"})
    here, elsewhere = (
        NativeEngine(
            plan, NativeModel(flatten_plan(plan, {**tensors, "wide": TensorEntry("F32", (rows, width), at)}), copied)
        )
        for at in (start, len(data))
    )
    for token in (5, 60, rows - 1):
        assert np.array_equal(here.encode([token]), elsewhere.encode([token]))


def test_settings_that_leave_nothing_to_draw_are_refused(net: Net) -> None:
    model = NativeEngine.open(describe_model(net), pack(net.state_dict()), threads=1).model
    for setting, value in (("top_p", 0.0), ("top_p", np.nan), ("temperature", 0.0), ("n_best", 2), ("beam", 0)):
        search = SearchSettings(beam=1, n_best=1, sample=1, bos=1, eos=2, temperature=1.0, top_p=1.0)
        setattr(search, setting, value)
        with pytest.raises(NativeError, match=f"{setting} is out of range"):
            model.decode([[5, 2]], [], [4], [0], [], search)


def test_rows_without_memory_are_refused(net: Net) -> None:
    model = NativeEngine.open(describe_model(net), pack(net.state_dict()), threads=1).model
    whole = TokenRows.of([[5, 2]])
    for rows in (TokenRows(1, None, whole.starts), TokenRows(1, whole.ids, None)):
        with pytest.raises(NativeError, match="the texts are missing"):
            model.set_shortlist(rows, TokenRows.of([]))


FEW_THREADS = """
import json, resource, sys
from pathlib import Path
from regard.engine.native_engine import NativeEngine
from regard.decode import Request, Search, SpecialTokens
plan, data = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]).read_bytes()
now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + (400 << 20), resource.getrlimit(resource.RLIMIT_AS)[1]))
engine = NativeEngine.open(plan, data, threads=256)
resource.setrlimit(resource.RLIMIT_AS, (-1, resource.getrlimit(resource.RLIMIT_AS)[1]))
print(len(engine.decode(Request([[5, 2], [7, 2]], Search(beam=2, max_extra=3), SpecialTokens(bos=1, eos=2, pad=0)))))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process as Linux does")
def test_a_system_that_refuses_threads_gives_fewer(net: Net, tmp_path: Path) -> None:
    (tmp_path / "plan").write_text(json.dumps(describe_model(net)))
    (tmp_path / "weights").write_bytes(pack(net.state_dict()))
    command = [sys.executable, "-c", FEW_THREADS, str(tmp_path / "plan"), str(tmp_path / "weights")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "2\n", done.stderr


def test_requests_outside_the_model_are_refused() -> None:
    engine = NativeEngine.open(describe_model(gpt := build(FAMILIES["gpt"])), pack(gpt.state_dict()), threads=1)
    search = Search(beam=2, max_extra=5)
    for source in ([99], [-1], []):
        with pytest.raises(NativeError, match=r"outside the vocabulary|no tokens"):
            engine.decode(Request([source], search, SPECIAL))
    with pytest.raises(NativeError, match="longer than the model has positions"):
        engine.decode(Request([[5] * 99], search, SPECIAL))
    with pytest.raises(NativeError, match="outside the vocabulary"):
        engine.decode(Request([[5]], search, SPECIAL, Constraints(prefixes=[[77]])))
    with pytest.raises(NativeError, match="this model has no encoder"):
        engine.encode([5])


def test_random_damage_never_crashes() -> None:
    """Every number of a plan is replaced in turn, and what still loads still decodes or refuses."""
    draw = random.Random(1)
    for spec in ALL.values():
        net = build(spec)
        data = pack(net.state_dict())
        plan = flatten_plan(describe_model(net), list_tensors(data, FILE))
        for _ in range(20):
            damaged = plan[:]
            for _ in range(draw.randrange(1, 3)):
                i = draw.randrange(len(plan))
                damaged[i] = draw.choice([0, 1, -1, 3, 1e18, np.nan, np.inf, plan[i] + 1, plan[i] * 2, plan[i] / 2])
            try:
                model = NativeModel(
                    damaged[: draw.choice([None, draw.randrange(len(plan))])], data, precision=draw.randrange(3)
                )
                engine = NativeEngine(describe_model(net), model)
                engine.decode(Request([[5, 2], [7]], Search(beam=2, max_extra=4), SPECIAL))
            except (NativeError, CheckpointError) as refused:  # the second: what it computes is not a number
                assert str(refused)
