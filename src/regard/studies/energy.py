"""Energy of the processor, where the machine reports it.

Linux counts the joules of each processor package in `/sys/class/powercap` (RAPL), if the processor has a counter that we may
read. The counters are those of the whole package: cells that run at once share it, and so does everything else that runs.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Self

POWERCAP = Path("/sys/class/powercap")


@dataclasses.dataclass
class EnergyMeter:
    """Counts joules since it was opened. Read it now and then: the counters of the system overflow after some minutes."""

    zones: dict[Path, int]
    """The counter of each package, in microjoules, as last read."""
    total: float = 0.0

    @classmethod
    def open(cls, root: Path = POWERCAP) -> Self | None:
        """A meter of all packages; None if this machine does not report its energy."""
        try:
            zones = {zone: _read(zone / "energy_uj") for zone in sorted(root.iterdir()) if zone.name.count(":") == 1}
        except (OSError, ValueError):  # no such folder, or only the administrator may read it
            return None
        return cls(zones) if zones else None

    def joules(self) -> float:
        """Joules since the meter was opened."""
        for zone, before in self.zones.items():
            now = _read(zone / "energy_uj")
            around = _read(zone / "max_energy_range_uj") if now < before else 0
            self.total += (now - before + around) / 1e6
            self.zones[zone] = now
        return self.total


def _read(path: Path) -> int:
    return int(path.read_text())
