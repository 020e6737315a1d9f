"""LibreTranslate's routes, by its Python client and by the calls of its page."""

from __future__ import annotations

import sys

import httpx
import pytest
from libretranslatepy import LibreTranslateAPI

from regard import load
from regard.errors import name_extra
from regard.serve.libretranslate_routes import split_markup
from tests.serve.running import Running
from tests.serve.test_gate import OPEN, ask


@pytest.fixture
def client(running: Running) -> LibreTranslateAPI:
    running.wait_ready()
    return LibreTranslateAPI(running.address)


def test_the_python_client_translates(client: LibreTranslateAPI, models: dict[str, object]) -> None:
    wanted = load(str(models["translate"]), engine="torch").run("abc")
    assert client.translate("abc", "source", "target") == wanted
    assert client.translate("abc", "auto", "target") == wanted


def test_and_lists_languages(client: LibreTranslateAPI) -> None:
    assert client.languages() == [{"code": "source", "name": "Source", "targets": ["target"]}]


def test_json_and_forms_give_the_same(http: httpx.Client) -> None:
    fields = {"q": "abc", "source": "source", "target": "target", "format": "text", "alternatives": 2}
    answers = [http.post("/translate", json=fields), http.post("/translate", data=fields)]
    answers.append(http.post("/translate", files={name: (None, str(value)) for name, value in fields.items()}))
    assert [each.status_code for each in answers] == [200, 200, 200]
    first, *others = (each.json() for each in answers)
    assert others == [first, first]
    assert isinstance(first["translatedText"], str) and len(first["alternatives"]) == 2


def test_a_list_gives_a_list_and_lines_stay_lines(http: httpx.Client) -> None:
    body = {"q": ["abc\n\nab", ""], "source": "auto", "target": "target", "alternatives": 1}
    found = http.post("/translate", json=body).json()
    assert [len(text.split("\n")) for text in found["translatedText"]] == [3, 1]
    assert found["translatedText"][1] == "" and len(found["alternatives"]) == 2


def test_html_keeps_its_tags(http: httpx.Client) -> None:
    found = http.post("/translate", json={"q": "<p>ab<br/>c</p>", "target": "target", "format": "html"}).json()
    assert found["translatedText"].startswith("<p>") and "<br/>" in found["translatedText"]
    parts = split_markup("a &amp; b<i>c</i> ", "html")
    assert parts.inputs == ["a & b", "c"]
    assert parts.join([[{"text": "x < y"}], [{"text": "z"}]], 1) == ["x &lt; y<i>z</i> "]


def test_the_settings_of_its_page(http: httpx.Client) -> None:
    found = http.get("/frontend/settings").json()
    assert (found["keyRequired"], found["charLimit"], found["language"]["target"]["code"]) == (False, 100_000, "target")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"q": "a", "target": "xx"}, "'xx' is not supported as a target language; available: target"),
        (
            {"q": "a", "source": "xx", "target": "target"},
            "'xx' is not supported as a source language; available: source",
        ),
        ({"q": "a"}, "target: Field required"),
        ({"q": "a", "target": "target", "alternatives": 99}, "alternatives should be at most 15, got 99"),
        ({"q": ["a"] * 17, "target": "target"}, "a request should have at most 16 texts, got 17"),
        ({"q": "a" * 100_001, "target": "target"}, "a request should have at most 100,000 characters, got 100,001"),
    ],
)
def test_errors_are_in_its_shape(http: httpx.Client, body: dict[str, object], words: str) -> None:
    answer = http.post("/translate", json=body)
    assert (answer.status_code, answer.json()) == (400, {"error": words})


def test_detection(http: httpx.Client, client: LibreTranslateAPI) -> None:
    for text, language in (
        ("The weather is nice in the mountains", "en"),
        ("Das Wetter in den Bergen ist schön", "de"),
    ):
        (found, *_) = client.detect(text)
        assert (found["language"], found["confidence"] > 90) == (language, True)
    assert http.post("/detect", data={"q": "12 34"}).json() == []


def test_detection_needs_a_detector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langdetect", None)  # as if it were not installed
    answer = ask(OPEN, "POST", "/detect", json={"q": "a text"})
    assert answer.status_code == 501
    assert answer.json() == {"error": f"no language detector is installed on this server; {name_extra('detect')}"}
