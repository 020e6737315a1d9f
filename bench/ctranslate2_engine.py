"""CTranslate2 as an engine: the peer of the benchmarks, and an oracle in tests.

It runs encoder-decoders that it knows. The weights go into its own format, in a temporary folder that is
gone once they are loaded. It searches by rules of its own: it stops and normalizes (by |Y|^alpha) differently, banned tokens do
not count in its probabilities, and it has no repetition guard. Outputs may therefore differ from those of torch.
"""

from __future__ import annotations

import copy
import importlib.util
import math
import tempfile
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.decode import Request
from regard.decode.decode_request import Hypothesis, SpecialTokens, limit_output
from regard.decode.search import Search
from regard.engine.native_engine import ROOM
from regard.engine.write_plan import describe_model
from regard.errors import SpecError
from regard.machine import machine
from regard.model.net import Net
from regard.nn.blocks.embedding import Embedding, TokenEmbedding
from regard.nn.positions.position import LearnedPosition, SinusoidalPosition, sinusoid
from regard.spec import Plain

ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH", "tanh": "Tanh"}
BATCH = 32
POSITIONS = 4096
"""Sinusoids that are written out, where the model has no limit of its own."""


def find_refusal(net: Net, device: str = "cpu") -> str | None:
    """Why CTranslate2 cannot run a model; None if it can."""
    if importlib.util.find_spec("ctranslate2") is None:
        return "it is not installed; pip install ctranslate2"
    if device != "cpu":
        return f"it is used on the CPU only, not on {device}"
    try:
        plan = describe_model(net)
    except SpecError as error:
        return str(error).replace("the native engine", "CTranslate2")
    if plan["encoder"] is None:
        return "only encoder-decoders are converted for it"
    parts = [part for side in ("encoder", "decoder") for block in plan[side]["blocks"] for part in block]
    mixes = [part for part in parts if part["role"] != "feed"]
    feeds = [part for part in parts if part["role"] == "feed"]
    wirings = {plan[side]["wiring"] for side in ("encoder", "decoder")}
    if wirings - {"post", "pre"} or len(wirings) > 1:
        return f"it has no wiring {', '.join(sorted(wirings))}"
    if any(len(block) != n for side, n in (("encoder", 2), ("decoder", 3)) for block in plan[side]["blocks"]):
        return "its layers always have attention and a feed-forward part"
    if plan["positions"] or any(mix.get("window") for mix in mixes):
        return "positions in attention and windows are not converted for it"
    width = plan["width"]
    if any(m["kv_heads"] != m["heads"] or m["heads"] * m["head_width"] != width or m["q_norm"] for m in mixes):
        return "grouped heads, heads of another width and normalized queries are not converted for it"
    if len({m["heads"] for m in mixes}) > 1 or any(
        not math.isclose(m["scale"], m["head_width"] ** -0.5) for m in mixes
    ):
        return "its heads are equal in all layers and scaled by 1/√d_k"
    embeddings = [plan[side] for side in ("embed", "source")]
    norms = {(n["kind"], n["eps"]) for part in (*parts, *embeddings) if (n := part["norm"])}
    if {kind for kind, _ in norms} != {"layer"} or len(norms) > 1:
        return "its norms are layer norms with the same eps everywhere"
    if len({embedding["norm"] is None for embedding in embeddings}) > 1:
        return "either both of its embeddings have a norm or neither has"
    if any(embedding["scale"] != 1 and not math.isclose(embedding["scale"], width**0.5) for embedding in embeddings):
        return "it scales embeddings by √d_model or not at all"
    if len({feed["activation"] for feed in feeds}) > 1 or any(feed["gated"] for feed in feeds):
        return "gated feed-forward layers are not converted for it"
    if plan["head"]["scale"] != 1 or any(embedding["segment"] for embedding in embeddings):
        return "a scaled head and segments are not converted for it"
    if any(embedding["zero"] is not None for embedding in embeddings):
        return "a token whose vector is always zero (embed.zero) is not converted for it"
    return None


