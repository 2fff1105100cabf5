"""Requests and answers as bytes, the same for both clients. Does no I/O."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Union
from urllib.parse import urlsplit

from .answer import Answer
from .errors import Refused, Unreachable

#: Attributes of a request. Whole numbers are sent as text.
Attributes = Mapping[str, Union[str, int]]

#: A request of a batch: ``attributes``, and optionally ``cost`` and ``domain``.
BatchRequest = Mapping[str, Any]

#: Headers of an answer that its receiver may pass on.
PASSED_ON = (
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "ratelimit-policy",
    "ratelimit",
    "retry-after",
)

#: No answer is longer: 256 requests of a batch with some 400 tiers each.
ANSWER_BYTES_MAX = 16 << 20

_POLICIES = ("raise", "open", "closed")


class Place(NamedTuple):
    """Where the server is."""

    tls: bool
    host: str
    port: int
    prefix: str

    @classmethod
    def parse(cls, url: str) -> Place:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no address of a server: write it as http://127.0.0.1:8080")
        tls = parts.scheme == "https"
        return cls(tls, parts.hostname, parts.port or (443 if tls else 80), parts.path.rstrip("/"))

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def headers(token: Optional[str]) -> Dict[str, str]:
    """The headers of every request. A token that no header can carry is an error, which does not show it."""
    if token is None:
        return {"Content-Type": "application/json"}
    if not token or not all("!" <= character <= "~" for character in token):
        raise ValueError("the token is empty or has a character that no header can carry")
    return {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}


def policy(on_unreachable: str) -> str:
    if on_unreachable not in _POLICIES:
        raise ValueError(f"on_unreachable is {on_unreachable!r}: it must be one of {', '.join(_POLICIES)}")
    return on_unreachable


def request_json(attributes: Attributes, cost: int = 1, domain: Optional[str] = None) -> Dict[str, Any]:
    """Checks types only: the server validates values."""
    if not isinstance(attributes, Mapping):
        raise TypeError(f"attributes is {attributes!r}: it must be a mapping such as {{'user': '42'}}")
    if isinstance(cost, bool) or not isinstance(cost, int):
        raise TypeError(f"cost is {cost!r}: it must be a whole number")
    for name, value in attributes.items():
        if not isinstance(name, str):
            raise TypeError(f"the attribute {name!r} must be named by a string")
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise TypeError(f"the attribute {name!r} is {value!r}: it must be a string; leave out what is unknown")
    sent: Dict[str, Any] = {"attributes": {name: str(value) for name, value in attributes.items()}, "cost": cost}
    if domain is not None:
        sent["domain"] = domain
    return sent


def request_body(attributes: Attributes, cost: int, domain: Optional[str]) -> bytes:
    return json.dumps(request_json(attributes, cost, domain)).encode()


def batch_body(requests: Sequence[BatchRequest]) -> bytes:
    sent = []
    for index, request in enumerate(requests):
        unknown = set(request) - {"attributes", "cost", "domain"} if isinstance(request, Mapping) else {"?"}
        if unknown or "attributes" not in request:
            raise TypeError(
                f"requests[{index}] is {request!r}: it must be a mapping such as {{'attributes': {{'user': '42'}}, 'cost': 1}}"
            )
        try:
            sent.append(request_json(**request))
        except TypeError as error:
            raise TypeError(f"requests[{index}]: {error}") from None
    return json.dumps({"requests": sent}).encode()


def read_answer(status: int, headers: Mapping[str, str], body: bytes) -> Answer:
    """`headers` by their names in lower case."""
    value = _read_object(status, body)
    if "allowed" not in value:
        raise _refusal(status, value)
    passed_on = {name: headers[name] for name in PASSED_ON if name in headers}
    return _answer(value, status, passed_on)


def read_batch(status: int, body: bytes, count: int) -> List[Answer]:
    """The answers to `count` requests."""
    value = _read_object(status, body)
    results = value.get("results")
    if not isinstance(results, list):
        raise _refusal(status, value)
    if len(results) != count or not all(isinstance(result, dict) and "status" in result for result in results):
        raise Unreachable(f"the answer is not one of checkdam's: it has no results for {count} requests")
    return [_answer(result, result["status"], {}) for result in results]


def unreachable_answer(on_unreachable: str, error: Unreachable) -> Answer:
    """What stands in for the answer of a server that cannot be reached."""
    if on_unreachable == "raise":
        raise error
    if on_unreachable == "open":
        return Answer(allowed=True, status=200, decided_by="client")
    return Answer(
        allowed=False,
        status=503,
        retry_after=1.0,
        decided_by="client",
        kind="urn:checkdam:problem:unreachable",
        title="The rate limiter cannot be reached",
        detail="the rate limiter cannot be reached: try again later",
        headers={"retry-after": "1"},
    )


def _read_object(status: int, body: bytes) -> Dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Unreachable(f"the answer is no JSON object (status {status}): is it checkdam that listens there?")
    return value


def _answer(value: Mapping[str, Any], status: int, headers: Mapping[str, str]) -> Answer:
    try:
        if not isinstance(value["allowed"], bool):
            raise TypeError(f"allowed is {value['allowed']!r}")
        return Answer.from_json(value, status, headers)
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise Unreachable(f"the answer is not one of checkdam's: {error!r}") from error


def _refusal(status: int, value: Mapping[str, Any]) -> Exception:
    detail = str(value.get("detail") or value.get("title") or f"status {status}")
    # 408: the body did not arrive in time, which is not an error of the request.
    if 400 <= status < 500 and status != 408:
        return Refused(status, detail, value.get("field"))
    return Unreachable(f"the server answered with status {status}: {detail}")
