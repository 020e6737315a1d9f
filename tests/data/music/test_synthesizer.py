"""Which synthesizer is found, and how it is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.data.music import synthesizer
from regard.data.music.synthesizer import Synthesizer


def install(folder: Path, name: str, text: str = "#!/bin/sh\n") -> str:
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_fluidsynth_needs_a_sound_font(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one TiMidity++ is used, and without any program none."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SOUNDFONT", raising=False)
    monkeypatch.setattr(synthesizer, "SOUND_FONTS", (str(tmp_path / "fonts"),))
    assert Synthesizer.find() is None
    fluid = install(tmp_path, "fluidsynth")
    assert Synthesizer.find() is None
    timidity = install(tmp_path, "timidity")
    assert Synthesizer.find() == Synthesizer(timidity)
    (tmp_path / "fonts").mkdir()
    font = install(tmp_path / "fonts", "piano.sf2")
    assert Synthesizer.find() == Synthesizer(fluid, font)
    monkeypatch.setenv("SOUNDFONT", "mine.sf2")
    assert Synthesizer.find() == Synthesizer(fluid, "mine.sf2")


def test_fluidsynth_writes_to_a_file(tmp_path: Path) -> None:
    """Its options, then font and music, in the order that its manual has."""
    program = install(tmp_path, "fluidsynth", '#!/bin/sh\necho "$1 $2 $3 $4 $5 $7" > "$6"\n')
    assert Synthesizer(program, "a.sf2").render(b"MThd") == b"-ni -q -r 44100 -F a.sf2\n"
