"""Open a model without torch, where that is possible.

A child process checks the tokenizers (see `text/sandbox.py`) while this one imports what the model needs.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from regard.engine.engine_plan import FORMAT, PLAN
from regard.files.folder import SOURCE_TOKENIZER, TOKENIZER
from regard.serialization.model_folder import find_model, read_config
from regard.text.sandbox import begin_check

if TYPE_CHECKING:
    from regard.api.light_model import LightModel


def open_light(path: str | Path, *, device: str = "auto") -> LightModel | None:
    """Open a model folder without torch; None if torch may have a faster device, or if there is no plan for its files."""
    if device not in ("auto", "cpu") or (device == "auto" and _may_have_accelerator()):
        return None
    folder = find_model(path, map_weights=True)
    if PLAN not in folder:
        return None
    config, plan = read_config(folder), folder.json(PLAN)
    if not isinstance(plan, dict) or plan.get("format") != FORMAT:
        return None
    for name in (TOKENIZER, SOURCE_TOKENIZER):
        if name in folder:
            begin_check(folder[name])
    from regard.api.light_model import build_light
    from regard.engine.native_library import find_fault

    return None if find_fault() else build_light(folder, config, plan)


def _may_have_accelerator() -> bool:
    """True if torch might find a GPU, which it would prefer."""
    return sys.platform == "darwin" or Path("/dev/nvidia0").exists() or Path("/dev/kfd").exists() or os.name == "nt"
