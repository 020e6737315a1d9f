"""Outputs as files: what `regard run --out` writes.

    one input, --out tune.mid       tune.mid, tune.png, …: one file per suffix that the output has
    otherwise, --out FOLDER         FOLDER/NAME.mid, …, by the name of each input

The line of an output is the path of its first file. Where a synthesizer is installed, a MIDI file is also written as audio.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from regard.data.music.synthesizer import Synthesizer
from regard.errors import DataError, SpecError
from regard.files.storage import explain_errors, write_output
from regard.tasks.common.capabilities import WritesFiles, supports
from regard.tasks.common.task import Output
from regard.verbs.command import say

Batch = Sequence[tuple[object, Sequence[Output]]]


def check_target(out: Path, task: object, *, single: bool) -> None:
    """Refuse a model whose outputs are not files, and a file name that is not for its files."""
    if not supports(task, WritesFiles):
        raise SpecError(f"this model's outputs are text; write them with > {out} instead of --out")
    if single and not out.is_dir() and out.suffix.lower() != task.file_suffix:
        raise SpecError(f"--out should end in {task.file_suffix} or be a folder, got {out}")


def write_files(batches: Iterable[Batch], out: Path, *, single: bool) -> Iterator[list[tuple[object, list[Output]]]]:
    """Write outputs to files, whose paths become their text. `single`: there is one input."""
    synthesizer, used = Synthesizer.find(), set[Path]()
    for batch in batches:
        done = list[tuple[object, list[Output]]]()
        for given, outputs in batch:
            if not outputs or outputs[0].error is not None:
                done.append((given, list(outputs)))
                continue
            best = outputs[0]
            files = dict(best.files)
            if ".mid" in files and synthesizer is not None:
                try:
                    files[".wav"] = synthesizer.render(files[".mid"])
                except DataError as error:
                    say(str(error))
            stem = _choose_stem(out, given, single, used)
            paths = _write(stem, files, given)
            more = {**best.more, "files": [str(path) for path in paths]}
            done.append((given, [dataclasses.replace(best, text=str(paths[0]), more=more)]))
        yield done


def _choose_stem(out: Path, given: object, single: bool, used: set[Path]) -> Path:
    """Choose the path of an output's files, without their suffix; no two inputs have the same."""
    if single and not out.is_dir():
        return out.with_suffix("")
    name = Path(str(given)).stem[:80] or "output"
    stem, number = out / name, 2
    while stem in used:
        stem, number = out / f"{name}-{number}", number + 1
    used.add(stem)
    return stem


def _write(stem: Path, files: dict[str, bytes], given: object) -> list[Path]:
    paths = [stem.with_name(stem.name + suffix) for suffix in files]
    for path in paths:
        if isinstance(given, str) and _is_same_file(path, given):
            raise SpecError(f"--out {path} would overwrite the input; choose another name")
    with explain_errors("write", stem.parent):
        stem.parent.mkdir(parents=True, exist_ok=True)
        for path, raw in zip(paths, files.values(), strict=True):
            write_output(path, raw)
    return paths


def _is_same_file(path: Path, given: str) -> bool:
    """True if an input is this file; it may also be no path at all."""
    try:
        return path.samefile(given)
    except (OSError, ValueError):
        return False
