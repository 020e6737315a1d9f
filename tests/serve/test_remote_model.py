"""`regard run http://…`: the command line as a client."""

from __future__ import annotations

import json

import pytest

from regard import load
from tests.serve.running import Running
from tests.verbs.calling import call


def test_lines_run_on_a_server_as_they_do_here(running: Running, models: dict[str, object]) -> None:
    running.wait_ready()
    wanted = load(str(models["translate"]), engine="torch").run(["abc", "ba"])
    said = call("run", f"{running.address}/translate", "abc", "ba")
    assert (said.code, said.out.splitlines()) == (0, wanted)
    said = call("run", f"{running.address}/classify", "a fine day", "--json")
    assert json.loads(said.out)["outputs"][0]["text"] == load(str(models["classify"])).run("a fine day")
    said = call("run", f"{running.address}/translate", "abc")
    assert (said.code, said.out) == (0, f"{wanted[0]}\n")
    said = call("run", f"{running.address}/lm", "the cat", "--length", "6", "--no-sample", "--beam", "1")
    here = load(str(models["lm"]), engine="torch").run("the cat", beam=1, sample=False, max_extra=6)
    assert (said.code, said.out) == (0, f"{here}\n"), said.err


def test_what_a_server_refuses(running: Running) -> None:
    running.wait_ready()
    said = call("run", f"{running.address}/nothing", "abc")
    assert said.code == 2 and "refuses (404): no model 'nothing'; available: " in said.err
    said = call("run", "http://127.0.0.1:9", "abc")
    assert said.code == 2 and "does not answer" in said.err
    said = call("run", running.address, "abc", "--with", "other")
    assert said.code == 2 and "a server runs one model at a time" in said.err


def test_what_a_server_is_not_asked_for() -> None:
    for option in (["--with", "other"], ["--out", "x"], ["--stream"]):
        said = call("run", "http://127.0.0.1:9", "abc", *option)
        assert said.code == 2 and "gives whole texts; leave out --with, --out and --stream" in said.err


def test_outputs_of_a_server_are_read() -> None:
    from regard.serve.remote_model import read_outputs
    from regard.tasks.common.task import Output

    plain = {"text": "a", "score": 1.0, "log_prob": -1.0, "words": []}
    assert read_outputs([plain]) == [Output("a", 1.0, -1.0, {"words": []})]
    assert read_outputs([{"text": "", "error": "it is empty"}]) == [Output("", error="it is empty")]


def test_a_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.serve.remote_model import RemoteModel

    monkeypatch.setenv("REGARD_API_KEY", "abc")
    with RemoteModel("http://127.0.0.1:9")._http as http:
        assert http.headers["authorization"] == "Bearer abc"


def test_lines_are_divided_by_the_limits_of_the_server(running: Running) -> None:
    running.wait_ready()
    with running.client() as http:
        assert (limits := http.get("/limits").json())["items"] == 16 and limits["characters"] == 100_000
    lines = ["ab", "b" * 60_000, "ba" * 30_000, "a" * 100_001, "b", "", *["a"] * 20]
    said = call("run", f"{running.address}/classify", stdin="".join(f"{line}\n" for line in lines).encode())
    out = said.out.splitlines()
    assert len(out) == len(lines) and said.code == 2 and out[3] == out[5] == "" and all(out[:3]) and all(out[6:])
    assert "input 4: the server reads at most 100,000 characters at a time, got 100,001" in said.err


def test_texts_are_divided_by_items_and_characters() -> None:
    from regard.serve.remote_model import divide

    assert list(divide(["aa", "b", "cc", "ddddd", "e", "", "f"], 3, 4)) == [
        ["aa", "b"],
        ["cc"],
        ["ddddd"],
        ["e", "", "f"],
    ]
    assert list(divide(["", "", ""], 2, 0)) == [["", ""], [""]] and list(divide([], 2, 2)) == []


def test_a_server_that_states_no_limits_is_asked_within_the_usual_ones() -> None:
    import httpx

    from regard.serve.remote_model import RemoteModel

    model, sent = RemoteModel("http://127.0.0.1:9"), list[int]()

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/limits":
            return httpx.Response(404, json={"error": "there is nothing at /limits"})
        inputs = json.loads(request.content)["inputs"]
        sent.append(sum(map(len, inputs)))
        return httpx.Response(200, json={"outputs": [[{"text": each[:1]}] for each in inputs]})

    model._http = httpx.Client(transport=httpx.MockTransport(answer), base_url="http://127.0.0.1:9")
    found = [pair for some in model.run_lazily(["a" * 3960] * 40, prefix="b" * 100) for pair in some]
    assert len(found) == 40 and all(outputs[0].text == "a" for _, outputs in found)
    assert max(sent) <= 100_000 - 100 and sum(sent) == 40 * 3960
