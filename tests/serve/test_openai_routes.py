"""OpenAI's routes, by its own client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
import torch

from regard import load
from regard.tasks.common.encoder_input import NOT_FINITE
from tests.serve.in_process import FuzzRequest, start_in_process
from tests.serve.running import Running


@pytest.fixture
def client(running: Running) -> Iterator[openai.OpenAI]:
    running.wait_ready()
    with openai.OpenAI(base_url=f"{running.address}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_models(client: openai.OpenAI) -> None:
    names = [model.id for model in client.models.list()]
    assert {"lm", "translate", "embed"} <= set(names)
    assert client.models.retrieve("lm").id == "lm"


def test_a_completion_is_what_the_model_gives(client: openai.OpenAI, models: dict[str, object]) -> None:
    found = client.completions.create(model="lm", prompt="the cat", max_tokens=6, temperature=0)
    wanted = load(str(models["lm"]), engine="torch").run("the cat", beam=1, sample=False, max_extra=6, max_length=6)
    assert found.choices[0].text == wanted
    assert (
        found.usage is not None
        and found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens
    )
    assert found.choices[0].finish_reason in ("stop", "length")


@pytest.mark.parametrize("settings", [{"temperature": 0}, {"temperature": 0.8, "seed": 4}, {}])
def test_a_stream_is_the_same_text_in_pieces(client: openai.OpenAI, settings: dict[str, object]) -> None:
    given = {"model": "lm", "prompt": "the dog", "max_tokens": 8, **settings}
    whole = client.completions.create(**given).choices[0].text  # type: ignore[call-overload]
    events = list(client.completions.create(**given, stream=True, stream_options={"include_usage": True}))  # type: ignore[call-overload]
    assert "".join(event.choices[0].text for event in events if event.choices) == whole
    assert events[-1].usage.total_tokens > 0 and events[-2].choices[0].finish_reason is not None


def test_several_prompts_and_choices(client: openai.OpenAI) -> None:
    found = client.completions.create(model="lm", prompt=["the", "a man"], n=3, max_tokens=12, temperature=1.5, seed=1)
    assert [choice.index for choice in found.choices] == list(range(6))
    assert len({choice.text for choice in found.choices}) > 1
    again = client.completions.create(model="lm", prompt=["the", "a man"], n=3, max_tokens=12, temperature=1.5, seed=1)
    assert [choice.text for choice in again.choices] == [choice.text for choice in found.choices]


def test_echo_and_stop(client: openai.OpenAI) -> None:
    plain = client.completions.create(model="lm", prompt="it", max_tokens=12, temperature=0).choices[0].text
    echoed = client.completions.create(model="lm", prompt="it", max_tokens=12, temperature=0, echo=True).choices[0].text
    assert echoed == "it" + plain
    if len(plain) > 2:
        stopped = client.completions.create(model="lm", prompt="it", max_tokens=12, temperature=0, stop=plain[1:3])
        assert stopped.choices[0].text == plain[: plain.index(plain[1:3])]
        assert stopped.choices[0].finish_reason == "stop"


def test_embeddings(client: openai.OpenAI, models: dict[str, object]) -> None:
    texts = ["a fine day", "so bad"]
    wanted = load(str(models["embed"])).embed(texts).tolist()
    for form in ({}, {"encoding_format": "float"}):
        found = client.embeddings.create(model="embed", input=texts, **form)  # type: ignore[arg-type]
        assert [row.embedding for row in found.data] == [pytest.approx(row, abs=1e-5) for row in wanted]
    assert found.usage.prompt_tokens > 0


@pytest.mark.parametrize("form", ["float", "base64"])
def test_embeddings_of_a_damaged_model_are_refused_in_words(models: dict[str, Path], tmp_path: Path, form: str) -> None:
    damaged = load(str(models["embed"]), engine="torch")
    with torch.no_grad():
        damaged.net.embed.weight[:, 0] = torch.inf
    request = FuzzRequest(
        "POST", "/v1/embeddings", {"content-type": b"application/json"},
        json.dumps({"model": "embed", "input": ["a fine day"], "encoding_format": form}).encode(),
    )  # fmt: skip

    async def ask() -> tuple[int, bytes]:
        async with start_in_process({"embed": damaged.save(tmp_path / "embed")}) as server:
            return await server.send(request)

    status, body = asyncio.run(ask())
    assert status == 500
    assert json.loads(body)["error"]["message"] == NOT_FINITE


def test_errors_are_what_the_client_expects(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="no model 'gpt-5'; available: "):
        client.completions.create(model="gpt-5", prompt="a")
    with pytest.raises(openai.BadRequestError, match="the model embed cannot do this"):
        client.completions.create(model="embed", prompt="a")
    with pytest.raises(openai.BadRequestError, match="presence_penalty is not supported here; leave it out"):
        client.completions.create(model="lm", prompt="a", presence_penalty=1.0)
    with pytest.raises(openai.BadRequestError, match="max_tokens should be at most 2048, got 9999"):
        client.completions.create(model="lm", prompt="a", max_tokens=9999)
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.completions.create(model="lm", prompt="a", temperature=9)
    with pytest.raises(openai.BadRequestError, match=r"cannot do this \(chat\)"):
        client.chat.completions.create(model="lm", messages=[{"role": "user", "content": "a"}])
