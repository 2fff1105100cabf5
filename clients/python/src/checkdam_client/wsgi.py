"""A middleware for WSGI applications (Flask, Django, Bottle and others)."""

from __future__ import annotations

import json
from http.client import responses
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, Union

from .answer import Answer
from .asgi import bad_request, unusable
from .client import Client
from .errors import Limited, Refused, Unreachable
from .limited import DELAY_MAX_S, admit
from .normalize import AmbiguousPath, PathForms, request_attributes, target_of
from .wire import Attributes, unreachable_answer

Environ = Dict[str, Any]
StartResponse = Callable[..., Any]
App = Callable[[Environ, StartResponse], Iterable[bytes]]


def environ_attributes(environ: Environ, paths: PathForms = PathForms()) -> Attributes:
    """method, endpoint, host and ip (of the connection) of a request."""
    # WSGI hands paths over as bytes in the shape of Latin-1 text.
    target = target_of((environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")).encode("latin-1"))
    host, peer = environ.get("HTTP_HOST"), environ.get("REMOTE_ADDR")
    return request_attributes(environ["REQUEST_METHOD"], target, host, peer, paths)


class WsgiRateLimitMiddleware:
    """Asks checkdam before it calls the application: `RateLimitMiddleware` for threads."""

    def __init__(
        self,
        app: App,
        *,
        client: Client,
        attributes: Optional[Callable[[Environ], Optional[Attributes]]] = None,
        cost: Union[int, Callable[[Environ], int]] = 1,
        domain: Optional[str] = None,
        delay_max: float = DELAY_MAX_S,
        paths: PathForms = PathForms(),
    ) -> None:
        self._app = app
        self._client = client
        self._attributes = attributes or (lambda environ: environ_attributes(environ, paths))
        self._cost = cost
        self._domain = domain
        self._delay_max = delay_max

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        try:
            attributes = self._attributes(environ)
        except AmbiguousPath as error:
            return _deny(bad_request(str(error)), start_response)
        if attributes is None:
            return self._app(environ, start_response)
        try:
            answer = self._admit(environ, attributes)
        except Limited as limited:
            return _deny(limited.answer, start_response)

        def start(status: str, headers: List[Tuple[str, str]], *more: Any) -> Any:
            taken = {name.lower() for name, _ in headers}
            passed_on = [pair for pair in answer.headers.items() if pair[0] not in taken]
            return start_response(status, list(headers) + passed_on, *more)

        return self._app(environ, start)

    def _admit(self, environ: Environ, attributes: Attributes) -> Answer:
        cost = self._cost(environ) if callable(self._cost) else self._cost
        request = {"attributes": attributes, "cost": cost, "domain": self._domain}
        try:
            return admit(self._client, request, self._delay_max)
        except Unreachable as error:
            raise Limited(unreachable_answer("closed", error)) from error
        except Refused as refused:
            raise Limited(unusable(refused)) from refused


def _deny(answer: Answer, start_response: StartResponse) -> Iterable[bytes]:
    body = json.dumps(answer.problem()).encode()
    headers = [("Content-Type", "application/problem+json"), ("Content-Length", str(len(body)))]
    start_response(f"{answer.status} {responses.get(answer.status, '')}", headers + list(answer.headers.items()))
    return [body]
