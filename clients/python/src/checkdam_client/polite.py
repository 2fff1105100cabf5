"""Calls limited APIs without running into their limits.

Calls take turns in the order they came; a call that is refused keeps its place.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import threading
import time
from typing import Any, Awaitable, Callable, Dict, List, Optional, Tuple, TypeVar

from .errors import QueueFull, WaitTooLong
from .pace import Pace

Response = TypeVar("Response")


class _Queue:
    """A queue of callers in the order of their arrival."""

    def __init__(self, pace: Optional[Pace], wait_max: float, queue_max: int, attempts_max: int) -> None:
        self.pace = pace or Pace()
        self.wait_max = wait_max
        self.attempts_max = attempts_max
        self._queue_max = queue_max
        self._numbers: List[int] = []
        self._drawn = 0

    def enter(self, number: Optional[int]) -> int:
        if number is None:
            if len(self._numbers) >= self._queue_max:
                raise QueueFull(f"{len(self._numbers)} calls wait already: at most {self._queue_max} may")
            number = self._drawn
            self._drawn += 1
        bisect.insort(self._numbers, number)
        return number

    def leave(self, number: int) -> None:
        self._numbers.remove(number)

    def head(self) -> Optional[int]:
        return self._numbers[0] if self._numbers else None

    def try_send(self, number: int) -> Tuple[bool, Optional[float]]:
        """Whether it is this one's turn now, and else how long to wait before asking again unless woken."""
        if self._numbers[0] != number:
            return False, None
        now = time.monotonic()
        wait = self.pace.wait(now)
        if wait == 0.0:
            self.pace.sent(now)
            return True, None
        if wait is not None and wait > self.wait_max:
            raise WaitTooLong(wait, self.wait_max)
        return False, wait

    def is_again(self, answer: Any, attempt: int) -> bool:
        """Records an answer or a failure; returns whether to send the request again."""
        read = _read(answer)
        if read is None:
            self.pace.failed()
            return False
        refused = self.pace.answered(time.monotonic(), time.time(), *read)
        wait = self.pace.wait(time.monotonic())
        return refused and attempt < self.attempts_max and (wait is None or wait <= self.wait_max)


def _read(answer: Any) -> Optional[Tuple[int, Any]]:
    """Status and headers as the usual libraries name them, urllib's HTTPError included."""
    for name in ("status", "status_code", "code"):
        status = getattr(answer, name, None)
        if isinstance(status, int) and hasattr(answer, "headers"):
            return int(status), answer.headers
    return None


class Polite:
    """Calls a limited API from threads: queues calls, slows down before the limit, retries when the server permits.

    >>> polite = Polite()
    >>> response = polite.call(requests.get, "https://api.example.com/items")

    One for each API, or for each of its limits if they are separate. What is called
    returns a response with `status` or `status_code` and `headers`. A request that
    is refused with 429 or 503 is sent again, `attempts_max` times in all; after
    that, or if the server asks to wait longer than `wait_max` seconds, its response
    is returned. Exceptions are passed on, and nothing is repeated after one.
    """

    def __init__(
        self,
        *,
        wait_max: float = 60.0,
        queue_max: int = 1000,
        attempts_max: int = 5,
        pace: Optional[Pace] = None,
    ) -> None:
        self._queue = _Queue(pace, wait_max, queue_max, attempts_max)
        self._changed = threading.Condition()

    def call(self, send: Callable[..., Response], *args: Any, **kwargs: Any) -> Response:
        """Calls `send` when it is time, and again if it is refused.

        Raises `QueueFull` or `WaitTooLong` without calling it.
        """
        number: Optional[int] = None
        attempt = 0
        while True:
            number = self._turn(number)
            attempt += 1
            try:
                response = send(*args, **kwargs)
            except BaseException as error:
                if self._is_again(error, attempt):
                    continue
                raise
            if not self._is_again(response, attempt):
                return response

    def _turn(self, number: Optional[int]) -> int:
        with self._changed:
            number = self._queue.enter(number)
            try:
                while True:
                    is_turn, wait = self._queue.try_send(number)
                    if is_turn:
                        return number
                    self._changed.wait(wait)
            finally:
                self._queue.leave(number)
                self._changed.notify_all()

    def _is_again(self, answer: Any, attempt: int) -> bool:
        with self._changed:
            again = self._queue.is_again(answer, attempt)
            self._changed.notify_all()
            return again


class AsyncPolite:
    """`Polite` for asyncio: for one event loop.

    >>> polite = AsyncPolite()
    >>> response = await polite.call(httpx_client.get, "https://api.example.com/items")
    """

    def __init__(
        self,
        *,
        wait_max: float = 60.0,
        queue_max: int = 1000,
        attempts_max: int = 5,
        pace: Optional[Pace] = None,
    ) -> None:
        self._queue = _Queue(pace, wait_max, queue_max, attempts_max)
        self._bells: Dict[int, asyncio.Event] = {}

    async def call(self, send: Callable[..., Awaitable[Response]], *args: Any, **kwargs: Any) -> Response:
        """Calls `send` when it is time, and again if it is refused.

        Raises `QueueFull` or `WaitTooLong` without calling it.
        """
        number: Optional[int] = None
        attempt = 0
        while True:
            number = await self._turn(number)
            attempt += 1
            try:
                response = await send(*args, **kwargs)
            except BaseException as error:
                if self._is_again(error, attempt):
                    continue
                raise
            if not self._is_again(response, attempt):
                return response

    async def _turn(self, number: Optional[int]) -> int:
        number = self._queue.enter(number)
        bell = self._bells[number] = asyncio.Event()
        try:
            while True:
                is_turn, wait = self._queue.try_send(number)
                if is_turn:
                    return number
                bell.clear()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(bell.wait(), wait)
        finally:
            del self._bells[number]
            self._queue.leave(number)
            self._ring()

    def _is_again(self, answer: Any, attempt: int) -> bool:
        again = self._queue.is_again(answer, attempt)
        self._ring()
        return again

    def _ring(self) -> None:
        head = self._queue.head()
        if head is not None:
            self._bells[head].set()
