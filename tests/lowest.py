"""Print the lowest versions that pyproject.toml allows.

`make test-lowest` installs them and runs the tests. torch is left out: only the version in constraints.txt is tested.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path


def lowest(project: str, *extras: str) -> list[str]:
    """A pin per direct dependency of the package and of these extras."""
    said = tomllib.loads(project)["project"]
    wanted = [*said["dependencies"], *(line for name in extras for line in said["optional-dependencies"][name])]
    pins = []
    for line in wanted:
        if own := re.fullmatch(r"regard\[(.*)\]", line):
            pins += [pin for pin in lowest(project, *own[1].split(",")) if pin not in pins]
        elif not line.startswith("torch>="):
            pins.append(line.replace(">=", "=="))
    return list(dict.fromkeys(pins))


if __name__ == "__main__":
    print("\n".join(lowest((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"), "test")))
