"""Routes of our own: everything a model can do.

`/run` is `Model.run_all`: what the command line's client and the page use. `/fill`, `/classify`, `/tag`, `/answer` and `/image`
are the same for models of one use.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from regard.serve.api_error import invalid
from regard.serve.call import Call, EventStream, Route
from regard.serve.request_body import Texts
from regard.spec import Plain

GENERATES = ("translate", "complete", "fill", "classify", "tag", "answer", "image", "recommend", "continue")
"""Uses of models that give outputs."""


class OwnBody(BaseModel):
    model_config = ConfigDict(extra="forbid")
    model: str | None = None
    """Name of the model; by default the first that can do this."""


class RunOptionsBody(BaseModel):
    """Options of a run; what is left out is as in the model's own settings."""

    model_config = ConfigDict(extra="forbid")
    beam: Annotated[int, Field(ge=1)] | None = None
    n_best: Annotated[int, Field(ge=1)] | None = None
    alpha: Annotated[float, Field(ge=-10, le=10)] | None = None
    max_length: Annotated[int, Field(ge=1)] | None = None
    max_extra: Annotated[int, Field(ge=0)] | None = None
    """Default: `max_length`, if that is given."""
    sample: bool | None = None
    temperature: Annotated[float, Field(ge=0.001, le=1000)] | None = None
    top_k: Annotated[int, Field(ge=0, lt=1 << 31)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    min_p: Annotated[float, Field(ge=0, lt=1)] | None = None
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)] | None = None
    words: bool | None = None
    """Translation: the confidence and the alignment of each word."""

    def list_options(self, call: Call) -> Plain:
        limits = call.server.settings.limits
        known = {"beam": limits.beams, "n_best": limits.beams, "max_length": limits.tokens, "max_extra": limits.tokens}
        for name, most in known.items():
            if (getattr(self, name) or 0) > most:
                raise invalid(f"{name} should be at most {most}, got {getattr(self, name)}", name)
        options = self.model_dump(exclude_none=True)
        return {"max_extra": options["max_length"], **options} if "max_length" in options else options


class RunBody(OwnBody):
    inputs: Texts
    to: str | None = None
    """The target language of a many-to-many model."""
    prefix: str | None = None
    glossary: dict[str, str] | None = None
    options: RunOptionsBody = Field(default_factory=RunOptionsBody)
    stream: bool = False
    """Send pieces of the output of one input as server-sent events."""


class TextsBody(OwnBody):
    text: Texts
    n_best: Annotated[int, Field(ge=1)] = 1


class ImageBody(OwnBody):
    image: Texts
    """The file in base64, or a data: URL; or send the file itself, or a form with a file `image`."""
    n_best: Annotated[int, Field(ge=1)] = 5


class ScoreBody(OwnBody):
    inputs: Texts
    outputs: Texts
    to: str | None = None


class AttentionBody(OwnBody):
    text: str
    """Text, or an image: its file in base64."""
    output: str | None = None
    """Output; by default the model's own."""


async def run(call: Call, body: RunBody) -> object:
    inputs = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    terms = body.glossary or {}
    call.check_texts(inputs, "inputs", beside=[body.prefix or "", body.to or "", *terms, *terms.values()])
    if body.stream and (len(inputs) != 1 or body.glossary):
        raise invalid("a stream has one input and no glossary", "stream")
    model = _choose_generator(call, body.model)
    arguments = {
        "inputs": inputs, "to": body.to, "prefix": body.prefix, "glossary": body.glossary,
        "options": body.options.list_options(call),
    }  # fmt: skip
    if body.stream:
        return EventStream(_send_pieces(call, model, arguments))
    found = await call.infer("run", model, **arguments)
    return {"model": model, **found}


async def _send_pieces(call: Call, model: str, arguments: Plain) -> AsyncIterator[object]:
    pieces = call.infer_in_pieces("stream", model, **arguments)
    try:
        async for kind, data in pieces:
            yield {"piece": data} if kind == "piece" else {"model": model, "done": data}
    finally:
        await pieces.aclose()  # type: ignore[attr-defined]


