"""A middleware for ASGI applications (Starlette, FastAPI, Quart, Django and others)."""

from __future__ import annotations

import json
from typing import Any, Awaitable, Callable, Iterable, List, Mapping, MutableMapping, Optional, Tuple, Union

from .aio import AsyncClient
from .answer import Answer
from .errors import Limited, Refused, Unreachable
from .limited import DELAY_MAX_S, admit_async
from .normalize import AmbiguousPath, PathForms, request_attributes, target_of
from .wire import Attributes, unreachable_answer

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

#: RFC 6455 has no code for "too many"; this one of IANA's means "try again later".
_TRY_AGAIN_LATER = 1013


def scope_attributes(scope: Scope, paths: PathForms = PathForms()) -> Attributes:
    """method, endpoint, host and ip (of the connection) of a request."""
    host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), None)
    # Applications route by the decoded path, where %2F is a slash; raw_path would count it apart.
    target = target_of(scope["path"].encode("utf-8", "surrogateescape"))
    peer = scope.get("client")
    return request_attributes(scope.get("method", "GET"), target, host, peer[0] if peer else None, paths)


class RateLimitMiddleware:
    """Asks checkdam before it calls the application.

    >>> app = RateLimitMiddleware(app, client=AsyncClient(), attributes=lambda scope: {"user": ...})

    A denied request gets the status, the headers and the problem details that
    checkdam answered; the application is not called. Every other response carries
    the rate-limit headers. What a leaky bucket delays waits, at most `delay_max`
    seconds. `attributes` is a function of the scope, by default `scope_attributes`
    with `paths`; where it returns None the request is not limited, and where it
    raises AmbiguousPath the request is answered with 400. With a client that raises when
    the server is unreachable, requests are answered with 503.
    """

    def __init__(
        self,
        app: App,
        *,
        client: AsyncClient,
        attributes: Optional[Callable[[Scope], Optional[Attributes]]] = None,
        cost: Union[int, Callable[[Scope], int]] = 1,
        domain: Optional[str] = None,
        delay_max: float = DELAY_MAX_S,
        paths: PathForms = PathForms(),
    ) -> None:
        self._app = app
        self._client = client
        self._attributes = attributes or (lambda scope: scope_attributes(scope, paths))
        self._cost = cost
        self._domain = domain
        self._delay_max = delay_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            attributes = self._attributes(scope) if scope["type"] in ("http", "websocket") else None
        except AmbiguousPath as error:
            await deny(bad_request(str(error)), scope, receive, send)
            return
        if attributes is None:
            await self._app(scope, receive, send)
            return
        try:
            answer = await self._admit(scope, attributes)
        except Limited as limited:
            await deny(limited.answer, scope, receive, send)
            return
        await self._app(scope, receive, _with_headers(send, answer.headers))

    async def _admit(self, scope: Scope, attributes: Attributes) -> Answer:
        cost = self._cost(scope) if callable(self._cost) else self._cost
        request = {"attributes": attributes, "cost": cost, "domain": self._domain}
        try:
            return await admit_async(self._client, request, self._delay_max)
        except Unreachable as error:
            raise Limited(unreachable_answer("closed", error)) from error
        except Refused as refused:
            raise Limited(unusable(refused)) from refused


def unusable(refused: Refused) -> Answer:
    """What a request gets whose attributes cannot be used, such as a path that is too long.

    Anything else that the server refuses is the application's own mistake, and stays an error.
    """
    if not (refused.field or "").startswith("attributes"):
        raise refused
    return bad_request(refused.detail)


def bad_request(detail: str) -> Answer:
    """What a request gets that cannot be understood."""
    return Answer(allowed=False, status=400, decided_by="client", title="Bad Request", detail=detail)


async def deny(answer: Answer, scope: Scope, receive: Receive, send: Send) -> None:
    """Answers in place of the application."""
    prefix = ""
    if scope["type"] == "websocket":
        await receive()
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": _TRY_AGAIN_LATER, "reason": "rate limited"})
            return
        prefix = "websocket."
    body = json.dumps(answer.problem()).encode()
    headers: List[Tuple[bytes, bytes]] = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
    ]
    headers += _raw(answer.headers)
    await send({"type": f"{prefix}http.response.start", "status": answer.status, "headers": headers})
    await send({"type": f"{prefix}http.response.body", "body": body})


def _raw(headers: Mapping[str, str]) -> Iterable[Tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


def _with_headers(send: Send, headers: Mapping[str, str]) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.accept"):
            own = list(message.get("headers", ()))
            taken = {bytes(name).lower() for name, _ in own}
            message["headers"] = own + [pair for pair in _raw(headers) if pair[0] not in taken]
        await send(message)

    return send_with_headers
