"""Decoding speed beside the peers: 20 tokens a sentence, encoder included. `python -m bench.decode tiny --rounds 3`.

A case is a batch and a beam. Every contender may use the same cores; one that has several ways to share them out (threads in
one stream, or streams of one thread) gets each case in the way that is fastest for it, found out before the race.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Literal

import torch

from bench import corpus as made
from bench.corpus import VOCAB
from bench.entry import Mode, choose, parse
from bench.peers import SHAPES, marian_net, shape_of
from bench.race import Answers, best_and_median, divide, race, serve
from bench.results import write
from regard.report.table import Table

WRITTEN = 20
BOS, EOS, PAD = 1, 2, 0
CASES = tuple(f"{batch}x{beam}" for beam in (1, 5) for batch in (1, 32, 128))
ENOUGH = 0.4
"""Seconds: a turn decodes its batch as often as fits, and at least once."""

Rows = Sequence[Sequence[int]]
Decode = Callable[[Rows, int], None]
"""(sources, beam): write WRITTEN tokens for each."""


def regard(shape: dict[str, int]) -> list[Decode]:
    """Ours, as it comes."""
    from regard.decode import Request, Search, SpecialTokens, generate
    from regard.families import transformer

    net = transformer.spec(**shape, vocab=VOCAB, dropout=0.0).build(seed=1).eval()  # type: ignore[arg-type]

    def decode(rows: Rows, beam: int) -> None:
        found = generate([net], Request(rows, Search(beam=beam, max_length=WRITTEN), SpecialTokens(BOS, NEVER, PAD)))
        assert all(len(each[0].tokens) == WRITTEN for each in found)

    return [decode]


def native(shape: dict[str, int], precision: Literal["float32", "int8"]) -> list[Decode]:
    """Our native engine: it divides sentences among workers, or shares the work of one, by itself."""
    from regard.decode import Request, Search, SpecialTokens
    from regard.engine.choose_engine import open_native
    from regard.families import transformer

    net = transformer.spec(**shape, vocab=VOCAB, dropout=0.0).build(seed=1).eval()  # type: ignore[arg-type]
    engine = open_native(net, precision, torch.get_num_threads())

    def decode(rows: Rows, beam: int) -> None:
        found = engine.decode(Request(rows, Search(beam=beam, max_length=WRITTEN), SpecialTokens(BOS, NEVER, PAD)))
        assert all(len(each[0].tokens) == WRITTEN for each in found)

    return [decode]


NEVER = -1
"""An end mark that no model writes."""


def marian(shape: dict[str, int]) -> list[Decode]:
    """transformers' generate, with one thread and with all."""
    net = marian_net(shape).eval()

    def with_threads(threads: int) -> Decode:
        def decode(rows: Rows, beam: int) -> None:
            torch.set_num_threads(threads)
            n = max(map(len, rows))
            ids = torch.tensor([[*row, *[PAD] * (n - len(row))] for row in rows])
            net.generate(
                ids, attention_mask=(ids != PAD).long(), num_beams=beam, do_sample=False, min_new_tokens=WRITTEN,
                max_new_tokens=WRITTEN, max_length=None,
            )  # fmt: skip

        return decode

    return [with_threads(t) for t in sorted({1, torch.get_num_threads()})]