def _choose_generator(call: Call, name: str | None) -> str:
    models = call.server.inference.models
    if name is None or name not in models:
        first = next((each for each, about in models.items() if set(GENERATES) & set(about["uses"])), None)
        return call.choose_model(
            first if name is None else name, "complete" if first is None else _find_use(call, first)
        )
    return call.choose_model(name, _find_use(call, name))


def _find_use(call: Call, name: str) -> str:
    """Return the use of models that give outputs."""
    uses = call.server.inference.models[name]["uses"]
    return next((use for use in GENERATES if use in uses), "complete")


async def _use(call: Call, use: str, model: str | None, inputs: Texts, n_best: int) -> object:
    given = [inputs] if isinstance(inputs, str) else inputs
    most = call.server.settings.limits.beams
    if n_best > most:
        raise invalid(f"n_best should be at most {most}, got {n_best}", "n_best")
    name = call.choose_model(model, use)
    found = await call.infer("run", name, inputs=given, options={"n_best": n_best})
    return {"model": name, "outputs": found["outputs"], "notes": found["notes"]}


async def fill(call: Call, body: TextsBody) -> object:
    return await _run_texts(call, "fill", body)


async def classify(call: Call, body: TextsBody) -> object:
    return await _run_texts(call, "classify", body)


async def tag(call: Call, body: TextsBody) -> object:
    return await _run_texts(call, "tag", body)


async def answer(call: Call, body: TextsBody) -> object:
    return await _run_texts(call, "answer", body)


async def _run_texts(call: Call, use: str, body: TextsBody) -> object:
    call.check_texts([body.text] if isinstance(body.text, str) else body.text, "text")
    return await _use(call, use, body.model, body.text, body.n_best)


async def classify_image(call: Call, body: ImageBody) -> object:
    images = [body.image] if isinstance(body.image, str) else body.image
    if len(images) > call.server.settings.limits.items:
        raise invalid(f"a request should have at most {call.server.settings.limits.items} images", "image")
    return await _use(call, "image", body.model, images, body.n_best)


async def score(call: Call, body: ScoreBody) -> object:
    inputs, outputs = ([each] if isinstance(each, str) else each for each in (body.inputs, body.outputs))
    call.check_texts(inputs, "inputs", beside=[*outputs, body.to or ""])
    if len(inputs) != len(outputs):
        raise invalid(f"as many outputs as inputs are needed, got {len(outputs)} for {len(inputs)}", "outputs")
    model = call.choose_model(body.model, "score")
    tag = None if body.to is None else f"2{body.to}"
    return {"model": model, **await call.infer("score", model, inputs=inputs, outputs=outputs, tag=tag)}


async def attention(call: Call, body: AttentionBody) -> object:
    model = call.choose_model(body.model, "attention")
    if "image" not in call.server.inference.models[model]["uses"]:
        call.check_texts([body.text], "text", beside=[body.output or ""])
    return {"model": model, **await call.infer("attention", model, inputs=[body.text], output=body.output)}


async def list_models(call: Call, body: None) -> object:
    return list(call.server.inference.models.values())


async def show_model(call: Call, body: None) -> object:
    name = call.request.path_params["name"]
    if name not in call.server.inference.models:
        call.choose_model(name, "")
    return await call.infer("describe", name)


ROUTES = [
    Route("POST", "/run", run, RunBody),
    Route("POST", "/score", score, ScoreBody),
    Route("POST", "/attention", attention, AttentionBody),
    Route("POST", "/fill", fill, TextsBody),
    Route("POST", "/classify", classify, TextsBody),
    Route("POST", "/tag", tag, TextsBody),
    Route("POST", "/answer", answer, TextsBody),
    Route("POST", "/image", classify_image, ImageBody, files=True),
    Route("GET", "/models", list_models, admits=False),
    Route("GET", "/models/{name}", show_model),
]
