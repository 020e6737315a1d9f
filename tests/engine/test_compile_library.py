"""Compiling: which compiler, what is said without one, and when it is done again."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from regard.api.doctor import doctor
from regard.engine import compile_library, native_library
from regard.engine.choose_engine import choose_engine
from tests.engine.models import FAMILIES, build


def test_a_compiler_is_the_users_or_the_systems_or_zig(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "my-compiler --fast")
    assert compile_library.find_compiler() == ["my-compiler", "--fast"]
    monkeypatch.delenv("CXX")
    monkeypatch.setattr(compile_library.shutil, "which", lambda name: name == "clang++" or None)
    assert compile_library.find_compiler() == ["clang++"]
    monkeypatch.setattr(compile_library.shutil, "which", lambda name: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    found = compile_library.find_compiler()
    assert found is not None and found[1:] == ["-m", "ziglang", "c++"]


def test_without_a_compiler_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(compile_library, "find_compiler", lambda: None)
    monkeypatch.setattr(compile_library, "LIBRARY", tmp_path / "none.so")
    assert compile_library.main() == 0
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "no C++ compiler was found" in said and "models run on torch" in said


def test_without_the_library_models_run_on_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(native_library, "LIBRARY", tmp_path / "none.so")
    chosen = choose_engine(build(FAMILIES["gpt"]))
    assert chosen.name == "torch" and "`regard doctor --build` compiles it" in chosen.reason


def test_a_failing_compiler_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = tmp_path / "broken"
    compiler.write_text("#!/bin/sh\necho 'x.cpp:1: error: no luck' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(compile_library.CompileError, match="error: no luck"):
        compile_library.compile_library(tmp_path / "out.so")
    assert not (tmp_path / "out.so").exists()


def test_the_doctor_knows_the_engine() -> None:
    found = {finding.what: finding for finding in doctor(build=True).findings}
    assert found["build"].healthy
    assert "this processor uses" in found["native engine"].detail
