"""Inspection: a tape records and replaces exactly."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.errors import SpecError
from regard.laws.case import CLOSE_GRADIENTS, LENGTH, Case, body_of, make_ids, require, require_close
from regard.model.net import Net
from regard.nn.blocks.body import StackBody
from regard.nn.core.context import Replacement, Tape
from regard.nn.core.coords import Coords

PLACES = {
    "no padding": Coords.span(LENGTH),
    "right": Coords.lengths([LENGTH, 5]),
    "left": Coords.lengths([LENGTH, 5], left=True),
}


def run_with_gradients(net: Net, at: Coords, both: bool, tape: Tape | None) -> list[Tensor]:
    """Return the output and the gradient of every parameter."""
    source = (make_ids(2, LENGTH, seed=1), at) if both else None
    out = net(make_ids(2, LENGTH), at, source, tape)
    return [out, *torch.autograd.grad(out.sin().sum(), list(net.parameters()), materialize_grads=True)]


def check_tape(case: Case, place: str = "right") -> None:
    """Output and gradients are the same with a tape; recorded weights sum to one."""
    net, at, both, tape = case.net().train(), PLACES[place], case.shape == "both", Tape("*")
    for seen, unseen in zip(
        run_with_gradients(net, at, both, tape), run_with_gradients(net, at, both, None), strict=True
    ):
        require_close(seen, unseen, "recording with a tape changes the result", CLOSE_GRADIENTS)
    if not case.part.can.weights:
        return
    sides = [(side, body) for side in ("encoder", "decoder") if (body := getattr(case.spec, side)) is not None]
    places = {path for side, body in sides for path in body.weight_paths(side)}
    wanted = {f"{path}.weights" for path in places}
    advice = "call `ctx.tape.keep(f'{self.site.path}.weights', weights)`, or declare Can(weights=False)"
    require(wanted <= set(tape.kept), f"no attention weights were recorded; {advice}")
    require(places <= set(tape.plans), "no plan was recorded; call `ctx.tape.plan(self.site.path, reason)`")
    for name in wanted:
        weights = tape.kept[name].transpose(1, 2)[at.kept.expand(2, -1)]
        ones = torch.ones(weights.shape[:2], dtype=torch.double)
        require_close(weights.sum(-1), ones, "attention weights do not sum to one", {"rtol": 1e-7, "atol": 1e-7})
        require(not weights.requires_grad, "recorded weights carry gradients")


def check_rows(case: Case, place: str = "no padding") -> None:
    """Chosen rows and heads of the weights are those of the whole, and the result is the same."""
    net, at, both = case.net().eval(), PLACES[place], case.shape == "both"
    source = (make_ids(2, LENGTH, seed=1), at) if both else None
    whole = Tape("*.weights")
    with torch.no_grad():
        plain = net(make_ids(2, LENGTH), at, source, whole)
        head = min((weights.shape[1] for weights in whole.kept.values()), default=2) > 1  # recurrent decoders have one
        some = Tape("*.weights", rows=[LENGTH - 1, 2], heads=[int(head)])
        seen = net(make_ids(2, LENGTH), at, source, some)
    require_close(seen, plain, "recording rows changes the result", CLOSE_GRADIENTS)
    require(set(whole.kept) == set(some.kept), "other weights are recorded when rows are chosen")
    for name, weights in whole.kept.items():
        wanted, found = weights[:, [int(head)]][:, :, [LENGTH - 1, 2]], some.kept[name]
        require(found.shape == wanted.shape, f"the chosen rows of {name} have shape {tuple(found.shape)}")
        inside = at.kept.expand(2, -1)[:, [LENGTH - 1, 2]][:, None, :, None]
        require_close(
            found * inside, wanted * inside, f"the chosen rows of {name} are not those of the whole", CLOSE_GRADIENTS
        )
    for one, row in ((99, 0), (0, 99)) if whole.kept else ():
        try:
            with torch.no_grad():
                net(make_ids(2, LENGTH), at, source, Tape("*.weights", heads=[one], rows=[row]))
        except SpecError:
            continue
        require(False, "a head or row that does not exist is not refused; use `ctx.tape.choose`")


def check_replacement(case: Case) -> None:
    """Replacing a tensor by itself changes nothing; replacing a head or a sublayer by zeros takes exactly it away."""
    net, at, both = case.net().eval(), PLACES["right"], case.shape == "both"
    source = (make_ids(2, LENGTH, seed=1), at) if both else None

    def run(**replace: Replacement) -> tuple[Tensor, Tape]:
        with torch.no_grad(), net.watch(Tape("*", replace={f"*{name}": f for name, f in replace.items()})) as tape:
            return net(make_ids(2, LENGTH), at, source), tape

    plain, tape = run()
    side = "decoder" if case.spec.decoder else "encoder"
    body = body_of(net)
    last_block = len(body.blocks) - 1 if isinstance(body, StackBody) else 0
    part = f"{side}.blocks.{last_block}.mix" if isinstance(body, StackBody) else side
    wanted = {f"{side}.embed", part, side}
    if isinstance(body, StackBody) and isinstance(body.wiring.enter(plain), Tensor):
        wanted.add(f"{side}.blocks.{last_block}")
    require(wanted <= set(tape.kept), f"places are missing on the tape: {sorted(wanted - set(tape.kept))}")
    same, _ = run(
        **{place: torch.clone for place in tape.kept if not place.endswith((".weights", ".slots", ".buckets"))}
    )
    require_close(same, plain, "replacing tensors by themselves changes the result", CLOSE_GRADIENTS)
    gone, after = run(**{part: torch.zeros_like})
    require(not bool(after.kept[part].any()), f"{part} was not replaced")
    require(not torch.equal(gone, plain), f"replacing {part} changes nothing")
    if f"{part}.heads" in tape.kept:
        last = max(int(name.rpartition(".")[2]) for name in tape.kept if name.startswith(f"{part}.head."))
        _, after = run(**{f"{part}.head.{last}": torch.zeros_like})
        whole, width = after.kept[f"{part}.heads"], after.kept[f"{part}.head.{last}"].shape[-1]
        out = getattr(getattr(net, side).blocks[last_block].mix, "out")  # noqa: B009
        left = out(torch.cat([whole[..., : last * width], torch.zeros_like(whole[..., last * width :])], -1))
        require_close(after.kept[part], left, f"head {last} of {part} was not taken away exactly", CLOSE_GRADIENTS)