def ctranslate(shape: dict[str, int], kind: str) -> list[Decode]:
    """CTranslate2 with the weights of a Marian model: all threads in one stream, and streams of one thread."""
    import ctranslate2
    from ctranslate2.converters.transformers import MarianMTLoader

    loader = MarianMTLoader()
    spec = loader.get_model_spec(marian_net(shape).eval())
    words = ["<pad>", "<s>", "</s>", *(f"w{i}" for i in range(3, VOCAB - 1))]  # the loader drops the last row
    loader.set_vocabulary(spec, words)
    spec.config.eos_token, spec.config.decoder_start_token, spec.config.unk_token = "</s>", "<s>", "<pad>"
    spec.validate()
    spec.optimize(quantization=kind)
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        threads = torch.get_num_threads()
        streams = [(1, threads)] if threads == 1 else [(1, threads), (threads, 1)]
        models = [
            ctranslate2.Translator(folder, inter_threads=inter, intra_threads=intra, compute_type=kind)
            for inter, intra in streams
        ]

    def through(model: ctranslate2.Translator, streams: int) -> Decode:
        def decode(rows: Rows, beam: int) -> None:
            model.translate_batch(
                [[words[i % len(words)] for i in row] for row in rows], beam_size=beam, min_decoding_length=WRITTEN,
                max_decoding_length=WRITTEN, max_batch_size=-(-len(rows) // streams),
            )  # fmt: skip

        return decode

    return [through(model, inter) for model, (inter, _) in zip(models, streams, strict=True)]


CONTENDERS: dict[str, Callable[[dict[str, int]], list[Decode]]] = {
    "regard": regard,
    "regard native float32": lambda shape: native(shape, "float32"),
    "regard native int8": lambda shape: native(shape, "int8"),
    "transformers": marian,
    "ctranslate2 float32": lambda shape: ctranslate(shape, "float32"),
    "ctranslate2 int8": lambda shape: ctranslate(shape, "int8"),
}


def work(name: str, shape: str) -> None:
    """One contender: for each case choose a way, then decode."""
    ways = CONTENDERS[name](shape_of(shape))
    sources, _ = made.corpus(pairs=256)
    rows = [[*map(int, sources[i]), EOS] for i in range(len(sources))]
    chosen: dict[str, Decode] = {}

    def once(decode: Decode, case: str) -> float:
        batch, beam = map(int, case.split("x"))
        began = time.perf_counter()
        decode(rows[:batch], beam)
        return time.perf_counter() - began

    def turn(case: str) -> dict[str, float]:
        if case not in chosen:
            chosen[case] = min(ways, key=lambda way: (once(way, case), once(way, case))[1])
        seconds, times = once(chosen[case], case), 1
        while not Mode.smoke and seconds * (times + 1) / times < ENOUGH:
            seconds, times = seconds + once(chosen[case], case), times + 1
        tokens = int(case.split("x")[0]) * WRITTEN * times
        return {"tokens_per_s": tokens / seconds, "way": ways.index(chosen[case])}

    serve(turn)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("shape", choices=SHAPES)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--case", action="append", help="batch x beam, as in 32x5; may be repeated")
    said = parse(arguments, contenders=CONTENDERS)
    if said.worker:
        work(said.worker, said.shape)
        return
    cases = said.case or ([CASES[0], "2x5"] if said.smoke else list(CASES))
    words, rounds = (["--smoke"], 1) if said.smoke else ([], said.rounds)
    names = choose(said, CONTENDERS)
    found = race({n: ["bench.decode", said.shape, "--worker", n, *words] for n in names}, rounds, cases)
    table, figures = summary(found, cases)
    print(table.markdown())
    if not said.only and said.case is None:
        path = write(
            f"bench-decode-{said.shape}", title=f"Decoding speed, {said.shape}", figures=figures,
            threads=torch.get_num_threads(),
        )  # fmt: skip
        print(path, file=sys.stderr)


def summary(found: dict[str, Answers], cases: Sequence[str]) -> tuple[Table, dict[str, dict[str, float]]]:
    """A row a case and contender: best and median tokens a second, and how many times faster we are: our native int8 than
    an int8, our native float32 than the others."""
    rows = []
    for case in cases:
        speeds = {
            name: best_and_median([a for a in answers if a["case"] == case], "tokens_per_s")
            for name, answers in found.items()
        }
        for name, (best, median) in speeds.items():
            kind = "regard native int8" if name.endswith("int8") else "regard native float32"
            ours = speeds[kind][0] if kind in speeds else None
            peak = max(a["peak_mb"] for a in found[name])
            rows.append((case, name, round(best), round(median), divide(ours, best), round(peak)))
    head = ("batch x beam", "contender", "best tokens/s", "median", "regard is faster by", "peak MB of all cases")
    return Table(head, tuple(rows)), {f"{row[0]} {row[1]}": dict(zip(head[2:], row[2:], strict=True)) for row in rows}


if __name__ == "__main__":
    main()