class CTranslate2Engine:
    """A model that CTranslate2 runs."""

    name = "ctranslate2"

    def __init__(
        self,
        net: Net,
        *,
        precision: Literal["float32", "int8"] = "float32",
        threads: int | None = None,
    ) -> None:
        self._spec, self._precision, self.nets = convert(net), precision, [net]
        self._threads = machine().cores if threads is None else threads
        self._open: tuple[SpecialTokens, Any] | None = None
        self.length, self.room, self._vocab = net.spec.length, net.spec.room, net.spec.embed.vocab

    def _translator(self, special: SpecialTokens) -> Any:
        """The loaded model, which knows its start and end marks from when it is loaded."""
        import ctranslate2

        if self._open is None or self._open[0] != special:
            spec = copy.deepcopy(self._spec)
            spec.config.bos_token = spec.config.decoder_start_token = name_token(special.bos)
            spec.config.eos_token, spec.config.unk_token = name_token(special.eos), name_token(special.pad)
            with tempfile.TemporaryDirectory() as folder:
                spec.validate()
                spec.optimize(quantization=self._precision)
                spec.save(folder)
                found = ctranslate2.Translator(
                    folder, inter_threads=self._threads, intra_threads=1, compute_type=self._precision, device="cpu"
                )
            self._open = special, found
        return self._open[1]

    def decode(self, request: Request) -> list[list[Hypothesis]]:
        """The `n_best` hypotheses of each source; no sampling, terms or prefixes."""
        search, special, limits = request.search, request.special, self.limit_outputs(request)
        if search.sample or request.has_terms or request.constraints.prefixes is not None:
            raise SpecError("CTranslate2 is measured with greedy and beam search alone, without terms and prefixes")
        banned = special.list_unwritten(self._vocab) | ({*request.constraints.banned} - {special.eos})
        out: list[list[Hypothesis]] = [[] for _ in request.sources]
        for limit in sorted(set(limits)):  # a call has one limit
            group = [i for i, each in enumerate(limits) if each == limit]
            results = self._translator(special).translate_batch(
                [[*map(name_token, request.sources[i])] for i in group],
                beam_size=search.beam, num_hypotheses=search.n_best, length_penalty=_strength(search),
                max_decoding_length=limit, suppress_sequences=[[name_token(token)] for token in sorted(banned)],
                return_scores=True, end_token=name_token(special.eos), max_batch_size=BATCH,
            )  # fmt: skip
            for i, found in zip(group, results, strict=True):
                pairs = zip(found.hypotheses, found.scores, strict=True)
                out[i] = [_read(tokens, score, search, special, limit) for tokens, score in pairs]
        return out

    def limit_outputs(self, request: Request) -> list[int]:
        """The maximum number of tokens of each output."""
        return [limit_output(request.search, len(source), True, self.room or ROOM) for source in request.sources]

    def score(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], special: SpecialTokens
    ) -> list[list[float]]:
        rows = [[*map(name_token, source)] for source in sources]
        wanted = [[*map(name_token, target[:-1])] for target in targets]
        if any(target[-1] != special.eos for target in targets):
            raise SpecError("CTranslate2 scores whole outputs; each target should end with the end mark")
        return [[*map(float, found.log_probs)] for found in self._translator(special).score_batch(rows, wanted)]


def _strength(search: Search) -> float:
    return 0.0 if search.length_penalty == "none" else search.alpha


def _read(tokens: Sequence[str], score: float, search: Search, special: SpecialTokens, limit: int) -> Hypothesis:
    """A hypothesis with our score, from one with a score of theirs."""
    ids = tuple(int(token[1:]) for token in tokens)
    length = min(len(ids) + 1, limit)
    log_prob = score * math.pow(length, _strength(search))
    return Hypothesis(tuple(i for i in ids if i != special.eos), log_prob, log_prob / search.divisor(length))


def name_token(i: int) -> str:
    """CTranslate2's vocabulary has words; ours are numbers."""
    return f"t{i}"


