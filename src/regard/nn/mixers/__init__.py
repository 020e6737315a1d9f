"""The table of mixers: one file a mechanism, one line here."""

from regard.nn.mixer import MIXERS
from regard.nn.mixers.favor import Favor
from regard.nn.mixers.flash import Flash
from regard.nn.mixers.full import Full
from regard.nn.mixers.recall import Recall

MIXERS.add(Full, Favor, Flash, Recall)

__all__ = ["MIXERS", "Favor", "Flash", "Full", "Recall"]
