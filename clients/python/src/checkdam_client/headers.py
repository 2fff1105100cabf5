"""Parses the rate-limit headers of any API.

Reads `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-11),
else `X-RateLimit-*` or `RateLimit-Limit` and its like, and `Retry-After`. What does
not parse is taken as not sent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Dict, List, Mapping, Optional

#: Longer headers are not read.
_LENGTH_MAX = 8192

#: Resets beyond this are points in time, in Unix seconds; before, they are seconds from now.
_UNIX_SECONDS_MIN = 1_000_000_000

_STRING = r'"(?:[^"\\]|\\["\\])*"'
_PARAMETER = re.compile(rf' *; *([a-z*][a-z0-9_.*-]*)(?:=({_STRING}|:[A-Za-z0-9+/=]*:|[^\s;,"]+))?')
_NAME = re.compile(rf"[ \t]*({_STRING}|[A-Za-z*][^\s;,\"]*)")
_NEXT = re.compile(r"[ \t]*(,|$)")
_INTEGER = re.compile(r"[0-9]{1,15}")


@dataclass(frozen=True)
class Standing:
    """Where the caller stands with one limit."""

    #: what is left
    remaining: int
    #: how long until the limit is reset or full again, in seconds
    reset_after: Optional[float] = None
    #: the most that may pass within the window
    limit: Optional[int] = None
    #: the window, in seconds
    window: Optional[int] = None

    @property
    def interval(self) -> Optional[float]:
        """The pace that never exceeds the limit: the time for one request, in seconds."""
        return self.window / self.limit if self.limit and self.window else None


def lowered(headers: Any) -> Dict[str, str]:
    """Any collection of headers, by names in lower case."""
    pairs = headers.items() if hasattr(headers, "items") else headers
    found: Dict[str, str] = {}
    for name, value in pairs:
        name = str(name).lower()
        found[name] = f"{found[name]}, {value}" if name in found else str(value)
    return found


def standings(headers: Mapping[str, str], now_unix: float) -> List[Standing]:
    """`headers` by their names in lower case."""
    policies = {name: values for name, values in _fields(headers.get("ratelimit-policy", ""))}
    found = []
    for name, values in _fields(headers.get("ratelimit", "")):
        if "r" in values:
            policy = policies.get(name, {})
            found.append(Standing(values["r"], values.get("t"), policy.get("q"), policy.get("w")))
    return found or _customary(headers, now_unix)


def retry_after(headers: Mapping[str, str], now_unix: float) -> Optional[float]:
    """How long the server asks to wait, in seconds: given as such, or as a date."""
    text = headers.get("retry-after", "").strip()
    if _INTEGER.fullmatch(text):
        return float(text)
    date = _date_unix(text)
    return None if date is None else max(0.0, date - server_unix(headers, now_unix))


def server_unix(headers: Mapping[str, str], now_unix: float) -> float:
    """The server's clock, which its dates are by; ours if the response has no date."""
    date = _date_unix(headers.get("date", ""))
    return now_unix if date is None else date


def _customary(headers: Mapping[str, str], now_unix: float) -> List[Standing]:
    for prefix in ("x-ratelimit-", "ratelimit-"):
        remaining, limit, reset = (_integer(headers.get(prefix + name)) for name in ("remaining", "limit", "reset"))
        if remaining is None:
            continue
        after: Optional[float] = reset
        if reset is not None and reset >= _UNIX_SECONDS_MIN:
            after = max(0.0, reset - server_unix(headers, now_unix))
        return [Standing(remaining, after, limit)]
    return []


def _integer(text: Optional[str]) -> Optional[int]:
    return int(text) if text and _INTEGER.fullmatch(text.strip()) else None


def _date_unix(text: str) -> Optional[float]:
    if not text or len(text) > 64:
        return None
    try:
        return parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, IndexError, OverflowError):
        return None


def _fields(text: str) -> List[Any]:
    """A structured list of names (RFC 9651) with their parameters that are whole numbers."""
    found: List[Any] = []
    if not text.strip() or len(text) > _LENGTH_MAX:
        return found
    at = 0
    while at < len(text):
        name = _NAME.match(text, at)
        if not name:
            return []
        at = name.end()
        values: Dict[str, int] = {}
        parameter = _PARAMETER.match(text, at)
        while parameter:
            key, value = parameter.groups()
            if value is not None and _INTEGER.fullmatch(value):
                values[key] = int(value)
            at = parameter.end()
            parameter = _PARAMETER.match(text, at)
        end = _NEXT.match(text, at)
        if not end:
            return []
        at = end.end()
        found.append((name.group(1), values))
        if not end.group(1):
            break
    return found
