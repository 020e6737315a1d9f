"""Mixers: one file per mechanism, imported here."""

from regard.nn.core.mixer import MIXERS
from regard.nn.mixers.bigbird import BigBird
from regard.nn.mixers.flash import Flash
from regard.nn.mixers.full import Full
from regard.nn.mixers.gated_convolution import GatedConvolution
from regard.nn.mixers.linear_attention import LinearAttention
from regard.nn.mixers.linformer import Linformer
from regard.nn.mixers.local import Local
from regard.nn.mixers.lsh import Lsh
from regard.nn.mixers.performer import Performer
from regard.nn.mixers.recurrent import GRU, LSTM, RNN
from regard.nn.mixers.sparse import Sparse
from regard.nn.mixers.xl_memory import XLMemory

__all__ = [
    "GRU", "LSTM", "MIXERS", "RNN", "BigBird", "Flash", "Full", "GatedConvolution", "LinearAttention", "Linformer",
    "Local", "Lsh", "Performer", "Sparse", "XLMemory",
]  # fmt: skip
