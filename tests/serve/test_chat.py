"""Chat: tokens and texts as `transformers` has them, through OpenAI's client."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from regard import load
from regard.conversion.hf_origin import Origin
from regard.decode import Search
from regard.engine.torch_engine import TorchEngine
from regard.errors import DataError, SpecError
from regard.files.folder import read_folder
from regard.serve.chat_template import ChatTemplate
from regard.serve.model_table import ModelTable
from regard.serve.served_model import read_chat_template
from regard.tasks.lm import Lm
from tests.serve.chat_models import ChatModel, make_chatml, make_instructions
from tests.serve.running import Running, start_server

MAKERS = {"chatml": make_chatml, "instructions": make_instructions}
TALK = [
    {"role": "user", "content": "Where do the unaffable dogs go?"},
    {"role": "assistant", "content": "  to 1234 trees "},
    {"role": "user", "content": "  Überall, 東京?\n\nyou'll see  "},
]
SYSTEM = {"role": "system", "content": "don't"}
QUESTIONS = [[{"role": "user", "content": f"{word} and the cat"}] for word in ("I", "you", "dogs", "567", "")]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ChatModel]:
    return {name: make(tmp_path_factory.mktemp(name)) for name, make in MAKERS.items()}


@pytest.fixture(scope="module")
def served(made: dict[str, ChatModel], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    paths = {name: each.path for name, each in made.items()}
    with start_server(paths, tmp_path_factory.mktemp("server"), ["--engine", "torch"]) as running:
        yield running


@pytest.fixture(params=MAKERS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def chat_model(made: dict[str, ChatModel], name: str) -> ChatModel:
    return made[name]


@pytest.fixture
def client(served: Running) -> Iterator[openai.OpenAI]:
    served.wait_ready()
    with openai.OpenAI(base_url=f"{served.address}/v1", api_key="none", max_retries=0) as made:
        yield made


def read_template(made: ChatModel) -> ChatTemplate:
    found = read_chat_template(read_folder(made.path), load(made.path).task)
    assert found is not None
    return found


def test_the_tokens_are_those_of_transformers(chat_model: ChatModel) -> None:
    template = read_template(chat_model)
    for messages in (TALK, TALK[:1], *QUESTIONS):
        assert template.encode(messages) == chat_model.encode(messages)


def test_a_message_cannot_spell_special_tokens(chat_model: ChatModel) -> None:
    template, tokenizer = read_template(chat_model), load(chat_model.path).tokenizer
    special = {tokenizer.core.token_to_id(each.content) for each in tokenizer.core.get_added_tokens_decoder().values()}
    marks = [token for token in template.encode([{"role": "user", "content": "a b"}]) if token in special]
    for token in sorted(special):
        for content in (f"a {tokenizer.spell(token)} b", tokenizer.spell(token) * 2, "\ue000" + tokenizer.spell(token)):
            ids = template.encode([{"role": "user", "content": content}])
            assert [each for each in ids if each in special and each != tokenizer.unk] == [
                each for each in marks if each != tokenizer.unk
            ]
            assert tokenizer.spell(token) in tokenizer.decode(ids) or tokenizer.unk in ids


def test_answers_and_their_ends_are_those_of_transformers(
    client: openai.OpenAI, chat_model: ChatModel, name: str
) -> None:
    reasons = set()
    for messages in (TALK, *QUESTIONS):
        wanted, count = chat_model.answer(messages, 24)
        given = {"model": name, "messages": messages, "max_tokens": 24, "temperature": 0}
        found = client.chat.completions.create(**given)  # type: ignore[call-overload]
        choice = found.choices[0]
        assert (choice.message.role, choice.message.content) == ("assistant", wanted)
        assert choice.finish_reason == ("length" if count == 24 else "stop")
        assert found.usage.prompt_tokens == len(chat_model.encode(messages))
        assert found.usage.completion_tokens - count in (0, 1)  # the token that ends a turn is written, too
        events = list(client.chat.completions.create(**given, stream=True, stream_options={"include_usage": True}))  # type: ignore[call-overload]
        pieces = [event.choices[0].delta.content or "" for event in events if event.choices]
        assert "".join(pieces) == wanted
        assert events[-2].choices[0].finish_reason == choice.finish_reason
        assert events[-1].usage == found.usage
        reasons.add(choice.finish_reason)
    assert reasons == {"stop", "length"}


def test_stop_texts_are_counted(client: openai.OpenAI, chat_model: ChatModel, name: str) -> None:
    messages = next(each for each in (TALK, *QUESTIONS) if chat_model.answer(each, 24)[1] > 6)
    wanted, count = chat_model.answer(messages, 24)
    stop = wanted[len(wanted) // 2 :][:3]
    found = client.chat.completions.create(
        model=name,
        messages=messages,
        max_tokens=24,
        temperature=0,
        stop=[stop],  # type: ignore[arg-type]
    )
    assert found.choices[0].message.content == wanted[: wanted.index(stop)]
    assert found.choices[0].finish_reason == "stop"
    assert found.usage is not None and 0 < found.usage.completion_tokens <= count


def test_several_sampled_answers(client: openai.OpenAI, name: str) -> None:
    given = {"model": name, "messages": TALK, "n": 3, "max_tokens": 9, "temperature": 1.2, "seed": 5}
    first, again = (client.chat.completions.create(**given) for _ in range(2))  # type: ignore[call-overload]
    texts = [choice.message.content for choice in first.choices]
    assert texts == [choice.message.content for choice in again.choices] and len({*texts}) > 1


def test_a_conversation_that_is_too_long(models: dict[str, Path]) -> None:
    model = load(models["lm"])
    room = model.net.spec.room
    assert isinstance(model.task, Lm) and room is not None
    with pytest.raises(DataError, match=f"the prompt has {room + 1} tokens, and the model reads {room}; shorten it"):
        model.task.stream_answer(TorchEngine(model.net), [5] * (room + 1), Search(beam=1))
    full = [*model.task.stream_answer(TorchEngine(model.net), [5] * room, Search(beam=1, max_extra=50))]
    assert len("".join(full)) <= 1  # no more than the context holds


def test_a_model_that_is_not_loaded_says_that_it_chats(made: dict[str, ChatModel]) -> None:
    (about,) = ModelTable({"chat": made["chatml"].path}, budget=0).describe()
    assert not about["loaded"] and "chat" in about["uses"]


def test_a_template_that_refuses(made: dict[str, ChatModel]) -> None:
    one = made["instructions"]
    with pytest.raises(DataError, match="refuses these messages: only user and assistant speak here"):
        read_template(one).encode([SYSTEM])
    tokenizer = load(one.path).tokenizer
    with pytest.raises(SpecError, match="the chat template of this model cannot be read: "):
        ChatTemplate("{% for %}", tokenizer)
    with pytest.raises(SpecError, match="the chat template has 100,001 characters; the limit is 100,000"):
        ChatTemplate("x" * 100_001, tokenizer)
    with pytest.raises(DataError, match="refuses these messages: "):
        ChatTemplate("{{ messages.__class__.__mro__ }}{{ x.y.z }}", tokenizer).encode(TALK)


def test_what_templates_are_written_for(made: dict[str, ChatModel]) -> None:
    one = made["instructions"]
    source = (
        "{%- for m in messages %}{% if loop.index > 2 %}{% break %}{% endif %}{{ m | tojson }}{% generation %}x"
        "{% endgeneration %}{{ strftime_now('%Y')[:2] }}{% endfor %}{% if tools is none %}y{% endif %}"
    )
    tokenizer = copy.deepcopy(one.tokenizer)
    tokenizer.chat_template = source
    template = ChatTemplate(source, load(one.path).tokenizer)
    assert template.encode(TALK) == dataclasses.replace(one, tokenizer=tokenizer).encode(TALK)


def test_several_templates_have_a_default() -> None:
    named = [{"name": "tool_use", "template": "a"}, {"name": "default", "template": "b"}]
    assert Origin(tokenizer={"chat_template": named}).chat_template == "b"
    assert Origin(tokenizer={"chat_template": named[:1]}).chat_template is None
