"""A server whose model is swapped, whose processes are killed, and whose answers are watched: a part of `chaos.py`."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.faults.inject import FULL, KILLED, Plan
from tests.faults.writers import RECIPES, write_inputs

if TYPE_CHECKING:
    from tests.faults.chaos import Life, Machine

TEXTS = ["the cat", "a man", "it"]
WITHIN = 900
"""Seconds in which a server answers again, or has taken a new model: the machine may be busy."""
PAUSE = 0.3
REFUSALS = (429, 503, 504)
YEARS = 86400 * 365


class Swapped:
    """A server of one model, which is replaced by another and back."""

    def __init__(self, machine: Machine, folder: Path, draw: random.Random) -> None:
        self.machine, self.figures, self.folder, self.draw = machine, machine.figures, folder, draw
        self.plan_path = folder.with_name("server.plan")
        self.process: subprocess.Popen[bytes] | None = None
        self.address = ""
        self.known: dict[str, str] = {}
        self.done, self.down = threading.Event(), threading.Event()

    def run(self, end: float) -> None:
        """Serve until then."""
        self._prepare()
        self._start()
        for name in "ba":  # what each answers; the first is there already
            if name != self.last:
                self._swap(name)
            before = {*self.known.values()}
            self.known[name] = self._wait_for(lambda answer, before=before: answer not in before)
        if self.machine.stop.is_set():
            return
        watcher = threading.Thread(target=self._watch)
        watcher.start()
        try:
            while time.monotonic() < end and not self.machine.stop.is_set():
                act = self.draw.choice([self._swap_well] * 3 + [self._swap_badly] * 3 + [
                    self._kill_inference, self._kill_server, self._end_server, self._jump])  # fmt: skip
                self.figures.count(self.figures.disturbed, act.__name__.strip("_").replace("_", " "))
                act()
                self._check_ready()
        finally:
            self.done.set()
            watcher.join(60)
            self._stop(signal.SIGKILL)

    def _prepare(self) -> None:
        from tests.faults.chaos import Disturbance

        write_inputs(self.folder)
        (self.folder / "lm.yaml").write_text(json.dumps(RECIPES["lm"]))
        for seed, name in enumerate("ab"):
            out = f"run-{name}"
            words = (
                "train",
                "lm.yaml",
                "--out",
                out,
                "--quiet",
                "--set",
                f"train.seed={seed}",
                "--set",
                "train.steps=60",
            )
            for each in (words, ("convert", out, name, "--to", "hf")):
                life = self.machine.live(each, self.folder, Disturbance("none"))
                if life.code and not self.machine.stop.is_set():
                    raise AssertionError(life.err[-400:])
        shutil.copytree(self.folder / "run-b" / "final", self.folder / "served")
        self.last = "b"

    # -------------------------------------------------------------------------------------------------- what happens

    def _swap(self, name: str, **how: Any) -> Life:
        from tests.faults.chaos import Disturbance

        self.last = name
        words = ("convert", name, "served")
        return self.machine.live(words, self.folder, Disturbance("swap", **how), 60, 4.0)

    def _swap_well(self) -> None:
        name = "a" if self.last == "b" else "b"
        life = self._swap(name)
        if life.code and not self.machine.stop.is_set():
            self.figures.fail("unclear", f"a swap ended with {life.code}: {life.err[-400:]!r}")
            return
        self._wait_for(lambda answer: answer == self.known[name])

    def _swap_badly(self) -> None:
        name = "a" if self.last == "b" else "b"
        target = self.draw.uniform(0, 1)
        how = self.draw.choice([{"fault": KILLED, "target": target}, {"fault": FULL, "target": target},
                                {"signal": signal.SIGTERM, "moment": self.draw.uniform(0, 1)}])  # fmt: skip
        life = self._swap(name, **how)
        if "Traceback" in life.err or "regard: unexpected" in life.err:
            self.figures.fail("unclear", f"a swap: {how}: {life.err[-500:]!r}")
        elif life.code > 0 and "regard: " not in life.err:
            self.figures.fail("silent", f"a swap: {how}: {life.code}: {life.err[-300:]!r}")

    def _kill_inference(self) -> None:
        assert self.process is not None
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if children:
            with suppress(ProcessLookupError):
                os.kill(int(children[0]), signal.SIGKILL)

    def _kill_server(self) -> None:
        self._stop(signal.SIGKILL)
        self._start()

    def _end_server(self) -> None:
        code = self._stop(self.draw.choice([signal.SIGTERM, signal.SIGINT]))
        if code not in (0, 130, 143, -signal.SIGTERM, -signal.SIGINT):  # the signal that told it to
            self.figures.fail("unclear", f"a server that was told to stop ended with {code}: {self._said()[-400:]!r}")
        self._start()

    def _jump(self) -> None:
        Plan(self.plan_path).jump(self.draw.choice([-50, -1, 0, 1, 12]) * YEARS)

    # -------------------------------------------------------------------------------------------------- the server

    def _start(self) -> None:
        Plan(self.plan_path).set(self.folder.with_name("nothing"))
        place = self.folder.with_name("server")
        place.mkdir(exist_ok=True)
        said = place.with_name("server.said")
        with suppress(FileNotFoundError):
            said.unlink()
        words = ("serve", f"m={self.folder / 'served'}", "--port", "0")
        self.process = self.machine.start(words, place, self.plan_path)
        end = time.monotonic() + WITHIN
        while not (found := re.search(r" on (http://\S+)", self._said())):
            if self.machine.stop.is_set():
                return
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"the server did not start: {self._said()[-600:]}")
            time.sleep(0.1)
        self.address = found[1]
        self.down.clear()

    def _stop(self, number: int) -> int:
        assert self.process is not None
        self.down.set()
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            self.process.wait(WITHIN)
        except subprocess.TimeoutExpired:
            self.figures.fail("silent", f"a server did not stop within {WITHIN} s of signal {number}")
            self.process.kill()
            self.process.wait()
        if "Traceback" in (said := self._said()):
            self.figures.fail("unclear", f"the server said {said[said.index('Traceback') :][-600:]!r}")
        return self.process.returncode

    def _said(self) -> str:
        path = self.folder.with_name("server.said")
        return path.read_text(errors="replace") if path.exists() else ""

    def _ask(self) -> tuple[int, str]:
        """The status and the texts, or the message; 0 if there is no server."""
        body = json.dumps({"inputs": TEXTS, "options": {"max_length": 12}}).encode()
        request = urllib.request.Request(f"{self.address}/run", body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=WITHIN) as answer:
                return answer.status, json.dumps(json.load(answer)["outputs"])
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(errors="replace")
        except OSError as error:
            return 0, str(error)

    def _wait_for(self, wanted: Any) -> str:
        """The answer, once it is one that is wanted."""
        end, answer = time.monotonic() + WITHIN, ""
        while time.monotonic() < end and not self.machine.stop.is_set():
            status, answer = self._ask()
            if status == 200 and wanted(answer):
                return answer
            time.sleep(PAUSE)
        if not self.machine.stop.is_set():
            self.figures.fail("lost", f"a new model is not served after {WITHIN} s: {answer[:300]!r}")
        return answer

    def _check_ready(self) -> None:
        end = time.monotonic() + WITHIN
        while not self.machine.stop.is_set() and self._ask()[0] != 200:
            if time.monotonic() > end:
                self.figures.fail("lost", f"the server does not answer after {WITHIN} s: {self._said()[-400:]!r}")
                self._kill_server()
                return
            time.sleep(PAUSE)

    def _watch(self) -> None:
        """Ask all the time, and judge every answer."""
        while not self.done.is_set() and not self.machine.stop.is_set():
            was_down = self.down.is_set()
            status, said = self._ask()
            if status == 200:
                name = next((name for name, answer in self.known.items() if answer == said), "")
                self.figures.count(self.figures.answers, f"of model {name}" if name else "of no model")
                if not name:
                    self.figures.fail("different", f"the server answered {said[:300]!r}")
            elif status == 0:
                self.figures.count(self.figures.answers, "no server")
                if not was_down and not self.down.is_set():
                    time.sleep(1)
                    if not self.down.is_set() and self.process is not None and self.process.poll() is not None:
                        self.figures.fail("lost", f"the server is gone: {said}; {self._said()[-400:]!r}")
            else:
                self.figures.count(self.figures.answers, f"refused with {status}")
                if status not in REFUSALS or "error" not in said:
                    self.figures.fail("unclear", f"the server answered {status}: {said[:300]!r}")
            time.sleep(PAUSE)
