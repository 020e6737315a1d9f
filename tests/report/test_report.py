"""What the package offers, and that it costs little to import."""

import subprocess
import sys

import regard.report


def test_everything_offered_is_there():
    assert all(hasattr(regard.report, name) for name in regard.report.__all__)
    assert regard.report.__all__ == sorted(regard.report.__all__)


def test_importing_it_loads_nothing_heavy():
    code = "import sys, regard.report; print([m for m in ('torch', 'numpy', 'matplotlib', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