def convert(net: Net) -> Any:
    """A net in CTranslate2's own description of a Transformer."""
    from ctranslate2.specs import common_spec, transformer_spec

    plan, weights = describe_model(net), dict(net.state_dict())
    sides = plan["encoder"], plan["decoder"]
    first = sides[0]["blocks"][0]
    spec = transformer_spec.TransformerSpec.from_config(
        tuple(len(side["blocks"]) for side in sides), first[0]["heads"], pre_norm=sides[0]["wiring"] == "pre",
        activation=getattr(common_spec.Activation, ACTIVATIONS[first[1]["activation"]]),
        layernorm_embedding=plan["embed"]["norm"] is not None,
    )  # fmt: skip
    into = _Copier(weights)
    for side, part, embed in ((spec.encoder, sides[0], "source"), (spec.decoder, sides[1], "embed")):
        embeddings = side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings
        embeddings.weight = into.tensor(plan[embed]["table"])
        side.scale_embeddings = False
        if plan[embed]["scale"] != 1:
            embeddings.multiply_by_sqrt_depth = True
            side.scale_embeddings = True
        own = net.embed if embed == "embed" or net.source is None else net.source
        side.position_encodings.encodings = _positions(own, net)
        if plan[embed]["norm"] is not None:
            into.norm(side.layernorm_embedding, plan[embed]["norm"])
        if part["norm"] is not None:
            into.norm(side.layer_norm, part["norm"])
        for layer, block in zip(side.layer, part["blocks"], strict=True):
            into.attention(layer.self_attention, block[0], cross=False)
            if len(block) == 3:
                into.attention(layer.attention, block[1], cross=True)
            into.feed(layer.ffn, block[-1])
    spec.decoder.projection.weight = into.tensor(plan["head"]["table"])
    if plan["head"]["bias"] is not None:
        spec.decoder.projection.bias = into.tensor(plan["head"]["bias"])
    spec.register_source_vocabulary([*map(name_token, range(plan["source_vocab"]))])
    spec.register_target_vocabulary([*map(name_token, range(plan["vocab"]))])
    spec.config.layer_norm_epsilon = first[0]["norm"]["eps"]
    spec.config.add_source_eos = spec.config.add_source_bos = False
    return spec


class _Copier:
    """Copies weights by name into the parts of a specification."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        self.weights = weights

    def tensor(self, *names: str) -> NDArray[np.float32]:
        found: NDArray[np.float32] = torch.cat([self.weights[name].detach().float() for name in names]).numpy()
        return found

    def linear(self, to: Any, part: Plain, *names: str) -> None:
        to.weight = self.tensor(*(part[name] for name in names))
        if part[f"{names[0]}_bias"] is not None:
            to.bias = self.tensor(*(part[f"{name}_bias"] for name in names))

    def norm(self, to: Any, norm: Plain) -> None:
        to.gamma = self.tensor(norm["weight"])
        to.beta = self.tensor(norm["bias"]) if norm["bias"] is not None else np.zeros_like(to.gamma)

    def attention(self, to: Any, part: Plain, *, cross: bool) -> None:
        self.norm(to.layer_norm, part["norm"])
        for layer, names in zip(to.linear, (("q",), ("k", "v")) if cross else (("q", "k", "v"),), strict=False):
            self.linear(layer, part, *names)
        self.linear(to.linear[-1], part, "out")

    def feed(self, to: Any, part: Plain) -> None:
        self.norm(to.layer_norm, part["norm"])
        self.linear(to.linear_0, part, "up")
        self.linear(to.linear_1, part, "down")


def _positions(embedding: Embedding, net: Net) -> NDArray[np.float32]:
    """A row per position, which CTranslate2 adds to the stream."""
    assert isinstance(embedding, TokenEmbedding)
    position = embedding.position
    width, room = net.spec.width, net.spec.room or max(net.spec.length, POSITIONS)
    if isinstance(position, LearnedPosition):
        found: NDArray[np.float32] = position.weight.detach()[position.shift :].float().numpy()
        return found
    if isinstance(position, SinusoidalPosition):
        waves: NDArray[np.float32] = sinusoid(torch.arange(room), width, position.layout, torch.float32).numpy()
        return waves
    return np.zeros((room, width), np.float32)
