"""Basis of the result of a cell besides its settings.

The basis is part of the name of a cell, so that a changed plugin, test file, Regard or torch is another cell. The processor is
recorded with the result and is not part of the name: it changes the last digits, and a study may run on several machines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from regard.digests import digest_code, digest_files
from regard.errors import DataError, SpecError
from regard.machine import versions
from regard.registry import find_homes
from regard.spec import Plain
from regard.training.run.run_changes import describe_plugin, list_changes, list_words

TESTS = "tests"


def find_basis(settings: Plain, plugins: Sequence[str]) -> Plain:
    """Return the versions, and the digests of plugins and test files, that a cell with these settings rests on."""
    ours = versions()
    homes = find_homes(list_words(settings))
    return {
        "regard": ours["regard"],
        "torch": ours["torch"],
        "plugins": digest_code([*map(Path, plugins), *homes]),
        TESTS: digest_tests(settings),
    }


def digest_tests(settings: Plain) -> dict[str, str]:
    """Return the digest of the files of each test set that has files."""
    tests = settings.get(TESTS) or {}
    return {name: digest_files(test["files"]) for name, test in tests.items() if "files" in test}


def check_tests(settings: Plain, basis: Plain) -> None:
    """Refuse to test on other files than the study was started with."""
    for name, digest in digest_tests(settings).items():
        if basis.get(TESTS, {}).get(name, digest) != digest:
            raise DataError(
                f"the test data {', '.join(settings[TESTS][name]['files'])} changed since the study started, or this "
                "machine has other files under the same names; restore it, or start the study again"
            )


def check_plugins(plugins: Sequence[str], basis: Plain) -> None:
    """Refuse to compute with other code than the study was started with."""
    for name, digest in digest_code(map(Path, plugins)).items():
        if basis.get("plugins", {}).get(name, digest) != digest:
            raise SpecError(
                f"{describe_plugin(name, basis['plugins'][name], digest)}: it changed since the study started, or this "
                "machine has another file under the same name; start the study again"
            )


def describe_difference(was: Plain | None, now: Plain) -> list[str]:
    """Say how two bases differ; a cell of an earlier version has none."""
    if was is None:
        return ["the code and test files they were made with were not recorded"]
    out = []
    for change in list_changes(was, now, plain=True):
        part, _, name = change.path.partition(".")
        if part == "plugins":
            out.append(describe_plugin(name, change.old, change.new))
        elif part == TESTS:
            out.append(f"the files of the test set {name!r} were {change.old} and are {change.new} now")
        else:
            out.append(f"{part} was {change.old} and is {change.new} now")
    return out


def same_settings(a: Mapping[str, object], b: Mapping[str, object]) -> bool:
    """Return whether settings are the same, as JSON writes them."""
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)
