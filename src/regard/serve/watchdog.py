"""Notice that the inference process has stopped working.

    no beat                            it is stopped, or some call holds the GIL
    a scheduler does not turn          what it computes does not end, or its thread is gone
    the pool of threads is silent      all of its threads are taken
    a request is computed after its deadline   what it does cannot be interrupted

After `NOTICED` seconds the process is not ready. It has to be killed when it has not beaten for the time that is allowed, or
when a request is computed for so long after its deadline: nothing else would end that.
"""

from __future__ import annotations

import time

from regard.serve.vital_signs import COMPUTING, IDLE, STEP, VitalSigns

NOTICED = 3.0
"""Seconds without a sign of life after which new requests had better go elsewhere."""
TICK = 0.5
"""Seconds between two looks."""


class Watchdog:
    """Looks at the vital signs of one process, from when it is ready."""

    def __init__(self, signs: VitalSigns, *, seconds: float, allowed: float) -> None:
        self._signs, self._seconds, self._allowed = signs, seconds, allowed
        self._beat, self._silent, self._looked = signs.beat, 0.0, time.monotonic()
        self.trouble: str | None = None
        """Reason why it cannot answer now."""

    @property
    def is_silent(self) -> bool:
        return self._silent >= NOTICED

    def look(self) -> str | None:
        """Look once; returns why the process has to be killed.

        Time in which nobody looked, because this process was busy or the machine asleep, does not count.
        """
        now = time.monotonic()
        passed, self._looked = min(now - self._looked, 2 * TICK), now
        beat = self._signs.beat
        self._silent = self._silent + passed if beat == self._beat else 0.0
        self._beat = beat
        if self._silent:
            self.trouble = f"the models have not answered for {self._silent:.0f} seconds" if self.is_silent else None
            return f"gave no sign of life for {self._allowed:g} seconds" if self._silent >= self._allowed else None
        self.trouble, why = self._look_at_workers(now)
        return why

    def _look_at_workers(self, now: float) -> tuple[str | None, str | None]:
        """Tell why the process cannot answer now, and why it has to be killed; it beats, so what it writes is new."""
        trouble: str | None = None
        if (waited := now - self._signs.pool_answered) >= NOTICED:
            trouble = f"all threads for requests have been taken for {waited:.0f} seconds"
        for sign in self._signs.list_schedulers().values():
            since = now - sign.turned
            if since >= NOTICED:
                trouble = f"a model has been computing the same thing for {since:.0f} seconds"
            if sign.current == IDLE and since >= self._allowed:
                return trouble, f"has a scheduler that has not moved for {since:.0f} seconds"
            if sign.current == STEP and since >= self._seconds + self._allowed:
                return trouble, f"has been computing one step for {since:.0f} seconds"
        calls = [sign.deadline for sign in self._signs.list_schedulers().values() if sign.current > 0]
        rows = [each.deadline for each in self._signs.list_requests() if each.state == COMPUTING]
        late = now - min([*calls, *rows], default=now)
        why = f"still computed a request {late:.0f} seconds after its time was up" if late >= self._allowed else None
        return trouble, why
