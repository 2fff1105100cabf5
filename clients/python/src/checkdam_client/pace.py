"""When a polite caller may send its next request.

The rules are in clients/README.md and, as data that the clients in Python and JavaScript
are tested by, in clients/polite-cases.json. This module does no I/O and reads no
clock: times are in seconds from any beginning and are given by the caller.
"""

from __future__ import annotations

import random as random_module
from typing import Any, Callable, List, Mapping, Optional

from .headers import Standing, lowered, retry_after, standings

#: Statuses that ask to retry later.
REFUSALS = (429, 503)

#: The largest factor by which repeated refusals lengthen the intervals.
_SLOWNESS_MAX = 16.0

#: What remains of that factor after each answer that is no refusal.
_RECOVERY = 0.95


class Pace:
    """Follows the answers of one API and says how long to wait before the next request."""

    def __init__(
        self,
        *,
        backoff_first: float = 0.5,
        backoff_max: float = 30.0,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        self._backoff_first = backoff_first
        self._backoff_max = backoff_max
        self._random = random
        self._standings: List[Standing] = []
        self._standings_at = 0.0
        self._sent_at = float("-inf")
        self._blocked_until = float("-inf")
        #: whether the last answer was no refusal, so that several may be under way
        self._is_open = False
        self._pending = 0
        self._refusals = 0
        self._slowness = 1.0

    def wait(self, now: float) -> Optional[float]:
        """How long until the next request may be sent: 0 for at once, None for not before an answer arrives."""
        if self._pending and not self._is_open:
            return None
        at = self._blocked_until
        for standing in self._standings:
            earliest = self._earliest(standing)
            if earliest is None:
                return None
            at = max(at, earliest)
        return max(0.0, at - now)

    def sent(self, now: float) -> None:
        """A request is sent."""
        self._sent_at = now
        self._pending += 1

    def failed(self) -> None:
        """A request ended without an answer."""
        self._pending -= 1

    def answered(self, now: float, now_unix: float, status: int, headers: Any) -> bool:
        """A request was answered; returns whether it was refused and may be sent again."""
        self._pending -= 1
        headers = lowered(headers)
        found = standings(headers, now_unix)
        if found or status == 429:
            self._standings, self._standings_at = found, now
        self._is_open = status not in REFUSALS
        if self._is_open:
            self._refusals = 0
            self._slowness = max(1.0, self._slowness * _RECOVERY)
            return False
        self._refusals += 1
        if status == 429:
            self._slowness = min(_SLOWNESS_MAX, self._slowness * 2)
        self._blocked_until = max(self._blocked_until, now + self._pause(headers, now_unix))
        return True

    def _pause(self, headers: Mapping[str, str], now_unix: float) -> float:
        """How long to pause after a refusal."""
        asked = retry_after(headers, now_unix)
        if not asked:
            resets = [standing.reset_after or 0.0 for standing in self._standings if not standing.remaining]
            asked = max(resets, default=0.0)
        if asked:
            # A tenth more at most, so that callers that were refused together do not retry together.
            return asked * (1 + 0.1 * self._random())
        backoff = self._backoff_first * 2.0 ** min(self._refusals - 1, 32)
        return self._random() * min(self._backoff_max, backoff)

    def _earliest(self, standing: Standing) -> Optional[float]:
        """When one limit has room for the next request; None if that depends on the next answer."""
        left = standing.remaining - self._pending
        interval, reset_after = standing.interval, standing.reset_after
        if left > 0:
            if standing.limit and left + 1 >= standing.limit:
                return self._sent_at
            spread = None if reset_after is None else reset_after / left
            spacings = [spacing for spacing in (interval, spread) if spacing is not None]
            spacing = min(spacings, default=0.0) * _haste(standing, left)
            return self._sent_at + spacing * self._slowness
        reset_at = None if reset_after is None else self._standings_at + reset_after
        if interval is None:
            # Nothing is left, and how fast it comes back is not known: one at a time after the reset.
            return None if self._pending else reset_at if reset_at is not None else self._standings_at
        earliest = max(self._sent_at, self._standings_at) + interval * self._slowness
        is_counting_down = reset_after is not None and standing.window and reset_after < standing.window
        is_window = standing.remaining == 0 and is_counting_down
        return max(earliest, reset_at) if is_window and reset_at is not None else earliest


def _haste(standing: Standing, left: int) -> float:
    """A bucket says that it will be full when its rate has filled it; it is used down to its half, which is
    kept for others and for stalls. A window says when it ends, however much is left: it is not hastened."""
    if not standing.limit or not standing.window or standing.reset_after is None:
        return 1.0
    full_after = -(-(standing.limit - standing.remaining) * standing.window // standing.limit)
    return min(1.0, 2 * (1 - left / standing.limit)) if standing.reset_after <= full_after else 1.0
