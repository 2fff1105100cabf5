"""Errors. A denied request is an answer, not an error, except in decorated functions,
whose callers receive no answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from .answer import Answer


class CheckdamError(Exception):
    """Any error of this package."""


class Unreachable(CheckdamError):
    """The server did not answer in time, or did not answer as checkdam does.

    Whether the request was charged is unknown, so it is never sent again.
    """


class Refused(CheckdamError, ValueError):
    """The server did not accept the request; nothing was charged."""

    def __init__(self, status: int, detail: str, field: Optional[str] = None) -> None:
        super().__init__(detail)
        #: the HTTP status
        self.status = status
        #: what is wrong, and what to do
        self.detail = detail
        #: the field of the request, such as ``attributes.user``
        self.field = field


class Limited(CheckdamError):
    """A call of a decorated function was denied; the function was not called."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.detail or "denied")
        #: the server's answer
        self.answer = answer


class QueueFull(CheckdamError):
    """As many calls wait for their turn as may wait."""


class WaitTooLong(CheckdamError):
    """A call would have to wait longer than its caller allows; it was not sent."""

    def __init__(self, wait: float, wait_max: float) -> None:
        super().__init__(f"the API asks to wait {wait:.1f} s: at most {wait_max:g} s are allowed")
        #: how long it would have to wait, in seconds
        self.wait = wait
