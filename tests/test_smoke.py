"""Every recorded result has a smoke form, and a bench without one of its contenders fails."""

from __future__ import annotations

import argparse
import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest
from bench import __main__ as everything
from bench import entry, headlines, launch, race, results, smoke
from bench.entry import Mode
from bench.study import find_failed
from bench.study_commands import COMMANDS, SMOKE

RESULTS = sorted(path.stem for path in smoke.RESULTS.glob("*.json"))
WORKER = """
import json, sys
from bench.race import serve

def turn(case):
    if "stops" in sys.argv: raise SystemExit(3)
    return {"tokens_per_s": float("nan") if "nan" in sys.argv else 5.0}

if "fails" in sys.argv: raise ValueError("no such operator")
serve(turn)
"""


@pytest.fixture(autouse=True)
def mode(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process that was not asked for anything, and whose results go elsewhere."""
    for name, value in (("record", False), ("smoke", False), ("check", False), ("command", ""), ("scratch", None)):
        monkeypatch.setattr(Mode, name, value)
    monkeypatch.setattr(results, "RECORDED", tmp_path / "results")
    monkeypatch.setattr(results, "MEASURED", tmp_path / "runs" / "results")


class Parsed(Exception):
    """Arguments were understood; nothing has run."""


def command(name: str) -> str:
    """The command of a recorded result."""
    found: str = json.loads((smoke.RESULTS / f"{name}.json").read_text(encoding="utf-8"))["command"]
    return found


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_has_a_smoke_form(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its command leads to a module whose own parser takes these words and `--smoke`."""
    parse = argparse.ArgumentParser.parse_args

    def stop(self: argparse.ArgumentParser, words: list[str] | None = None) -> NoReturn:
        assert parse(self, words).smoke
        raise Parsed

    module, *words = smoke.find_call(name, command(name))
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    monkeypatch.setattr(sys, "argv", [module, *words])
    monkeypatch.delitem(sys.modules, module, raising=False)  # it would run twice
    with pytest.raises(Parsed):
        runpy.run_module(module, run_name="__main__", alter_sys=True)


@pytest.mark.parametrize(
    "command", ["python -m bench.gone", "regard train dates --out runs/x", "regard study compare a b", "make bench"]
)
def test_a_command_without_a_smoke_form_is_an_error(command: str) -> None:
    with pytest.raises(
        SystemExit, match=r"^results/new\.json: `.*` has no smoke form; expected `python -m bench\.NAME …`"
    ):
        smoke.find_call("new", command)


def test_every_study_has_a_smoke_form() -> None:
    assert SMOKE.keys() == COMMANDS.keys()


def test_smoke_refuses_an_unknown_result() -> None:
    with pytest.raises(SystemExit, match="there is no result nothing in results/"):
        smoke.list_calls(["nothing"])


@pytest.fixture
def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module `contender`, which fails as its arguments say."""
    (tmp_path / "contender.py").write_text(WORKER, encoding="utf-8")
    places = [str(tmp_path), str(entry.ROOT), str(entry.ROOT / "src")]
    monkeypatch.setenv("PYTHONPATH", ":".join(places) if sys.platform != "win32" else ";".join(places))
    return tmp_path


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("fails", r"theirs 1 did not start \(exit code 1\)"),
        ("stops", r"theirs 1 stopped at 1x1 \(exit code 3\)"),
        ("nan", "theirs 1 answered tokens_per_s = nan"),
    ],
)
def test_race_fails_by_name_of_the_contender(workers: Path, how: str, message: str) -> None:
    with pytest.raises(SystemExit, match=message) as failed:
        race.race({"ours": ["contender"], "theirs 1": ["contender", how]}, 1, ("1x1",))
    assert "Nothing is recorded. To race without it: --without 'theirs 1'" in str(failed.value)


def test_race_gives_the_answers_of_all(workers: Path) -> None:
    found = race.race({"ours": ["contender"], "theirs": ["contender"]}, 2, ("1x1",))
    assert {name: [row["tokens_per_s"] for row in rows] for name, rows in found.items()} == {
        "ours": [5.0, 5.0],
        "theirs": [5.0, 5.0],
    }


def ask(*words: str) -> list[str]:
    names = ["regard", "ctranslate2 int8", "x-transformers, our batches and allocator"]
    return entry.choose(entry.parse(argparse.ArgumentParser(), words, contenders=names), names)


def test_choose_refuses_a_contender_whose_package_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = {"x_transformers"}
    monkeypatch.setattr(entry, "find_spec", lambda name: None if name in missing else object())
    with pytest.raises(
        SystemExit, match=r"needs the package x_transformers, which is not installed: make .venv/.benched"
    ):
        ask()
    with pytest.raises(SystemExit, match="--without 'x-transformers, our batches and allocator'"):
        ask("--record")
    assert ask("--without", "x-transformers, our batches and allocator") == ["regard", "ctranslate2 int8"]
    assert ask("--only", "regard") == ["regard"]
    assert ask("--smoke") == ["regard", "ctranslate2 int8"]
    assert "without 'x-transformers, our batches and allocator' needs the package" in capsys.readouterr().err
    missing.clear()
    assert len(ask()) == 3


def test_a_figure_that_is_no_number_is_not_recorded(tmp_path: Path) -> None:
    figures = {"nanoGPT": {"regard is faster by": float("nan")}}
    with pytest.raises(
        SystemExit, match=r"speed: \[nanoGPT\]\[regard is faster by\] is no finite number, so nothing is"
    ):
        results.write("speed", title="Speed", figures=figures)
    assert not (tmp_path / "runs").exists()


def test_a_missing_data_set_is_skipped_in_a_smoke_run_and_refused_in_a_real_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(entry, "DATA", tmp_path)
    for smokes, code in ((True, entry.SKIPPED), (False, 1)):
        monkeypatch.setattr(Mode, "smoke", smokes)
        with pytest.raises(SystemExit) as ended:
            entry.find_data("scan", "tasks.txt.gz")
        assert ended.value.code == code
        assert "needs ../shared/data/scan/tasks.txt.gz, which is not here" in capsys.readouterr().err


def test_a_smoke_run_writes_its_result_into_a_folder_that_does_not_stay(tmp_path: Path) -> None:
    said = entry.parse(argparse.ArgumentParser(), ["--smoke", "--record"], out="runs/x", seeds=(4, 5))
    path = results.write("speed", title="Speed", figures={"tokens/s": 3})
    assert said.seed == [4] and not said.out.is_relative_to(entry.ROOT)
    assert Mode.scratch is not None and path.is_relative_to(Mode.scratch.name) and path.exists()
    Mode.scratch.cleanup()
    assert not path.exists() and not (tmp_path / "results").exists()


@pytest.mark.skipif(not hasattr(socket := __import__("socket"), "send_fds"), reason="needs forks")
def test_a_fork_is_like_a_process_of_its_own(workers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (workers / "echo.py").write_text(
        "import os, sys\nprint(sys.argv[1:], sys.stdin.read(), os.environ['WORD'], __name__)\nsys.exit(7)\n"
    )
    said = []
    for server in (False, True):
        monkeypatch.setenv("WORD", "same")
        with launch.serve_forks(["json"]) if server else pytest.MonkeyPatch.context():
            process = launch.start(["echo", "a b"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert isinstance(process, launch.Fork) == server
            assert process.stdin is not None and process.stdout is not None
            with process.stdin as to:
                to.write("asked")
            with process.stdout as lines:
                said.append((lines.read(), process.wait()))
            with pytest.raises(SystemExit, match=r"^python -m echo 'c d' ended with 7; nothing is recorded$"):
                launch.call(["echo", "c d"])
    assert said[0] == said[1] == ("['a b'] asked same __main__\n", 7)


PART = """
import argparse
from bench import entry

entry.PACKAGES["absent"] = "no_such_package"
CONTENDERS = ("regard", "absent one")
if __name__ == "__main__":
    said = entry.parse(argparse.ArgumentParser(), contenders=CONTENDERS)
    print("it ran:", entry.choose(said, CONTENDERS), said.record, flush=True)
"""


def test_bench_starts_nothing_if_one_part_cannot_run(
    workers: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (workers / "part.py").write_text(PART, encoding="utf-8")
    monkeypatch.syspath_prepend(str(workers))
    monkeypatch.setattr(everything, "PARTS", {"first": ["part", "--only", "regard"], "second": ["part"]})
    assert everything.main(["--record"]) == 1
    out, err = capfd.readouterr()
    assert "python -m part --only regard --record\npython -m part --record\n" in out and "it ran" not in out
    assert "'absent one' needs the package no_such_package" in err
    assert "second cannot run, so nothing was started" in err
    assert everything.main(["--record", "--without", "absent one"]) == 0
    assert capfd.readouterr().out.count("it ran: ['regard'] True") == 2
    assert everything.main(["--check", "--without", "absent one"]) == 0
    assert everything.main(["--check"]) == 1
    assert "it ran" not in capfd.readouterr().out
    assert everything.main(["--without", "nobody"]) == 2
    assert "no contender 'nobody'; there is absent one, regard" in capfd.readouterr().err


def test_every_part_of_make_record_has_a_recorded_result_with_its_command() -> None:
    """What `make record` runs and what the results name are the same benches."""
    named = {smoke.find_call(name, command(name))[0] for name in RESULTS}
    assert {words[0] for words in everything.PARTS.values()} <= named
    headlined = {command(name).split()[2] for name in headlines.README if name.startswith("bench-")}
    assert headlined <= {words[0] for words in everything.PARTS.values()}


def test_a_study_names_the_contenders_without_a_score() -> None:
    made = [{"name": name, "mean": mean, "scores": []} for name, mean in (("pre", 30.5), ("post", None))]
    assert find_failed({"study": "compare", "contenders": made}) == ["post"]
    assert find_failed({"study": "transfer", "tasks": {"lm": {"contenders": made}}}) == ["lm post"]
    assert find_failed({"study": "complexity", "contenders": [{"name": "full", "time": None}]}) == []
