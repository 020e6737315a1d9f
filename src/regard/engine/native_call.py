"""Calls of the native library that can be ended.

The library knows no signals: it looks at flags. Python runs signal handlers between two lines of the main thread only, so a
long call of the main thread is made by another one, while the main thread waits in Python, where Ctrl-C is heard.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from ctypes import POINTER, c_int32, c_int64
from typing import TypeVar

from regard.errors import RegardError
from regard.stopping import Stop, check_stops, list_stops

LONG = 1 << 32
"""Bytes of weights times tokens: smaller calls take about 40 ms, and are not worth a thread."""
PAUSE = 0.1
"""Seconds between two looks, where a lock cannot be interrupted."""
T = TypeVar("T")


class StopFlags(ctypes.Structure):
    """`regard_stop` of the C interface."""

    _fields_ = (("count", c_int64), ("flags", POINTER(POINTER(c_int32))))

    @classmethod
    def of(cls, stops: Sequence[Stop]) -> StopFlags:
        """The flags of these stops, which the structure keeps alive."""
        flags = (POINTER(c_int32) * len(stops))(
            *(ctypes.cast(stop.flag.buffer_info()[0], POINTER(c_int32)) for stop in stops)
        )
        out = cls(len(stops), ctypes.cast(flags, POINTER(POINTER(c_int32))))
        out.kept = (flags, stops)
        return out


class Turns:
    """The calls of one model, one after another."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may make a call of its own before the library has begun

    def run(self, call: Callable[[StopFlags], T], work: int) -> T:
        """Make a call, which ends early if one of the stops is set or, in the main thread, if a signal handler raises.

        `work` is about its size, as in `LONG`.
        """
        stops = list_stops()
        if work < LONG or threading.current_thread() is not threading.main_thread():
            return self._take(call, stops)
        interrupted, done, outcome, begun = Stop(), threading.Event(), list[T | BaseException](), False

        def work_on() -> None:
            try:
                outcome.append(self._take(call, (*stops, interrupted)))
            except BaseException as error:
                outcome.append(error)
            finally:
                done.set()

        try:
            thread = threading.Thread(target=work_on, name="native call", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads, or Python is ending
                return self._take(call, stops)
            begun = True
            while not done.wait(PAUSE):
                pass
        except BaseException:
            interrupted.set()
            if begun:
                done.wait()
            raise
        result = outcome.pop()
        if isinstance(result, BaseException):
            try:
                raise result
            finally:
                del result  # its traceback has this frame
        return result

    def _take(self, call: Callable[[StopFlags], T], stops: Sequence[Stop]) -> T:
        check_stops(stops)
        while not self._lock.acquire(timeout=PAUSE):
            check_stops(stops)
        try:
            return call(StopFlags.of(stops))
        except RegardError:
            check_stops(stops)  # it says so in words only
            raise
        finally:
            self._lock.release()
