"""Clients that leave, a process that is killed, a server that is told to stop."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import ssl
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from regard.serve.inference_client import InferenceProcess
from tests.serve.disconnects import ONE_SLOT, WITHIN, disconnect_many
from tests.serve.running import KEY, Running, start_server


def read_gauge(http: httpx.Client, name: str) -> float:
    found = re.search(rf"^{name}(?:{{[^}}]*}})? ([\d.e+]+)$", http.get("/metrics").text, re.M)
    return float(found[1]) if found else 0.0


def test_clients_that_leave_free_their_slots(models: dict[str, Path], tmp_path: Path) -> None:
    with start_server({"lm": models["lm"]}, tmp_path, ONE_SLOT) as running:
        disconnect_many(running, 10, seed=0)
        found = disconnect_many(running, 40, seed=1)
        assert statistics.median(found.waits) < WITHIN and max(found.waits) < 5, found.describe()
        assert found.after.files <= found.before.files + 4, found.describe()
        assert found.after.memory < 1.1 * found.before.memory, found.describe()
        assert "Traceback" not in running.log.read_text()


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


def test_a_server_that_is_told_to_stop_before_it_is_ready(models: dict[str, Path], tmp_path: Path) -> None:
    arguments = ["serve", str(models["lm"]), "--port", "0"]
    process = subprocess.Popen([sys.executable, "-m", "regard", *arguments], stderr=subprocess.DEVNULL)
    child = None
    try:
        child = find_inference_process(process.pid, seconds=60)
        os.kill(child, signal.SIGSTOP)  # it will never be ready
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM
    finally:
        process.kill()
        process.wait()
        if child is not None:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


def find_inference_process(parent: int, seconds: float) -> int:
    """The child of a server once it runs its own program; before that, a stopped child would block its parent."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            if b"regard.serve.inference" in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
        time.sleep(0.02)
    raise AssertionError("the server started no inference process")


def test_an_inference_process_that_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def start() -> str | None:
        process = InferenceProcess({})
        await process.start()
        await process.wait_ready()
        return process.fault

    monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere"))
    assert "the inference process cannot be started: [Errno 2]" in str(asyncio.run(start()))


def test_tls(models: dict[str, Path], tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-out", certificate, "-keyout", key],
        check=True, capture_output=True,
    )  # fmt: skip
    options = ["--tls-cert", str(certificate), "--tls-key", str(key)]
    with start_server({"lm": models["lm"]}, tmp_path, options) as running:
        assert running.address.startswith("https://127.0.0.1:")
        with running.client(verify=ssl.create_default_context(cafile=certificate)) as http:
            assert http.get("/readyz").json() == {"ready": True}
            body = {"model": "lm", "prompt": "the", "max_tokens": 3, "stream": True}
            assert http.post("/v1/completions", json=body).text.endswith("data: [DONE]\n\n")
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"), running.client() as http:
            http.get("/readyz")
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(running.address.replace("https", "http") + "/readyz", trust_env=False)


def test_a_certificate_that_is_not_there(models: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="the TLS certificate or key cannot be used: "):
        options = ["--tls-cert", str(tmp_path / "no.pem"), "--tls-key", str(tmp_path / "no.key")]
        with start_server({"lm": models["lm"]}, tmp_path, options):
            pass
