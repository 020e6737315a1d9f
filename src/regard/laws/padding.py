"""Padding: padded positions have no effect."""

from __future__ import annotations

import dataclasses

import torch
from torch import nn

from regard.laws.case import (
    CLOSE_GRADIENTS,
    LENGTH,
    Case,
    add_noise,
    body_of,
    make_ids,
    read_out,
    require,
    require_close,
    require_finite,
    run_rows_alone,
)
from regard.nn.blocks.body import StackBody
from regard.nn.core.context import Context
from regard.nn.core.coords import Coords

LENGTHS = [LENGTH, 5, 1]
ADVICE = "mask keys with `ctx.at.kept`"


def check_noise(case: Case, left: bool) -> None:
    """Large values at padded positions change no output and no gradient."""
    net, at = case.net(), Coords.lengths(LENGTHS, left=left)
    body = body_of(net)
    x = net.embed(make_ids(3, LENGTH), at).detach()
    results = []
    for given in (x, add_noise(x, at)):
        given.requires_grad_()
        out, _ = body(given, Context(at))
        kept = out[at.kept]
        grads = torch.autograd.grad(kept.sin().sum(), [given, *body.parameters()], materialize_grads=True)
        results.append((kept, grads[0][at.kept], *grads[1:]))
        require((grads[0][~at.kept] == 0).all(), f"padded positions receive a gradient; {ADVICE}")
    for quiet, loud in zip(*results, strict=True):
        require_close(loud, quiet, f"noise at padded positions changes the result; {ADVICE}", CLOSE_GRADIENTS)


def check_row_alone(case: Case, left: bool) -> None:
    """A row in a padded batch gives the same output as alone."""
    net, tokens = case.net(), make_ids(3, LENGTH)
    spans = [slice(LENGTH - n, LENGTH) if left else slice(n) for n in LENGTHS]
    with torch.no_grad():
        together = net(tokens, Coords.lengths(LENGTHS, left=left))
        alone = run_rows_alone(net, [row[span] for row, span in zip(tokens, spans, strict=True)])
    for row, span, wanted in zip(together, spans, alone, strict=True):
        require_close(row[span], wanted, f"a row in a padded batch differs from the row alone; {ADVICE}")


def check_nothing_to_see(case: Case, left: bool) -> None:
    """A query without a key to attend to gives zeros, and all gradients are finite."""
    net, at = case.net(), Coords.lengths([LENGTH, 3, 0], left=left)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
    body = body_of(net)
    if isinstance(body, StackBody):
        mixer: nn.Module = body.blocks[0].mix  # type: ignore[assignment]
        width = case.spec.embed.leaves(case.spec.width)
        x = add_noise(torch.randn(3, LENGTH, width, dtype=torch.double), at, 10.0).requires_grad_()
        out, _ = mixer(x, Context(at, position=body.position, shared=dict(body.shared.items())))
        require((out[2] == 0).all(), "a row without tokens should give zeros (biases are zero here)")
        if left and case.spec.decoder is not None:
            require((out[1, : LENGTH - 3] == 0).all(), "padding before the first token should give zeros")
        grads = torch.autograd.grad(out.square().sum(), [x, *mixer.parameters()], materialize_grads=True)
        require_finite(grads, "a row without tokens gives gradients that are not finite")
    whole = net(make_ids(3, LENGTH), at)
    require(whole.isfinite().all(), "a row without tokens gives outputs that are not finite")
    grads = torch.autograd.grad(whole.sin().sum(), list(net.parameters()), materialize_grads=True)
    require_finite(grads, "a row without tokens gives gradients that are not finite")


def check_memory_noise(case: Case, left: bool) -> None:
    """Large values at padded positions of a memory change nothing."""
    net, source, tokens = case.net(), Coords.lengths([7, 2, 4], left=left), make_ids(3, 5, seed=1)
    memory = net.encode(make_ids(3, 7), source)
    keys = add_noise(memory.keys, source)
    values = keys if memory.values is memory.keys else add_noise(memory.values, source)
    target = Coords.lengths([5, 3, 1])
    outs = [net.decode(tokens, target, m)[0] for m in (memory, dataclasses.replace(memory, keys=keys, values=values))]
    words = "noise at padded positions of the memory changes the result; mask keys with `ctx.memory.at.kept`"
    require_close(outs[1][target.kept], outs[0][target.kept], words)


def check_pair_alone(case: Case) -> None:
    """A pair in a padded batch gives the same output as alone."""
    net, source, target, lengths = case.net(), make_ids(3, 7), make_ids(3, 5, seed=1), [(7, 5), (2, 3), (4, 1)]
    with torch.no_grad():
        at = Coords.lengths([m for m, _ in lengths]), Coords.lengths([n for _, n in lengths])
        together = net(target, at[1], (source, at[0]))
        for row, (m, n) in enumerate(lengths):
            alone = net(target[row : row + 1, :n], Coords.span(n), (source[row : row + 1, :m], Coords.span(m)))
            got, wanted = read_out(net, together[row, :n]), read_out(net, alone[0])
            require_close(got, wanted, "a pair in a padded batch differs from the pair alone")


def check_empty_source(case: Case) -> None:
    """An empty source is ignored, and all gradients are finite."""
    net = case.net()
    out = net(make_ids(2, 4), Coords.span(4), (make_ids(2, 3), Coords.lengths([3, 0])))
    grads = torch.autograd.grad(out.sin().sum(), list(net.parameters()), materialize_grads=True)
    require_finite(grads, "an empty source gives gradients that are not finite")
    tokens, other = make_ids(2, 3), make_ids(2, 3, seed=5)
    out, same = (net(make_ids(2, 4), Coords.span(4), (t, Coords.lengths([3, 0]))) for t in (tokens, other))
    require_close(same[1], out[1], "the tokens of an empty source change the result")
