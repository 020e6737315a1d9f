"""Energy from the counters of Linux, where there are any."""

from __future__ import annotations

from pathlib import Path

from regard.studies.energy import EnergyMeter


def package(root: Path, name: str, energy: int) -> Path:
    zone = root / name
    zone.mkdir(parents=True)
    (zone / "energy_uj").write_text(f"{energy}\n")
    (zone / "max_energy_range_uj").write_text("1000000\n")
    return zone


def test_packages_are_added_and_their_parts_are_not(tmp_path: Path) -> None:
    zones = [package(tmp_path, "intel-rapl:0", 100), package(tmp_path, "intel-rapl:1", 0)]
    package(tmp_path, "intel-rapl:0:0", 5)  # a part of the first package
    (tmp_path / "intel-rapl").mkdir()  # the driver itself
    meter = EnergyMeter.open(tmp_path)
    assert meter is not None
    (zones[0] / "energy_uj").write_text("500100")
    (zones[1] / "energy_uj").write_text("250000")
    assert meter.joules() == 0.75
    (zones[0] / "energy_uj").write_text("100")  # the counter started over
    assert meter.joules() == 0.75 + 0.5


def test_a_machine_that_does_not_tell(tmp_path: Path) -> None:
    assert EnergyMeter.open(tmp_path / "none") is None
    assert EnergyMeter.open(tmp_path) is None
    (tmp_path / "intel-rapl:0").mkdir()
    assert EnergyMeter.open(tmp_path) is None
