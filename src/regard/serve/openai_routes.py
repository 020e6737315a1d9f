"""OpenAI's API: models, completions, chat and embeddings.

Values left out are as in the model's own settings: without a temperature, a model that was trained to be searched
with a beam is. Streams come in server-sent events; a beam gives the whole text as one.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
import struct
import time
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from regard.serve.api_error import invalid
from regard.serve.call import Call, EventStream, Route
from regard.serve.request_body import Texts
from regard.spec import Plain

Positive = Annotated[int, Field(ge=1)]


class StreamOptions(BaseModel):
    include_usage: bool = False


class GenerationBody(BaseModel):
    """Fields that completions and chat have in common."""

    model: str
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    n: Annotated[int, Field(ge=1, le=16)] = 1
    stream: bool = False
    stream_options: StreamOptions | None = None
    stop: Texts | None = None
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logprobs: bool | int | None = None
    logit_bias: dict[str, float] | None = None

    def find_unsupported(self) -> str | None:
        """A setting that we cannot follow."""
        for name in ("presence_penalty", "frequency_penalty", "logprobs", "logit_bias"):
            if getattr(self, name):
                return name
        return None

    def list_stops(self) -> list[str]:
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if len(stops) > 4 or any(not stop or len(stop) > 200 for stop in stops):
            raise invalid("stop should be at most 4 texts of 1 to 200 characters", "stop")
        return stops

    def list_options(self, most: int) -> Plain:
        """Options of a run with at most this many tokens."""
        options: Plain = {"max_length": most, "max_extra": most}
        if self.temperature == 0:
            return options | {"sample": False, "beam": 1}
        if self.temperature is None and self.top_p is None and self.seed is None and self.n == 1:
            return options
        seed = secrets.randbits(62) if self.seed is None else self.seed
        return options | {
            "sample": True, "temperature": max(self.temperature or 1.0, 0.001), "top_p": self.top_p or 1.0, "seed": seed,
        }  # fmt: skip


class CompletionBody(GenerationBody):
    prompt: Texts = ""
    max_tokens: Positive | None = 16
    echo: bool = False
    suffix: str | None = None
    best_of: int | None = None

    def find_unsupported(self) -> str | None:
        beyond = "suffix" if self.suffix else "best_of" if self.best_of not in (None, self.n) else None
        return beyond or super().find_unsupported()


class TextPart(BaseModel):
    type: Literal["text"]
    text: str


class ChatMessage(BaseModel):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[TextPart], Field(fail_fast=True)]

    def plain(self) -> dict[str, str]:
        content = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": content}


class ChatBody(GenerationBody):
    messages: Annotated[list[ChatMessage], Field(min_length=1, fail_fast=True)]
    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None
    tools: list[object] | None = None

    def find_unsupported(self) -> str | None:
        return "tools" if self.tools else super().find_unsupported()


class EmbeddingBody(BaseModel):
    model: str
    input: Texts
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None


async def list_models(call: Call, body: None) -> object:
    return {"object": "list", "data": [_describe(about) for about in call.server.inference.models.values()]}


async def show_model(call: Call, body: None) -> object:
    name = call.request.path_params["name"]
    models = call.server.inference.models
    if name not in models:
        call.choose_model(name, "")  # says that there is none
    return _describe(models[name])


def _describe(about: Plain) -> dict[str, object]:
    return {"id": about["name"], "object": "model", "created": about["created"], "owned_by": "regard"}


async def complete(call: Call, body: CompletionBody) -> object:
    prompts = body.prompt if isinstance(body.prompt, list) else [body.prompt]
    call.check_texts(prompts * body.n, "prompt")
    model = call.choose_model(body.model, "complete")
    generation = _prepare(call, body, body.max_tokens or 16, "cmpl", "text_completion")
    for prompt in prompts:
        for _ in range(body.n):
            generation.add("stream", model, prompt if body.echo else "", inputs=[prompt])
    return await generation.answer()


async def chat(call: Call, body: ChatBody) -> object:
    messages = [message.plain() for message in body.messages]
    call.check_texts([message["content"] for message in messages] * body.n, "messages")
    model = call.choose_model(body.model, "chat")
    most = body.max_completion_tokens or body.max_tokens or 256
    generation = _prepare(call, body, most, "chatcmpl", "chat.completion")
    for _ in range(body.n):
        generation.add("chat", model, "", messages=messages)
    return await generation.answer()


def _prepare(call: Call, body: GenerationBody, most: int, prefix: str, kind: str) -> Generation:
    limit = call.server.settings.limits.tokens
    if most > limit:
        raise invalid(f"max_tokens should be at most {limit}, got {most}", "max_tokens")
    if name := body.find_unsupported():
        raise invalid(f"{name} is not supported here; leave it out", name)
    return Generation(call, body, body.list_options(most), f"{prefix}-{secrets.token_hex(12)}", kind)


class Generation:
    """The choices of one request: each a stream of its own, sent as events or gathered."""

    def __init__(self, call: Call, body: GenerationBody, options: Plain, id: str, kind: str) -> None:
        self.call, self.body, self.options, self.kind = call, body, options, kind
        self._head = {"id": id, "created": int(time.time()), "model": body.model}
        self._stops = body.list_stops()
        self._choices: list[tuple[str, str, str, dict[str, object]]] = []
        self._usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}

    def add(self, op: str, model: str, before: str, **arguments: object) -> None:
        """Add a choice; its text begins with `before`."""
        self._choices.append((op, model, before, arguments))

    async def answer(self) -> object:
        if self.body.stream:
            return EventStream(self._send_events())
        found = await asyncio.gather(*(self._finish_choice(i) for i in range(len(self._choices))))
        choices = [self._write_choice(i, text, finish, whole=True) for i, (text, finish) in enumerate(found)]
        return self._head | {"object": self.kind, "choices": choices, "usage": self._usage}

    async def _finish_choice(self, index: int) -> tuple[str, str]:
        """The whole text of a choice, and why it ended."""
        op, model, before, arguments = self._choices[index]
        found = await self.call.infer(op, model, whole=True, **self._name_options(index), **arguments)
        self._count(found["usage"])
        return before + found["text"], found["finish"]

    def _name_options(self, index: int) -> Plain:
        return {"options": self.options | {"first": index}, "stops": self._stops}

    def _count(self, usage: dict[str, int]) -> None:
        for name, count in usage.items():
            self._usage[name] += count

    async def _send_events(self) -> AsyncIterator[object]:
        """Events of all choices, as they come."""
        queue: asyncio.Queue[tuple[int, str, str | None] | BaseException] = asyncio.Queue()

        async def feed(index: int) -> None:
            try:
                async for piece, finish in self._run_choice(index):
                    queue.put_nowait((index, piece, finish))
            except BaseException as error:
                queue.put_nowait(error)
                raise

        tasks = [asyncio.create_task(feed(i)) for i in range(len(self._choices))]
        try:
            left = len(tasks)
            while left:
                event = await queue.get()
                if isinstance(event, BaseException):
                    raise event
                index, piece, finish = event
                left -= finish is not None
                yield self._wrap([self._write_choice(index, piece, finish, whole=False)])
            if self.body.stream_options is not None and self.body.stream_options.include_usage:
                yield self._wrap([]) | {"usage": self._usage}
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _wrap(self, choices: Sequence[object]) -> dict[str, object]:
        return self._head | {"object": self.kind + ".chunk" * (self.kind != "text_completion"), "choices": choices}

    async def _run_choice(self, index: int) -> AsyncIterator[tuple[str, str | None]]:
        """Pieces of a choice; with the last one comes why it ended."""
        op, model, before, arguments = self._choices[index]
        if before:
            yield before, None
        pieces = self.call.infer_in_pieces(op, model, **self._name_options(index), **arguments)
        try:
            async for kind, data in pieces:
                if kind == "piece":
                    yield str(data), None
                elif isinstance(data, dict):
                    self._count(data["usage"])
                    yield "", data["finish"]
        finally:
            await pieces.aclose()  # type: ignore[attr-defined]

    def _write_choice(self, index: int, text: str, finish: str | None, *, whole: bool) -> dict[str, object]:
        choice: dict[str, object] = {"index": index, "finish_reason": finish, "logprobs": None}
        if self.kind == "text_completion":
            return choice | {"text": text}
        return choice | {"message" if whole else "delta": {"role": "assistant", "content": text}}


async def embed(call: Call, body: EmbeddingBody) -> object:
    texts = body.input if isinstance(body.input, list) else [body.input]
    call.check_texts(texts, "input")
    if not texts or not all(text.strip() for text in texts):
        raise invalid("input should be one or more texts that are not empty", "input")
    if body.dimensions is not None:
        raise invalid("dimensions is not supported here; leave it out", "dimensions")
    found = await call.infer("embed", call.choose_model(body.model, "embed"), inputs=texts)
    packed = [
        vector
        if body.encoding_format == "float"
        else base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
        for vector in found["vectors"]
    ]
    rows = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(packed)]
    usage = {name: found["usage"][name] for name in ("prompt_tokens", "total_tokens")}
    return {"object": "list", "data": rows, "model": body.model, "usage": usage}


ROUTES = [
    Route("GET", "/v1/models", list_models, admits=False),
    Route("GET", "/v1/models/{name}", show_model, admits=False),
    Route("POST", "/v1/completions", complete, CompletionBody),
    Route("POST", "/v1/chat/completions", chat, ChatBody),
    Route("POST", "/v1/embeddings", embed, EmbeddingBody),
]
