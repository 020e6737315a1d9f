"""Weight names of other projects, for import and export.

    ours                              theirs
    decoder.blocks.3.mix.out.weight   transformer.h.3.attn.c_proj.weight    Name, `transposed`: theirs is (in, out)
    decoder.blocks.3.mix.{q,k,v}      transformer.h.3.attn.c_attn           Join
    –                                 lm_head.weight                        Tied to transformer.wte.weight
    –                                 transformer.h.3.attn.bias             Drop: a mask, not learned

A row maps a part (its weight and its bias) or one parameter; {} is the layer number. A weight of ours without a row cannot be
exported, and a weight of theirs without a row is an error.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Container, Iterable, Mapping, Sequence

import torch
from torch import Tensor

from regard.errors import SpecError

Shapes = Mapping[str, tuple[int, ...]]
_ENDS = r"(\.weight|\.bias|)"


@dataclasses.dataclass(frozen=True)
class Name:
    """One part of ours is one part of theirs.

    Theirs may be `transposed`, that is (in, out), and may start with `lead` dimensions of size one. With `when`, the row
    applies only if our model has that part.
    """

    ours: str
    theirs: str
    transposed: bool = False
    lead: int = 0
    when: str | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.ours,)

    def pack(self, ours: Sequence[Tensor]) -> Tensor:
        value = ours[0].t() if self.transposed else ours[0]
        return value.reshape(*[1] * self.lead, *value.shape)

    def unpack(self, theirs: Tensor, sizes: Sequence[int]) -> list[Tensor]:
        value = theirs.reshape(theirs.shape[self.lead :])
        return [value.t() if self.transposed else value]


@dataclasses.dataclass(frozen=True)
class Join:
    """Several linear layers of ours are one of theirs, concatenated along the outputs."""

    parts: tuple[str, ...]
    theirs: str
    transposed: bool = False
    when: str | None = None

    def pack(self, ours: Sequence[Tensor]) -> Tensor:
        value = torch.cat(list(ours))
        return value.t() if self.transposed else value

    def unpack(self, theirs: Tensor, sizes: Sequence[int]) -> list[Tensor]:
        return list(torch.split(theirs.t() if self.transposed else theirs, list(sizes)))


@dataclasses.dataclass(frozen=True)
class Tied:
    """A copy of their weight `of`. If a file has both, they must be equal; if it has only the copy, that is used.

    It is not exported, unless our model has the part `when`: their code does not tie the two then.
    """

    theirs: str
    of: str
    when: str | None = None


@dataclasses.dataclass(frozen=True)
class Drop:
    """A tensor of theirs that is ignored; with `zero`, it must be zero."""

    theirs: str
    zero: bool = False


Row = Name | Join | Tied | Drop
Rows = tuple[Row, ...]


@dataclasses.dataclass(frozen=True)
class Link:
    """One weight of theirs and the weights of ours that it contains."""

    row: Name | Join
    ours: tuple[str, ...]
    theirs: str


def link_weights(rows: Rows, ours: Iterable[str]) -> list[Link]:
    """Find the weight of theirs for each of ours, by the first row that matches; one error lists all that have none."""
    names, out, lost = list(ours), dict[str, Link](), list[str]()
    there = set(names)
    for name in names:
        link = next(
            (found for row in rows if isinstance(row, Name | Join) and (found := _link(row, name, there))), None
        )
        if link is None:
            lost.append(name)
        else:
            out[link.theirs] = link
    if lost:
        raise SpecError(f"the target format has no weight for {', '.join(lost)}")
    return list(out.values())


def export_weights(rows: Rows, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return our weights under their names and in their layout."""
    out = _pack(rows, ours)
    for row in rows:
        if isinstance(row, Tied) and row.when is not None and f"{row.when}.weight" in ours and row.theirs not in out:
            out[row.theirs] = out[row.of].clone()
    return out


def compute_shapes(rows: Rows, ours: Shapes) -> dict[str, tuple[int, ...]]:
    """Compute the shapes of their weights from the shapes of ours; tied copies are left out."""
    try:
        made = _pack(rows, {name: torch.empty(shape, device="meta") for name, shape in ours.items()})
    except RuntimeError as error:  # impossible sizes
        raise SpecError(f"this model cannot be built: {str(error).partition(chr(10))[0]}") from None
    return {name: tuple(value.shape) for name, value in made.items()}


def find_faults(rows: Rows, ours: Shapes, theirs: Shapes) -> list[str]:
    """List every missing, unknown or wrongly shaped weight of theirs, from shapes alone."""
    wanted = compute_shapes(rows, ours)
    stands_in = _again(rows, theirs, wanted).values()
    out = [f"{name} is missing" for name in wanted if name not in theirs and name not in stands_in]
    for name, shape in theirs.items():
        if name in wanted and shape != wanted[name]:
            out.append(f"{name} should be {wanted[name]}, got {shape}")
        elif name not in wanted and not _is_known(rows, name):
            out.append(f"{name} is not part of this model")
    return out


def import_weights(rows: Rows, ours: Shapes, theirs: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """Convert their weights, in which `find_faults` found nothing, to ours; also list tied copies that differ."""
    tables = link_weights(rows, ours)
    wanted = {link.theirs for link in tables}
    again = _again(rows, theirs, wanted)
    wrong = [
        f"{name} should be the same as {of}"
        for name, of in again.items()
        if name not in wanted and of in theirs and not torch.equal(theirs[name], theirs[of])
    ]
    wrong += [
        f"{name} should be zero, because our model has no such weight"
        for name in theirs
        if _must_be_zero(rows, name) and theirs[name].any()
    ]
    stands_in = {of: theirs[name] for name, of in again.items()}
    out: dict[str, Tensor] = {}
    for link in tables:
        value = theirs[link.theirs] if link.theirs in theirs else stands_in[link.theirs]
        out.update(zip(link.ours, link.row.unpack(value, [ours[name][0] for name in link.ours]), strict=True))
    return out, wrong


def _pack(rows: Rows, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {link.theirs: link.row.pack([ours[name] for name in link.ours]) for link in link_weights(rows, ours)}


def _link(row: Name | Join, name: str, there: set[str]) -> Link | None:
    """Apply a row to a weight of ours, if it matches."""
    for part in row.parts:
        if found := _match(part, name):
            *layer, end = found.groups()
            if row.when is not None and f"{row.when.format(*layer)}.weight" not in there:
                return None
            return Link(row, tuple(p.format(*layer) + end for p in row.parts), row.theirs.format(*layer) + end)
    return None


def _match(template: str, name: str) -> re.Match[str] | None:
    return re.fullmatch(re.escape(template).replace(r"\{\}", r"(\d+)") + _ENDS, name)


def _again(rows: Rows, theirs: Iterable[str], wanted: Container[str]) -> dict[str, str]:
    """Map copies among their weights to the wanted weight that they repeat."""
    copies = {row.theirs: row.of for row in rows if isinstance(row, Tied) and row.of in wanted}
    return {name: copies[name] for name in theirs if name in copies}


def _is_known(rows: Rows, name: str) -> bool:
    return any(isinstance(row, Tied | Drop) and _match(row.theirs, name) for row in rows)


def _must_be_zero(rows: Rows, name: str) -> bool:
    return any(isinstance(row, Drop) and row.zero and _match(row.theirs, name) for row in rows)
