"""Our routes: what a model can do, a server can."""

from __future__ import annotations

import base64
import io
import json

import httpx
import numpy as np
import pytest
from PIL import Image

from regard import load


def picture() -> bytes:
    pixels = np.zeros((8, 8), np.uint8)
    pixels[5] = 200
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def test_run_gives_what_run_all_gives(http: httpx.Client, models: dict[str, object]) -> None:
    model = load(str(models["translate"]), engine="torch")
    body = {"model": "translate", "inputs": ["abc", "", "ba"], "options": {"n_best": 2, "beam": 3, "words": True}}
    found = http.post("/run", json=body).json()
    wanted = model.run_all(["abc", "", "ba"], n_best=2, beam=3, words=True)
    assert [[each["text"] for each in row] for row in found["outputs"]] == [[o.text for o in row] for row in wanted]
    assert found["outputs"][0][0]["score"] == pytest.approx(wanted[0][0].score, abs=1e-4)
    assert {"words", "alignment"} <= found["outputs"][0][0].keys()


def test_run_in_pieces(http: httpx.Client) -> None:
    body = {"model": "translate", "inputs": "abc", "options": {"beam": 1}, "stream": True}
    with http.stream("POST", "/run", json=body) as answer:
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert lines[-1] == "[DONE]"
    pieces = [json.loads(line) for line in lines[:-1]]
    whole = http.post("/run", json={**body, "stream": False}).json()["outputs"][0][0]["text"]
    assert "".join(each.get("piece", "") for each in pieces) == whole and "usage" in pieces[-1]["done"]


def test_prefix_and_glossary(http: httpx.Client) -> None:
    body = {"model": "translate", "inputs": ["abc"], "prefix": "ab"}
    assert http.post("/run", json=body).json()["outputs"][0][0]["text"].startswith("ab")
    body = {"model": "translate", "inputs": ["abc"], "glossary": {"abc": "ba"}}
    assert "ba" in http.post("/run", json=body).json()["outputs"][0][0]["text"]


@pytest.mark.parametrize("use", ["classify", "tag"])
def test_classes_and_labels(http: httpx.Client, models: dict[str, object], use: str) -> None:
    found = http.post(f"/{use}", json={"text": ["a fine day", "so bad"]}).json()
    assert [row[0]["text"] for row in found["outputs"]] == load(str(models[use])).run(["a fine day", "so bad"])
    assert "probabilities" in found["outputs"][0][0]


@pytest.mark.parametrize(("task", "given"), [("recommend", "1; 2"), ("frames", "[[60], [61]]")])
def test_histories_and_rolls(http: httpx.Client, models: dict[str, object], task: str, given: str) -> None:
    answer = http.post("/run", json={"model": task, "inputs": given, "options": {"max_length": 3}})
    assert answer.status_code == 200, answer.text
    wanted = load(str(models[task]), engine="torch").run(given, max_length=3, max_extra=3)
    assert answer.json()["outputs"][0][0]["text"] == wanted


def test_fill(http: httpx.Client) -> None:
    found = http.post("/fill", json={"text": "the <mask> sat", "n_best": 2}).json()
    assert found["model"] == "mlm" and len(found["outputs"][0]) >= 1


def test_an_image_as_json_as_a_file_and_in_a_form(http: httpx.Client) -> None:
    data = picture()
    coded = base64.b64encode(data).decode()
    answers = [
        http.post("/image", json={"image": coded, "n_best": 5}),
        http.post("/image", json={"image": f"data:image/png;base64,{coded}", "n_best": 5}),
        http.post("/image", content=data, headers={"content-type": "image/png"}),
        http.post("/image", files={"image": ("x.png", data, "image/png")}),
    ]
    assert [each.status_code for each in answers] == [200] * 4
    assert len({json.dumps(each.json()) for each in answers}) == 1
    assert "probabilities" in answers[0].json()["outputs"][0][0]


def test_a_path_is_not_an_image(http: httpx.Client, models: dict[str, object]) -> None:
    answer = http.post("/image", json={"image": str(models["image"])})
    assert answer.status_code == 400 and "should be in base64" in answer.json()["error"]
    answer = http.post("/run", json={"model": "image", "inputs": ["/etc/passwd"]})
    assert answer.status_code == 400


def test_scores_and_attention(http: httpx.Client, models: dict[str, object]) -> None:
    model = load(str(models["translate"]))
    found = http.post("/score", json={"model": "translate", "inputs": "abc", "outputs": "abc"}).json()
    assert found["scores"] == [pytest.approx(x, abs=1e-3) for x in model.score(["abc"], ["abc"])]
    seen = http.post("/attention", json={"model": "translate", "text": "abc", "output": "ab"}).json()
    assert seen["weights"].keys() == set(model.attention("abc", "ab").weights)
    assert seen["target"][1:3] == ["a", "b"]


def test_what_models_are_there(http: httpx.Client) -> None:
    about = {each["name"]: each for each in http.get("/models").json()}
    assert "translate" in about["translate"]["uses"] and about["classify"]["classes"] == ["high", "low"]
    shown = http.get("/models/translate").json()
    assert shown["card"].startswith("# ") and "decoder" in shown["tree"]
    assert http.get("/models/nothing").status_code == 404


def test_runs_can_be_looked_at(http: httpx.Client, models: dict[str, object]) -> None:
    runs = {run["name"]: run for run in http.get("/runs").json()}
    assert runs["lm"]["done"] and runs["lm"]["step"] == 2 and not runs["lm"]["running"]
    events = http.get("/runs/lm").json()["events"]
    assert {event["event"] for event in events} >= {"start", "train", "valid", "done"}
    assert http.get("/runs/lm?after=1").json()["events"][0]["step"] == 2
    report = http.get("/runs/lm/report")
    assert report.status_code == 200 and "sandbox" in report.headers["content-security-policy"]
    for wrong in ("/runs/%2e%2e", "/runs/lm-files", "/runs/%2Fetc"):
        assert http.get(wrong).status_code == 404
    assert http.get("/runs/lm?after=x").status_code == 400


def test_refusals(http: httpx.Client) -> None:
    for path, body, words in (
        ("/run", {"inputs": "a", "options": {"beam": 17}}, "beam should be at most 16, got 17"),
        ("/run", {"inputs": "a", "what": 1}, "what: Extra inputs are not permitted"),
        ("/run", {"inputs": ["a", "b"], "stream": True}, "a stream has one input and no glossary"),
        (
            "/run",
            {"model": "translate", "inputs": "a", "to": "de"},
            "was not trained with several target languages or lengths",
        ),
        ("/score", {"inputs": ["a"], "outputs": []}, "as many outputs as inputs are needed, got 0 for 1"),
        ("/classify", {"model": "lm", "text": "a"}, "the model lm cannot do this (classify); it can: complete"),
    ):
        answer = http.post(path, json=body)
        assert answer.status_code == 400 and words in answer.json()["error"], answer.text


def test_a_question_about_a_story(http: httpx.Client) -> None:
    story = "Mary went home. Where is Mary?"
    answer = http.post("/answer", json={"text": story})
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] == "babi"
    (((best, *_),),) = (answer.json()["outputs"],)
    assert best["text"] and [hop["sentence"] for hop in best["hops"]] == ["Mary went home."] * len(best["hops"]), best
