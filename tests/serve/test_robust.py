"""Clients that leave, a process that is killed, a server that is told to stop."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from tests.serve.running import KEY, Running, start_server


def read_gauge(http: httpx.Client, name: str) -> float:
    found = re.search(rf"^{name}(?:{{[^}}]*}})? ([\d.e+]+)$", http.get("/metrics").text, re.M)
    return float(found[1]) if found else 0.0


def leave_early(address: str, body: bytes, seconds: float) -> None:
    """Send a request and close the connection without reading the answer."""
    host, _, port = address.removeprefix("http://").partition(":")
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: "
    with socket.create_connection((host, int(port)), timeout=10) as sock:
        sock.sendall(head.encode() + f"{len(body)}\r\n\r\n".encode() + body)
        time.sleep(seconds)


def test_clients_that_leave_free_their_slots(running: Running, http: httpx.Client) -> None:
    draw = random.Random(0)
    before = http.get("/metrics").status_code
    for i in range(60):
        body = {"model": "lm", "prompt": "the", "max_tokens": 2000, "temperature": 1.0, "stream": i % 2 == 0}
        leave_early(running.address, json.dumps(body).encode()[: draw.choice([30, 1000])], draw.random() * 0.03)
    end = time.monotonic() + 20
    while read_gauge(http, "regard_requests_in_flight") or _count_running(http):
        assert time.monotonic() < end
        time.sleep(0.1)
    assert before == 200
    assert http.post("/run", json={"model": "translate", "inputs": "abc"}).status_code == 200


def _count_running(http: httpx.Client) -> float:
    values = re.findall(r"^regard_model_(?:running|waiting){[^}]*} ([\d.]+)$", http.get("/metrics").text, re.M)
    return sum(map(float, values))


def test_a_killed_inference_process_comes_back(models: dict[str, Path], tmp_path: Path) -> None:
    served = {name: models[name] for name in ("lm", "translate")}
    with start_server(served, tmp_path, keys=[KEY]) as running, ThreadPoolExecutor(8) as pool:
        streams = [pool.submit(read_stream, running) for _ in range(4)]
        calls = [pool.submit(call_long, running) for _ in range(4)]
        time.sleep(1.0)
        os.kill(running.inference_pid, signal.SIGKILL)
        statuses = {call.result(30) for call in calls}
        assert statuses <= {200, 503}
        for stream in streams:
            status, lines = stream.result(30)
            assert status in (200, 503)
            if status == 200:
                assert lines[-1] == "data: [DONE]"
        with running.client(KEY) as http:
            end = time.monotonic() + 20
            while read_gauge(http, "regard_inference_restarts") < 1:  # until its death is noticed
                assert time.monotonic() < end
                time.sleep(0.05)
            running.wait_ready()
            unknown = http.post("/classify", json={"text": "a"})
            assert unknown.status_code == 404 and "no model here can do this (classify)" in unknown.json()["error"]
            answer = http.post("/run", json={"model": "translate", "inputs": "abc"})
            assert answer.status_code == 200, answer.text
            assert read_gauge(http, "regard_inference_restarts") == 1


def read_stream(running: Running) -> tuple[int, list[str]]:
    body = {"model": "lm", "prompt": "the", "max_tokens": 2000, "temperature": 1.0, "stream": True}
    with running.client(KEY) as http, http.stream("POST", "/v1/completions", json=body) as answer:
        return answer.status_code, [line for line in answer.iter_lines() if line]


def call_long(running: Running) -> int:
    with running.client(KEY) as http:
        body = {"model": "lm", "prompt": "the", "max_tokens": 2000, "temperature": 1.0}
        return http.post("/v1/completions", json=body).status_code


def test_a_server_that_is_told_to_stop_finishes_what_it_began(models: dict[str, Path], tmp_path: Path) -> None:
    with start_server({"lm": models["lm"]}, tmp_path) as running, ThreadPoolExecutor(1) as pool:
        body = {"model": "lm", "prompt": "the secret text", "max_tokens": 300, "temperature": 1.0}
        with running.client() as http:
            call = pool.submit(http.post, "/v1/completions", json=body)
            time.sleep(0.2)
            running.process.send_signal(signal.SIGTERM)
            assert call.result(60).status_code == 200
        running.process.wait(30)
        log = running.log.read_text()
        assert "POST /v1/completions 200" in log and "secret" not in log and "Traceback" not in log
