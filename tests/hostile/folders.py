"""All folders that mean harm; importing a file fills the table."""

from __future__ import annotations

import tests.hostile.files
import tests.hostile.gguf_files
import tests.hostile.pickles
import tests.hostile.settings
import tests.hostile.tokens
import tests.hostile.weights  # noqa: F401
from tests.hostile.place import ATTACKS, Place

__all__ = ["ATTACKS", "Place"]
