"""Put the native engine into the wheel, where a compiler is there; otherwise the wheel is pure Python and says so once."""

from __future__ import annotations

import importlib.util
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class EngineBuildHook(BuildHookInterface[Any]):
    """Compiles the library before the files of a wheel are collected. An editable install is left to `make`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        compiler = _load(Path(self.root) / "src" / "regard" / "engine" / "compile_library.py")
        try:
            library = compiler.LIBRARY if compiler.is_current() else compiler.compile_library()
        except compiler.CompileError as error:
            self.app.display_warning(f"without the native engine: {error}; models will run on torch")
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        build_data["artifacts"] += [f"src/regard/engine/{path.name}" for path in (library, compiler.STAMP)]


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("compile_library", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
