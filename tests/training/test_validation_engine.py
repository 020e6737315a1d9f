"""Validation with another engine: the same scores, and the run says which engine judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.engine.compile_library import is_current
from regard.errors import SpecError
from regard.training.train import run_training
from tests.training.small import events, tiny

pytestmark = pytest.mark.numeric


@pytest.mark.skipif(not is_current(), reason="the native library is not compiled")
def test_the_native_engine_judges_as_torch_does(tmp_path: Path) -> None:
    for engine in ("torch", "native"):
        run_training(tiny(tmp_path / engine, train__validation_engine=engine, decode__beam=3))
    for kind in ("valid", "done"):
        ours, theirs = (events(tmp_path / engine, kind) for engine in ("native", "torch"))
        assert {event["engine"] for event in ours} == {"native"} and {event["engine"] for event in theirs} == {"torch"}
        for one, other in zip(ours, theirs, strict=True):
            assert one["scores"] == pytest.approx(other["scores"], abs=1e-4)
    one, other = (events(tmp_path / engine, "done")[0]["examples"] for engine in ("native", "torch"))
    assert one == other


def test_an_engine_that_cannot_is_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="engine native: the native engine has no"):
        run_training(
            tiny(
                tmp_path,
                train__validation_engine="native",
                model__encoder__block__mix={"kind": "performer", "heads": 2},
            )
        )
    assert not events(tmp_path, "valid")
