"""The table of mixers: one file a mechanism, one line here."""

from regard.nn.mixer import MIXERS
from regard.nn.mixers.flash import Flash
from regard.nn.mixers.full import Full

MIXERS.add(Full, Flash)

__all__ = ["MIXERS", "Flash", "Full"]
