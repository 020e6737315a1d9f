"""The engine plan: a model as flat data, without torch.

`engine.json` lies beside the weights of a model folder and says what the native engine computes, in order: shapes, settings and
the names of the weights that each part uses. `write_plan.py` makes it from a model; `flatten_plan` turns it into the array of
numbers that the library reads (`read_model` in native/model.cpp has the same order), with the place of each weight in the file.
"""

from __future__ import annotations

import dataclasses
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import cast

from regard.errors import CheckpointError
from regard.files.tensors import TensorEntry
from regard.spec import Plain

PLAN = "engine.json"
FORMAT = 1
DTYPES = {"F32": 0, "F16": 1, "BF16": 2, "I8": 3}
INT8_BLOCKS, INT4_BLOCKS = 4, 5
SINGLE = 16
"""Added to the type of a weight that is read once."""
INT8_PANELS, INT8_BLOCK_PANELS, INT4_BLOCK_PANELS = 6, 7, 8
WIRINGS = ("post", "pre", "parallel", "bare")
NORMS = ("none", "layer", "rms")
ROLES = ("mix", "cross", "feed")
ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu", "tanh")
PLACES = ("none", "pairs", "halves", "learned")
POSITIONS = ("none", "rotary", "alibi", "buckets", "shaw")
SCALE, MINIMUM = ".scale", ".min"
"""Suffixes of the tensors with the scales of a quantized weight, and with the minima of one of 4 bits."""
BLOCK = 32
"""Numbers of a row that share a scale, where rows have more than one."""
LANES = 16
"""Rows that are packed together, in panels."""
BLOCK_BYTES = {4 * LANES + LANES * BLOCK: INT8_BLOCK_PANELS, 4 * LANES + LANES * BLOCK // 2: INT4_BLOCK_PANELS}
"""Bytes of a block of a panel: scales and minima of its rows in float16, then their numbers of 8 or 4 bits."""


MAX_NUMBER = 2**53
"""Integers below this are exact in a double, which the library reads and checks."""


@dataclasses.dataclass
class PlanFlattener:
    """Writes the numbers of a plan one after another. A plan comes from a file: whatever is missing or odd is refused."""

    tensors: Mapping[str, TensorEntry]
    numbers: array[float] = dataclasses.field(default_factory=lambda: array("d"))
    uses: dict[int, list[int]] = dataclasses.field(default_factory=lambda: defaultdict(list))
    """Places where `numbers` has the type of a weight, by the weight's first byte."""

    def put(self, *values: object) -> None:
        for value in values:
            if not isinstance(value, int | float) or (isinstance(value, int) and abs(value) >= MAX_NUMBER):
                raise CheckpointError(f"{PLAN} is damaged: it has {value!r:.60} where a number should be")
            self.numbers.append(float(value))

    def choose(self, value: object, names: Sequence[str]) -> None:
        if value not in names:
            raise CheckpointError(f"{PLAN} is damaged: it has {value!r} where one of {', '.join(names)} should be")
        self.put(names.index(cast("str", value)))

    def tensor(self, name: object, *, first_row: bool = False) -> None:
        """The place of a weight in the file; None: there is none."""
        if name is None:
            return self.put(-1)
        if not isinstance(name, str) or name not in self.tensors:
            raise CheckpointError(f"{PLAN} names the weight {name!r}, which is not in the file")
        entry = self.tensors[name]
        self.uses[entry.start].append(len(self.numbers) + 1)
        if entry.dtype == "U8" and len(entry.shape) > 2:
            return self.panels(name, entry)
        if entry.dtype == "U8" or (entry.dtype == "I8" and self._is_table(name + SCALE)):
            return self.blocks(name, entry)
        if entry.dtype not in DTYPES:
            raise CheckpointError(f"the native engine reads no weights of type {entry.dtype}, which {name} has")
        shape = entry.shape if len(entry.shape) == 2 else (1, *entry.shape)
        if len(shape) != 2:
            raise CheckpointError(f"the weight {name} should be a matrix or a vector, has the shape {entry.shape}")
        self.put(entry.start, DTYPES[entry.dtype], 1 if first_row else shape[0], shape[1])
        if entry.dtype == "I8":
            scales = self.tensors.get(name + SCALE)
            if scales is None or scales.dtype != "F32" or scales.shape != shape[:1]:
                raise CheckpointError(f"the weight {name} is int8 and has no scales of its rows")
            self.put(scales.start)
        return None

    def _is_table(self, name: str) -> bool:
        return name in self.tensors and len(self.tensors[name].shape) == 2

    def blocks(self, name: str, entry: TensorEntry) -> None:
        """The place of a weight of 4 or 8 bits with a scale for every 32 numbers."""
        code, per_byte = (INT4_BLOCKS, 2) if entry.dtype == "U8" else (INT8_BLOCKS, 1)
        suffixes = (SCALE, MINIMUM) if code == INT4_BLOCKS else (SCALE,)
        found = [self.tensors[name + suffix] for suffix in suffixes if self._is_table(name + suffix)]
        rows, cols = entry.shape if len(entry.shape) == 2 else (0, 0)
        fits = all(each.shape == (rows, cols * per_byte // BLOCK) and each.dtype in ("F32", "F16") for each in found)
        if len(found) != len(suffixes) or not fits or len({each.dtype for each in found}) != 1:
            raise CheckpointError(f"the weight {name} is in blocks and has no scales that fit them")
        self.put(entry.start, code, rows, cols * per_byte, DTYPES[found[0].dtype], *(each.start for each in found))

    def panels(self, name: str, entry: TensorEntry) -> None:
        """The place of a weight that is packed already, with the rows and columns that it was padded to."""
        panels, count, *unit = entry.shape
        if len(unit) == 1 and unit[0] in BLOCK_BYTES:
            return self.put(entry.start, BLOCK_BYTES[unit[0]], panels * LANES, count * BLOCK)
        scales = self.tensors.get(name + SCALE)
        if unit != [LANES, 4] or scales is None or scales.dtype != "F32" or scales.shape != (panels * LANES,):
            raise CheckpointError(f"the weight {name} is in panels of an unknown form, or has no scales that fit them")
        return self.put(entry.start, INT8_PANELS, panels * LANES, count * 4, scales.start)

    def norm(self, norm: object) -> None:
        if norm is None:
            return self.put(0)
        part = _mapping(norm)
        self.choose(part.get("kind"), NORMS)
        self.put(part.get("eps"))
        self.tensor(part.get("weight"))
        return self.tensor(part.get("bias"))

    def embedding(self, part: Plain) -> None:
        self.tensor(part.get("table"))
        zero = part.get("zero")
        self.put(part.get("scale"), -1 if zero is None else zero)
        self.choose(part.get("position"), PLACES)
        if part.get("position") == "learned":
            table = self.tensors.get(str(part.get("places")))
            self.put(part.get("shift"), 0 if table is None or len(table.shape) != 2 else table.shape[0])
            self.tensor(part.get("places"))
        self.tensor(part.get("segment"), first_row=True)
        self.norm(part.get("norm"))

    def position(self, part: Plain) -> None:
        kind = part.get("kind")
        self.choose(kind, POSITIONS)
        if kind == "rotary":
            rates = _numbers(part.get("rates"))
            self.put(bool(part.get("pairs")), len(rates), part.get("factor"), *rates)
        elif kind == "alibi":
            self.put(*_numbers(part.get("slopes")))
        elif kind == "buckets":
            table = self.tensors.get(str(part.get("weight")))
            self.put(part.get("reach"), 0 if table is None or not table.shape else table.shape[0])
            self.tensor(part.get("weight"))
            self.put(*_numbers(part.get("buckets")))
        elif kind == "shaw":
            self.put(part.get("reach"))
            self.tensor(part.get("keys"))
            self.tensor(part.get("values"))

    def attention(self, part: Plain, positions: Sequence[object], *, cross: bool) -> None:
        self.put(part.get("heads"), part.get("kv_heads"), part.get("head_width"), part.get("scale"))
        for name in ("q", "k", "v", "out", "q_bias", "k_bias", "v_bias", "out_bias"):
            self.tensor(part.get(name))
        self.norm(part.get("q_norm"))
        self.norm(part.get("k_norm"))
        if cross:
            return None
        self.put(bool(part.get("causal")), part.get("window"), part.get("dilation"))
        index = part.get("position")
        if index is None:
            return self.position({"kind": "none"})
        if not isinstance(index, int) or not 0 <= index < len(positions):
            raise CheckpointError(f"{PLAN} is damaged: there is no position {index!r}")
        return self.position(_mapping(positions[index]))

    def feed(self, part: Plain) -> None:
        self.put(part.get("width"))
        self.choose(part.get("activation"), ACTIVATIONS)
        self.put(bool(part.get("gated")))
        for name in ("up", "up_bias", *(("gate", "gate_bias") if part.get("gated") else ()), "down", "down_bias"):
            self.tensor(part.get(name))

    def stack(self, part: Plain, positions: Sequence[object]) -> None:
        self.choose(part.get("wiring"), WIRINGS)
        blocks = _list(part.get("blocks"))
        self.put(len(blocks))
        for block in blocks:
            self.put(len(_list(block)))
            for each in map(_mapping, _list(block)):
                self.choose(each.get("role"), ROLES)
                self.norm(each.get("norm"))
                if each["role"] == "feed":
                    self.feed(each)
                else:
                    self.attention(each, positions, cross=each["role"] == "cross")
        self.norm(part.get("norm"))

    def mark_single(self) -> None:
        """Mark the weights that are read once: the library releases their memory when they are packed."""
        for places in self.uses.values():
            if len(places) == 1:
                self.numbers[places[0]] += SINGLE


KEYS = (
    "width", "vocab", "source_vocab", "length", "room", "embed", "source", "encoder", "decoder", "head", "positions",
)  # fmt: skip
"""Keys of every plan."""


def flatten_plan(plan: Plain, tensors: Mapping[str, TensorEntry]) -> array[float]:
    """The plan as the library reads it."""
    if plan.get("format") != FORMAT:
        raise CheckpointError(f"{PLAN} has format {plan.get('format')!r}, this version reads {FORMAT}; convert again")
    if missing := [key for key in KEYS if key not in plan]:
        raise CheckpointError(f"{PLAN} is damaged: it has no {missing[0]!r}")
    for key, least in (("length", plan["length"]), ("room", plan["room"] or 1)):
        if not isinstance(least, int) or least < 1:
            raise CheckpointError(f"{PLAN} is damaged: its {key} is {plan[key]!r:.60}")
    out, positions, encoder = PlanFlattener(tensors), _list(plan.get("positions")), plan.get("encoder")
    decoder = plan.get("decoder")
    out.put(
        FORMAT, plan.get("width"), plan.get("vocab"), plan.get("source_vocab") if encoder else 0, decoder is not None
    )
    out.embedding(_mapping(plan.get("embed")))
    if encoder is not None:
        out.embedding(_mapping(plan.get("source")))
        out.stack(_mapping(encoder), positions)
    if decoder is not None:
        out.stack(_mapping(decoder), positions)
        head = _mapping(plan.get("head"))
        out.tensor(head.get("table"))
        out.tensor(head.get("bias"))
        out.put(head.get("scale"))
    else:  # a head that is read elsewhere (`encoder_head.py`)
        for name in filter(tensors.__contains__, map(str, _mapping(plan.get("head") or {}).values())):
            out.uses[tensors[name].start] += (0, 0)
    out.mark_single()
    return out.numbers


def _mapping(value: object) -> Plain:
    if not isinstance(value, dict):
        raise CheckpointError(f"{PLAN} is damaged: it has {value!r:.60} where an object should be")
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise CheckpointError(f"{PLAN} is damaged: it has {value!r:.60} where a list should be")
    return value


def _numbers(value: object) -> list[float]:
    found = _list(value)
    if not all(isinstance(each, int | float) for each in found):
        raise CheckpointError(f"{PLAN} is damaged: it has {value!r:.60} where numbers should be")
    return cast("list[float]", found)
