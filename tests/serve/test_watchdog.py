"""An inference process that stops working: it is noticed, ended and started again, and what did it is refused."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from regard.serve.api_error import ApiError
from regard.serve.quarantine import Quarantine, digest_request
from regard.serve.vital_signs import COMPUTING, STEP, WAITING, VitalSigns
from regard.serve.watchdog import Watchdog
from tests.serve.running import Running, start_server
from tests.serve.test_robust import read_gauge

PLUGIN = Path(__file__).parent / "stubborn_plugin.py"
SECONDS = 60.0
"""Generous: without a watchdog nothing of this ever happens."""


@pytest.fixture(scope="module")
def server(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    served = {name: models[name] for name in ("lm", "translate")}
    options = ["--plugin", str(PLUGIN), "--limit", "seconds=2", "--limit", "silent_seconds=4"]
    with start_server(served, tmp_path_factory.mktemp("server"), options) as running:
        yield running


def wait_for(http: httpx.Client, status: int) -> httpx.Response:
    end = time.monotonic() + SECONDS
    while (answer := http.get("/readyz")).status_code != status:
        assert time.monotonic() < end, answer.text
        time.sleep(0.05)
    return answer


def ask(running: Running, text: str, model: str = "lm") -> httpx.Response:
    with running.client() as http:
        return http.post("/score", json={"model": model, "inputs": text, "outputs": "b"})


@pytest.mark.slow
def test_a_stopped_process_is_noticed_and_started_again(server: Running) -> None:
    server.wait_ready()
    with server.client() as http, ThreadPoolExecutor(1) as pool:
        before, pid = read_gauge(http, "regard_inference_restarts"), server.inference_pid
        os.kill(pid, signal.SIGSTOP)
        waits = pool.submit(ask, server, "a")
        assert "have not answered for" in wait_for(http, 503).json()["reason"]
        refused = ask(server, "c")
        assert refused.status_code == 503 and "have not answered for" in refused.json()["error"]
        answer = waits.result(SECONDS)
        assert answer.status_code in (503, 504)  # killed, or its own time was up before
        wait_for(http, 200)
        assert server.inference_pid != pid and read_gauge(http, "regard_inference_restarts") == before + 1
        assert ask(server, "a").status_code == 200
    assert "gave no sign of life for 4 seconds and is killed; requests that it computed: none" in server.log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hold in scheduler", "have not answered for"),
        ("sleep in scheduler", "a model has been computing the same thing for"),
    ],
)
def test_a_request_that_stops_the_models_is_refused_afterwards(server: Running, text: str, words: str) -> None:
    server.wait_ready()
    with server.client() as http, ThreadPoolExecutor(1) as pool:
        waits = pool.submit(ask, server, text)
        assert words in wait_for(http, 503).json()["reason"]
        if text.startswith("sleep"):
            assert ask(server, "a", "translate").status_code == 200  # the other model is not affected
        answer = waits.result(SECONDS)
        assert answer.status_code in (503, 504)
        end = time.monotonic() + SECONDS
        while (again := ask(server, text)).status_code != 422:
            assert time.monotonic() < end and again.status_code in (503, 504), again.text
            time.sleep(0.2)
        assert "it is refused for 10 more minutes, other requests are answered" in again.json()["error"]
        wait_for(http, 200)
        assert ask(server, "a").status_code == 200


@pytest.mark.parametrize("text", ["loop in thread", "loop in scheduler"])
def test_the_work_of_a_late_request_ends(server: Running, text: str) -> None:
    server.wait_ready()
    with server.client() as http:
        before = read_gauge(http, "regard_inference_restarts")
        answer = ask(server, text)
        assert answer.status_code == 504 and "within 2 seconds; ask for less" in answer.json()["error"]
        assert ask(server, "a").status_code == 200  # on the same scheduler, which is free again
        assert read_gauge(http, "regard_inference_restarts") == before


def test_the_models_end_quietly_with_their_server(models: dict[str, Path], tmp_path: Path) -> None:
    with start_server({"lm": models["lm"]}, tmp_path) as running:
        child = running.inference_pid
        running.process.kill()
        running.process.wait()
        end = time.monotonic() + SECONDS
        while Path(f"/proc/{child}/cmdline").exists() and Path(f"/proc/{child}/cmdline").read_bytes():
            assert time.monotonic() < end
            time.sleep(0.05)
        log = running.log.read_text()
        assert log.count("the server has ended, and the models end with it") == 1 and "Traceback" not in log


@pytest.fixture
def signs() -> Iterator[VitalSigns]:
    with closing(VitalSigns(8)) as made:
        yield made


def test_the_watchdog_reads_the_signs(signs: VitalSigns) -> None:
    signs.count_beat(time.monotonic())
    dog = Watchdog(signs, seconds=5, allowed=10)

    def look(ago: float) -> str | None:
        """Look as if the process had last beaten a while ago."""
        why = None
        for _ in range(int(ago)):
            dog._looked -= 1.0
            why = dog.look()
        return why

    assert look(2) is None and dog.trouble is None
    assert look(2) is None and dog.trouble == "the models have not answered for 4 seconds" and dog.is_silent
    assert look(6) == "gave no sign of life for 10 seconds"
    signs.count_beat(time.monotonic())
    dog._looked -= 1000  # this process was busy, or the machine asleep
    assert dog.look() is None and dog.trouble is None and not dog.is_silent
    signs.count_beat(time.monotonic() - 7)
    assert dog.look() is None and dog.trouble == "all threads for requests have been taken for 7 seconds"


def test_what_is_computed_is_known(signs: VitalSigns) -> None:
    now, first, second = time.monotonic(), signs.open_scheduler(), signs.open_scheduler()
    with (
        signs.show_request(1, now) as one,
        signs.show_request(2, now) as two,
        signs.show_request(3, now) as three,
        signs.show_request(4, now),
    ):
        for row in (one, two, three):
            row.show(WAITING)
        three.join_batch(second.place)
        assert signs.list_running() == [4]
        first.turn(2)
        assert sorted(signs.list_running()) == [2, 4]
        second.turn(STEP)
        assert sorted(signs.list_running()) == [2, 3, 4]
        one.show(COMPUTING)
        assert sorted(signs.list_running()) == [1, 2, 3, 4]
    assert signs.list_requests() == []
    first.close()
    assert list(signs.list_schedulers()) == [second.place]


def test_a_request_is_refused_if_it_is_surely_to_blame() -> None:
    found, body = Quarantine(), {"inputs": ["a"], "options": {"seed": 1, "beam": 2}}
    guilty, other = digest_request("run", "m", body), digest_request("run", "m", {"inputs": ["b"]})
    assert digest_request("run", "m", {"options": {"beam": 2, "seed": 9}, "inputs": ["a"]}) == guilty != other
    assert found.blame([guilty, other]) == []
    found.check("run", "m", body)
    assert found.blame([guilty, digest_request("run", "m", {})]) == [guilty]  # it was there twice
    with pytest.raises(ApiError, match="it is refused for 10 more minutes") as caught:
        found.check("run", "m", body)
    assert caught.value.status == 422 and 500 < int(caught.value.headers["Retry-After"]) <= 601
    found.check("run", "m", {"inputs": ["b"]})
    found.check("score", "m", body)
    assert Quarantine().blame([other]) == [other]  # it was alone
