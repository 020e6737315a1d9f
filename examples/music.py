"""Tunes to try the music model on, and continuations of one at several temperatures.

python examples/music.py tunes                       write a folder of small tunes as MIDI files
regard train music tunes                             learn them
python examples/music.py runs/music tunes/00.mid     continue one of them, more and less boldly
"""

import sys
from pathlib import Path

from rich.console import Console

import regard
from regard.data.example_rng import Rng
from regard.data.music.grid_notes import Note
from regard.data.music.midi_file import write_midi

SCALE = (0, 2, 4, 5, 7, 9, 11)
CHORDS = ((0, 2, 4), (3, 5, 7), (4, 6, 8), (0, 2, 4))
"""Steps of the scale: I, IV, V, I."""


def pitch(step: int) -> int:
    return 60 + 12 * (step // 7) + SCALE[step % 7]


def make_tune(number: int, bars: int = 8) -> list[Note]:
    """A melody in eighths that wanders over the notes of the chords below it; four steps are a quarter note."""
    rng, out, at = Rng(number), list[Note](), 7
    key = rng.integer(7) - 3
    for bar in range(bars):
        chord = CHORDS[bar % len(CHORDS)]
        out += [Note(16 * bar, 16 * bar + 16, pitch(step) - 12 + key, 56) for step in chord]
        for eighth in range(8):
            near = sorted((step + 7 * octave for step in chord for octave in (0, 1)), key=lambda step: abs(step - at))
            at = near[rng.integer(3)] if eighth % 2 == 0 else at + rng.integer(3) - 1
            out.append(
                Note(16 * bar + 2 * eighth, 16 * bar + 2 * eighth + 2, pitch(at) + key, 80 if eighth % 4 else 96)
            )
    return out


def write_tunes(folder: Path, count: int = 40) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        raw = write_midi(make_tune(number), ticks_per_step=120, ticks_per_beat=480)
        (folder / f"{number:02}.mid").write_bytes(raw)
    print(f"{count} tunes in {folder}; train a model with: regard train music {folder}")


def continue_tune(model: regard.Model, tune: str) -> None:
    console = Console(markup=False, highlight=False)
    for temperature in (0.7, 1.0, 1.3):
        ((best,),) = model.run_all([tune], temperature=temperature, max_extra=256)
        name = f"{Path(tune).stem}-{temperature}"
        for suffix, raw in best.files.items():
            Path(f"{name}{suffix}").write_bytes(raw)
        console.print(f"{name}.mid, temperature {temperature}")
        for line in best.explanation:
            console.print(f"  {line}")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        continue_tune(regard.load(sys.argv[1]), sys.argv[2])
    else:
        write_tunes(Path(sys.argv[1] if len(sys.argv) == 2 else "tunes"))
