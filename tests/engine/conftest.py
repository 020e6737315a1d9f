"""The native library as the sources are: compiled once where there is a compiler; otherwise these tests are skipped."""

from __future__ import annotations

import pytest

from regard.engine.compile_library import compile_library, find_compiler, is_current


@pytest.fixture(scope="session", autouse=True)
def library() -> None:
    if not is_current():
        if find_compiler() is None:
            pytest.skip("the native library is not compiled, and there is no compiler")
        compile_library()
