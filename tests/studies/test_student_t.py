"""Student's t against scipy."""

from __future__ import annotations

import pytest
from scipy import stats

from regard.errors import SpecError
from regard.studies.student_t import t_cdf, t_power, t_quantile, t_two_sided

DF = (1, 2, 2.7, 4, 8, 31.4, 200, 1e5)


@pytest.mark.parametrize("df", DF)
def test_probabilities_are_those_of_scipy(df: float) -> None:
    for t in (-30.0, -3.1, -0.4, 0.0, 1e-6, 0.7, 2.3, 8.0, 60.0):
        assert t_cdf(t, df) == pytest.approx(stats.t.cdf(t, df), rel=1e-9, abs=1e-14)
        assert t_two_sided(t, df) == pytest.approx(2 * stats.t.sf(abs(t), df), rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("df", DF)
def test_quantiles_are_those_of_scipy(df: float) -> None:
    for p in (0.001, 0.025, 0.4, 0.5, 0.9, 0.975, 0.9996):
        assert t_quantile(p, df) == pytest.approx(stats.t.ppf(p, df), rel=1e-8, abs=1e-10)


@pytest.mark.parametrize("df", [3, 8, 18.5, 198])
@pytest.mark.parametrize("shift", [0.0, 0.5, 2.5, 6.0])
def test_power_is_that_of_the_noncentral_t(df: float, shift: float) -> None:
    critical = stats.t.ppf(0.975, df)
    wanted = stats.nct.sf(critical, df, shift) + stats.nct.cdf(-critical, df, shift)
    assert t_power(shift, df) == pytest.approx(wanted, abs=2e-4)


def test_impossible_arguments() -> None:
    with pytest.raises(SpecError, match="degrees of freedom should be positive, got 0"):
        t_cdf(1.0, 0)
    with pytest.raises(SpecError, match="between 0 and 1, got 1"):
        t_quantile(1, 3)
