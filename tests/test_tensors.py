"""Tensors as bytes: what was packed comes back to the bit, and what somebody else packed is read or refused."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import CheckpointError, RegardError
from regard.files.tensors import TYPES, list_tensors, pack, read_tensors, unpack

DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
]


@given(
    dtype=st.sampled_from(DTYPES),
    shape=st.lists(st.integers(0, 4), max_size=3),
    seed=st.integers(0, 99),
    turned=st.booleans(),
)
def test_any_tensor_comes_back_bit_for_bit(dtype: torch.dtype, shape: list[int], seed: int, turned: bool) -> None:
    random = torch.Generator().manual_seed(seed)
    tensor = torch.randint(0, 100, shape, generator=random).to(dtype)
    tensor = tensor.transpose(0, -1) if turned and shape else tensor
    back = unpack(pack({"x": tensor}), Path("x"))["x"]
    assert back.dtype == dtype
    assert torch.equal(back, tensor)


def test_shared_memory_is_tied_again_or_copied() -> None:
    whole = torch.nn.Parameter(torch.arange(12.0).reshape(3, 4))
    tensors = {"embed": whole, "head": whole.detach(), "rows": whole[1:], "flat": whole.view(-1), "turned": whole.T}
    tensors |= {"none": torch.empty(0, 2), "nothing": torch.empty(0, 2), "spread": torch.ones(1).expand(5)}
    data = pack(tensors)
    back = unpack(data, Path("x"))
    assert all(torch.equal(back[name], tensors[name]) for name in tensors)
    assert back["head"] is back["embed"]
    back["rows"].zero_()
    assert torch.equal(back["embed"], whole)
    assert pack(tensors) == data
    assert len(pack({"a": whole, "b": whole})) < len(pack({"a": whole, "b": whole.clone()}))


def test_special_floats_survive() -> None:
    odd = torch.tensor([float("nan"), float("inf"), -0.0, 1e-45])
    assert torch.equal(unpack(pack({"x": odd}), Path("x"))["x"].view(torch.int32), odd.view(torch.int32))


def test_tensors_of_a_file_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(pack({"w": torch.ones(2)}))
    (tmp_path / "model.safetensors").symlink_to("blob")
    assert torch.equal(read_tensors(tmp_path / "model.safetensors")["w"], torch.ones(2))
    with pytest.raises(CheckpointError, match=r"cannot read none.safetensors in .* \(No such file or directory\)"):
        read_tensors(tmp_path / "none.safetensors")


def one(dtype: str, shape: list[int], end: int) -> dict[str, object]:
    return {"a": {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"1234567",
        struct.pack("<Q", 2**60) + b"{}",  # a header that claims more than there is memory
        struct.pack("<Q", 99_000_000) + b"{}",
        one("F32", [2], 4),
        one("F32", [2**62, 2**62], 4),
        one("F32", [0, 2**62, 2**62], 0),
        one("F32", [0, 2**63 + 5], 0),
        one("F99", [1], 4),
        one("F8_E8M0", [4], 4),
        {"__metadata__": {"tied": "{"}},
        {"__metadata__": {"tied": '{"a": "b"}'}},
        {"__metadata__": {"tied": '{"a": {"b": 1}}'}},
        {"__metadata__": {"tied": "[" * 9999}},
        {"__metadata__": 3},
    ],
    ids=str,
)
def test_strange_tensors_are_refused(tmp_path: Path, data: bytes | dict[str, object]) -> None:
    if isinstance(data, dict):
        header = json.dumps(data).encode()
        data = struct.pack("<Q", len(header)) + header + b"1234"[: 4 if b"4]" in header else 0]
    (tmp_path / "m.safetensors").write_bytes(data)
    with pytest.raises(CheckpointError, match=r"m.safetensors is damaged: it is not a valid safetensors file \("):
        read_tensors(tmp_path / "m.safetensors")


@pytest.mark.parametrize("seed", range(4))
def test_random_damage_to_tensors_is_an_error_or_other_tensors(tmp_path: Path, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    whole = bytearray(pack({"w": torch.ones(2, 3), "v": torch.arange(4)}))
    for _ in range(200):
        at = int(torch.randint(len(whole), (), generator=random))
        broken = bytearray(whole)
        broken[at] = int(torch.randint(256, (), generator=random))
        (tmp_path / "m.safetensors").write_bytes(broken)
        try:
            read_tensors(tmp_path / "m.safetensors")
        except RegardError as error:
            assert "m.safetensors is damaged" in str(error)


def test_the_file_is_the_one_that_the_library_writes() -> None:
    kinds = [getattr(torch, name) for name in TYPES]
    tensors = {f"{n}.{kind}": torch.arange(n).reshape(-1, 1).to(kind) for n in (0, 1, 3) for kind in kinds}
    tensors |= {"a": torch.ones(2), "é ▁": torch.ones(3), 'quote"': torch.tensor(2.0), "t": torch.rand(3, 4).T}
    wanted = safetensors.torch.save({name: tensor.contiguous() for name, tensor in tensors.items()})
    assert pack(tensors) == wanted
    tied = {"one": tensors["a"], "other": tensors["a"], "part": tensors["a"][:1]}
    wanted = safetensors.torch.save({"one": tied["one"], "part": tied["part"].clone()}, {"tied": '{"other": "one"}'})
    assert pack(tied) == wanted
    assert pack({}) == safetensors.torch.save({})
    with pytest.raises(CheckpointError, match=r"^c cannot be stored: its numbers are of torch.complex64$"):
        pack({"c": torch.zeros(1, dtype=torch.complex64)})


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_too_little_memory_for_a_file_is_an_error_of_python() -> None:
    """The library would panic, or end the process."""
    code = """
import resource, torch
from regard.files.tensors import pack
weight = torch.zeros(1 << 25)
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, ((pages << 12) + (1 << 26),) * 2)
try:
    pack({"weight": weight})
except MemoryError:
    print("lack of memory")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("lack of memory\n", "")


@pytest.mark.parametrize("fault", ["bytes at the end", "gap", "overlap"])
def test_tensors_that_do_not_fill_the_file_are_refused_with_and_without_torch(fault: str) -> None:
    places = {"bytes at the end": (0, 4, 4, 8), "gap": (0, 4, 8, 12), "overlap": (0, 8, 4, 8)}[fault]
    header = {
        name: {"dtype": "F32", "shape": [(end - start) // 4], "data_offsets": [start, end]}
        for name, start, end in (("a", *places[:2]), ("b", *places[2:]))
    }
    text = json.dumps(header).encode()
    data = len(text).to_bytes(8, "little") + text + bytes(12 if fault != "overlap" else 8)
    for read in (unpack, list_tensors):
        with pytest.raises(CheckpointError, match="it is not a valid safetensors file"):
            read(data, Path("x"))
    with pytest.raises(CheckpointError, match="its tensors do not lie behind one another"):
        list_tensors(data, Path("x"))
