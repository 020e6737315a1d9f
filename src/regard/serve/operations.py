"""Operations of the inference process for a request.

Each operation takes a model and plain arguments, and returns plain data, or yields pieces before it does.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from regard.api.run_texts import SEARCH_OPTIONS, resolve_search
from regard.api.trained_model import Attention, Model
from regard.data.images import decode_image
from regard.errors import DataError, SpecError
from regard.serve.served_model import ServedModel
from regard.serve.stop_texts import cut_at_stops
from regard.serve.ticket import Ticket
from regard.spec import Plain
from regard.tasks.common.capabilities import (
    ReadsFiles,
    ReadsImages,
    StreamsText,
    explain_cut,
    find_too_long,
    supports,
)
from regard.tasks.common.lm_frame import LmFrame
from regard.tasks.common.task import Output, RunOptions

Arguments = Mapping[str, Any]
Pieces = Generator[str, None, Plain]
"""Pieces of text, and the result after them."""


def run(served: ServedModel, ticket: Ticket, given: Arguments) -> Plain:
    """Outputs for inputs: what `Model.run_all` gives."""
    model, notes = served.model, list[str]()
    inputs = read_inputs(model, given["inputs"])

    def call() -> list[list[Output]]:
        return model.run_all(
            inputs, to=given.get("to"), prefix=given.get("prefix"), glossary=given.get("glossary"), notify=notes.append,
            **given.get("options", {}),
        )  # fmt: skip

    found = call() if supports(model.task, StreamsText) else served.scheduler.run(call)
    outputs = [[each.plain() | ({"error": each.error} if each.error else {}) for each in row] for row in found]
    return {"outputs": outputs, "notes": notes, "usage": ticket.usage, "finish": ticket.finish}


def stream(served: ServedModel, ticket: Ticket, given: Arguments) -> Pieces:
    """The output for one text in pieces, up to a stop text; beam search, and a model of files, give it as one piece."""
    model, options = served.model, dict(given.get("options", {}))
    (text,) = given["inputs"]
    notes = list[str]()
    if _is_beam(model, options) or supports(model.task, ReadsFiles):
        found = run(served, ticket, given)
        outputs, notes = found["outputs"][0], found["notes"]
        if outputs and outputs[0].get("error"):
            raise DataError(outputs[0]["error"])
        pieces = iter([outputs[0]["text"]] if outputs else [])
    else:
        pieces = model.stream(text, to=given.get("to"), prefix=given.get("prefix"), notify=notes.append, **options)
    stopped = yield from cut_at_stops(pieces, given.get("stops", ()))
    return {"notes": notes, "usage": ticket.usage, "finish": "stop" if stopped else ticket.finish}


def chat(served: ServedModel, ticket: Ticket, given: Arguments) -> Pieces:
    """Stream like `stream`, for the answer in a conversation."""
    model, template, options = served.model, served.chat_template, dict(given.get("options", {}))
    if template is None or not isinstance(model.task, LmFrame):
        raise SpecError(f"{served.name} has no chat template; use /v1/completions")
    prompt = template.encode(given["messages"])
    first = RunOptions(first=options.pop("first", 0))
    search = resolve_search(model.search, options)
    pieces = model.task.stream_answer(model.engine, prompt, search, first, template.ends)
    stopped = yield from cut_at_stops(pieces, given.get("stops", ()))
    return {"notes": [], "usage": ticket.usage, "finish": "stop" if stopped else ticket.finish}


def _is_beam(model: Model, options: Mapping[str, object]) -> bool:
    search = resolve_search(model.search, {k: v for k, v in options.items() if k in SEARCH_OPTIONS})
    return search.beam > 1 and not search.sample


def embed(served: ServedModel, ticket: Ticket, given: Arguments) -> Plain:
    """A vector for each text."""
    model, texts = served.model, given["inputs"]
    vectors = served.scheduler.run(lambda: model.embed(texts).tolist())
    ticket.prompt_tokens += sum(map(len, model.tokenizer.encode_all(texts)))
    return {"vectors": vectors, "usage": ticket.usage}


def score(served: ServedModel, ticket: Ticket, given: Arguments) -> Plain:
    """log P(output | input) of each pair."""
    inputs, outputs = read_inputs(served.model, given["inputs"]), given["outputs"]
    options = {} if given.get("tag") is None else {"tag": given["tag"]}
    return {"scores": served.scheduler.run(lambda: served.model.score(inputs, outputs, **options))}  # type: ignore[arg-type]


def attention(served: ServedModel, ticket: Ticket, given: Arguments) -> Plain:
    """The attention weights of every layer and head for one text and its output."""
    model, (text,) = served.model, read_inputs(served.model, given["inputs"])
    notes, output = list[str](), given.get("output")
    if find_too_long(model.task, [text], model.own_options({})):
        notes.append(f"the text {explain_cut(model.task, text)}")
    if output is None:
        options = {"n_best": 1, "long": "cut"}  # the weights are those of what the model reads at once
        found = run(served, ticket, {"inputs": given["inputs"], "options": options})["outputs"][0]
        if found and found[0].get("error"):
            raise DataError(found[0]["error"])
        output = found[0]["text"] if found else ""

    def look() -> Attention:
        read = model.forward_pass(text, output)  # nothing is computed yet
        served.limit.check_answer(read.list_sizes(model.net))
        return Attention(*read.attention(model.net))

    seen = served.scheduler.run(look)
    weights = {name: _round(weights.tolist()) for name, weights in seen.weights.items()}
    return {"output": output, "source": seen.source, "target": seen.target, "weights": weights, "notes": notes}


def describe(served: ServedModel, ticket: Ticket, given: Arguments) -> Plain:
    """The model's card and its tree."""
    from regard.model.tree import tree

    return served.describe() | {"card": served.model.card, "tree": tree(served.model.engine.nets[0], 32)}


ANSWERS: dict[str, Callable[[ServedModel, Ticket, Arguments], Plain]] = {
    "run": run, "embed": embed, "score": score, "attention": attention, "describe": describe,
}  # fmt: skip
STREAMS: dict[str, Callable[[ServedModel, Ticket, Arguments], Pieces]] = {"stream": stream, "chat": chat}


def read_inputs(model: Model, given: Sequence[str]) -> list[object]:
    """Inputs as the task takes them. A model of files is given their bytes: what a client writes is never a path."""
    if supports(model.task, ReadsFiles):
        return [model.task.open_input(_decode_base64(each), f"file {i}") for i, each in enumerate(given, 1)]
    if not supports(model.task, ReadsImages):
        return list(given)
    channels = len(model.task.mean)
    return [
        decode_image(_decode_base64(each), f"image {i}", channels=channels, side=model.task.side)
        for i, each in enumerate(given, 1)
    ]


def _decode_base64(text: str) -> bytes:
    """The bytes of a file, from base64 or a data URL."""
    try:
        return base64.b64decode(text.rpartition(",")[2] if text.startswith("data:") else text, validate=True)
    except (binascii.Error, ValueError):
        raise DataError("a file, such as an image, should be in base64, or a data: URL") from None


def _round(weights: object) -> object:
    """Four digits are more than a picture shows."""
    return [_round(each) for each in weights] if isinstance(weights, list) else round(float(weights), 4)  # type: ignore[arg-type]
