"""Audio of MIDI files, by a synthesizer that is installed.

FluidSynth needs a sound font: the one that the variable SOUNDFONT names, or one in the usual folders. TiMidity++ has its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from regard.errors import DataError
from regard.files.user_file import read_user_file

SOUND_FONTS = ("/usr/share/sounds/sf2", "/usr/share/sounds/sf3", "/usr/share/soundfonts", "/usr/local/share/soundfonts")
MAX_SECONDS = 300
RATE = 44_100
MAX_BYTES = 1 << 30
"""Maximum bytes of a WAV file: an hour and a half of stereo."""


@dataclass(frozen=True)
class Synthesizer:
    """A program that turns a MIDI file into audio."""

    program: str
    font: str | None = None

    @classmethod
    def find(cls) -> Synthesizer | None:
        """The synthesizer of this machine, if there is one that can be used."""
        font = _find_font()
        if (program := shutil.which("fluidsynth")) and font is not None:
            return cls(program, font)
        program = shutil.which("timidity")
        return None if program is None else cls(program)

    def render(self, midi: bytes) -> bytes:
        """A MIDI file as a WAV file."""
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder) / "music.mid", Path(folder) / "music.wav"
            source.write_bytes(midi)
            if self.font is not None:
                command = [self.program, "-ni", "-q", "-r", str(RATE), "-F", str(target), self.font, str(source)]
            else:
                command = [self.program, "-Ow", "-s", str(RATE), "-o", str(target), str(source)]
            try:
                done = subprocess.run(command, capture_output=True, timeout=MAX_SECONDS, stdin=subprocess.DEVNULL)
            except (OSError, subprocess.TimeoutExpired) as error:
                raise DataError(f"{self.program} made no audio: {str(error)[:80]}") from None
            if done.returncode or not target.is_file():
                said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
                raise DataError(f"{self.program} made no audio: {said[:80] or f'exit code {done.returncode}'}")
            return read_user_file(target, MAX_BYTES, what="audio")


def _find_font() -> str | None:
    if named := os.environ.get("SOUNDFONT"):
        return named
    found = (path for folder in SOUND_FONTS for path in sorted(Path(folder).glob("*.sf[23]")))
    return next((str(path) for path in found), None)
