"""Packing: documents packed in a row equal separate rows."""

from __future__ import annotations

import torch

from regard.laws.case import Case, decode_in_chunks, make_ids, read_out, require_close, run_rows_alone
from regard.nn.core.coords import Coords

AT = Coords.documents([[3, 1, 5], [4, 2]])
SPANS = [(0, 0, 3), (0, 3, 4), (0, 4, 9), (1, 0, 4), (1, 4, 6)]
ADVICE = "keep documents apart by `ctx.at.doc`, or declare Can(packed=False)"


def check_separate(case: Case) -> None:
    """Packed documents give the same output as in separate rows."""
    net, tokens = case.net(), make_ids(2, AT.n)
    with torch.no_grad():
        packed = net(tokens, AT)
        alone = run_rows_alone(net, [tokens[row, a:b] for row, a, b in SPANS])
    for (row, a, b), wanted in zip(SPANS, alone, strict=True):
        require_close(packed[row, a:b], wanted, f"a packed document differs from the document alone; {ADVICE}")


def check_chunks(case: Case) -> None:
    """Packed documents can be read in chunks."""
    net, tokens = case.net(), make_ids(2, AT.n)
    with torch.no_grad():
        whole = net(tokens, AT)
        for cuts in (list(range(1, AT.n)), [2, 7]):
            chunks, _ = decode_in_chunks(net, tokens, AT, net.start(2, 3), cuts)
            require_close(chunks[AT.kept], whole[AT.kept], "packed documents in chunks differ from the whole pass")


def check_pairs(case: Case) -> None:
    """Document i of a target attends to document i of its source."""
    net, source_at = case.net(), Coords.documents([[2, 4, 1], [1, 3]])
    source, target = make_ids(2, source_at.n), make_ids(2, AT.n, seed=1)
    sources = [(0, 0, 2), (0, 2, 6), (0, 6, 7), (1, 0, 1), (1, 1, 4)]
    with torch.no_grad():
        packed = net(target, AT, (source, source_at))
        for (row, a, b), (_, c, d) in zip(SPANS, sources, strict=True):
            alone = net(
                target[row : row + 1, a:b], Coords.span(b - a), (source[row : row + 1, c:d], Coords.span(d - c))
            )
            got, wanted = read_out(net, packed[row, a:b]), read_out(net, alone[0])
            require_close(got, wanted, f"a packed pair differs from the pair alone; {ADVICE}")
