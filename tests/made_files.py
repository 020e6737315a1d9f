"""Small files for the commands of the pages: pairs, texts, labels, pictures."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

from regard.data.music.grid_notes import Note
from regard.data.music.midi_file import write_midi

ENGLISH = [" ".join((*words, ".")) for words in product(("A", "The"), ("dog", "cat", "bird"), ("runs", "sleeps"))]
GERMAN = [
    " ".join((*words, ".")) for words in product(("Ein", "Der"), ("Hund", "Kater", "Vogel"), ("rennt", "schläft"))
]


def write_files() -> None:
    """Write them into the current folder."""
    for part in ("train", "test", "valid"):
        _lines(f"{part}.en", ENGLISH)
        _lines(f"{part}.de", GERMAN)
    _lines("crawled.en", [*ENGLISH, "", "same", "A dog"])
    _lines("crawled.de", [*GERMAN, "leer", "same", "Ein Hund"])
    _lines("mono.de", GERMAN[:6])
    pairs = [f"{one}\t{other}" for one, other in zip(ENGLISH, GERMAN, strict=True)]
    for name in ("pairs", "valid", "summaries", "more"):
        _lines(f"{name}.tsv", ["source\ttarget", *pairs])
    _lines("languages.csv", ["english,german", *(pair.replace("\t", ",") for pair in pairs)])
    _lines("letters.tsv", ["source\ttarget", "abc\tabc", "hgf\thgf", "jade\tjade"])
    _lines("terms.tsv", ["dog\tKater"])
    _lines("book.txt", [line for _ in range(20) for line in ENGLISH])
    labels = ["text\tlabel", *(f"{line}\t{'good' if 'dog' in line else 'bad'}" for line in ENGLISH * 4)]
    _lines("reviews.tsv", labels)
    tunes = [[[60 + i % 7, 67], [62 + i % 5], [64]] * 4 for i in range(12)]
    _lines("tunes.json", [json.dumps(tunes)])
    Path("src").mkdir(exist_ok=True)
    for name in ("shapes", "points", "lines"):
        code = [f"def {name}(width, height):", f"    return '{name}', width * height  # {name}"]
        for kind in ("py", "c"):
            _lines(f"src/{name}.{kind}", code * 8)
    voices = [[[72 + i % 5, 67, 64, 48], [74, 67, 65, 47]] * 4 for i in range(12)]
    _lines("voices.json", [json.dumps(voices)])
    melody = [Note(4 * i, 4 * i + 4, 72 + i) for i in range(3)]
    Path("melody.mid").write_bytes(write_midi(melody, ticks_per_step=120, ticks_per_beat=480))
    story = ["1 Mary went home.", "2 John left.", "3 Where is Mary? \thome\t1", "4 Where is John? \tout\t2"]
    _lines("stories.txt", story * 8)
    films = ["Toy Story (1995)", '"Matrix, The (1999)"', "Heat (1995)", "Fargo (1996)", "Alien (1979)", "Emma (1996)"]
    _lines("movies.csv", ["movieId,title,genres", *(f"{i},{film},Film" for i, film in enumerate(films))])
    seen = [f"{user},{(user + step) % 6},4.0,{step}" for user in range(12) for step in range(4)]
    _lines("ratings.csv", ["userId,movieId,rating,timestamp", *seen])


def _lines(name: str, lines: list[str]) -> None:
    Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
