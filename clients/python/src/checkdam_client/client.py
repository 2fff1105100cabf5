"""The client for threads."""

from __future__ import annotations

import http.client
import os
import select
import ssl
import threading
import time
from types import TracebackType
from typing import List, Mapping, Optional, Sequence, Tuple, Type

from . import tls, wire
from .answer import Answer
from .errors import Unreachable
from .tls import FilePath
from .wire import Attributes, BatchRequest

#: A connection that was idle for longer is not used again: the server closes after 75 s.
IDLE_MAX_S = 30.0

#: The most idle connections that are kept.
IDLE_CONNECTIONS_MAX = 64


class Client:
    """Asks a checkdam server over connections that are kept open. Threads may share it.

    >>> client = Client("http://127.0.0.1:8080", timeout=0.2, on_unreachable="open")
    >>> answer = client.check({"user": "42", "plan": "free"})
    >>> answer.allowed, answer.remaining, answer.retry_after

    `timeout` bounds connecting and each wait for the server, in seconds.
    `on_unreachable` says what happens when there is no answer: "raise" (default)
    raises `Unreachable`, "open" allows, "closed" denies with status 503. `token` is the
    server's API token, if it has one; without a valid one it answers `Refused` (401).

    For an ``https://`` server, `ca_file` names the CA certificates that verify it, in PEM;
    the system's by default. `client_certificate` and `client_key` name the certificate and
    the private key to present, for servers that require one; the key may be in the file of the
    certificate. `ssl_context` replaces all three.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        timeout: float = 1.0,
        on_unreachable: str = "raise",
        ssl_context: Optional[ssl.SSLContext] = None,
        token: Optional[str] = None,
        ca_file: Optional[FilePath] = None,
        client_certificate: Optional[FilePath] = None,
        client_key: Optional[FilePath] = None,
    ) -> None:
        self._place = wire.Place.parse(url)
        self._timeout = timeout
        self._on_unreachable = wire.policy(on_unreachable)
        self._ssl = tls.context(self._place, ca_file, client_certificate, client_key, ssl_context)
        self._headers = wire.headers(token)
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._idle: List[Tuple[float, http.client.HTTPConnection]] = []

    def check(self, attributes: Attributes, *, cost: int = 1, domain: Optional[str] = None) -> Answer:
        """Charges a request to every limit that applies, or to none."""
        return self._ask("/v1/check", attributes, cost, domain)

    def record(self, attributes: Attributes, cost: int, *, domain: Optional[str] = None) -> Answer:
        """Charges what was used to every limit that applies, whatever is left; never denied.

        Beyond a limit its bucket is in debt, and nothing passes until that is paid back. The
        answer's `allowed` says whether a request would pass now.
        """
        return self._ask("/v1/record", attributes, cost, domain)

    def peek(self, attributes: Attributes, *, cost: int = 1, domain: Optional[str] = None) -> Answer:
        """Answers as `check` would, charging nothing; the status is always 200."""
        return self._ask("/v1/peek", attributes, cost, domain)

    def refund(self, attributes: Attributes, *, cost: int = 1, domain: Optional[str] = None) -> Answer:
        """Gives back a cost to every limit that applies."""
        return self._ask("/v1/refund", attributes, cost, domain)

    def reset(self, attributes: Attributes, *, domain: Optional[str] = None) -> Answer:
        """Forgets what is owed to every limit that applies."""
        return self._ask("/v1/reset", attributes, 1, domain)

    def check_batch(self, requests: Sequence[BatchRequest]) -> List[Answer]:
        """Charges several requests, each by itself, in their order: at most 256."""
        body = wire.batch_body(requests)
        try:
            status, _, answer = self._post("/v1/check/batch", body)
            return wire.read_batch(status, answer, len(requests))
        except Unreachable as error:
            return [wire.unreachable_answer(self._on_unreachable, error) for _ in requests]

    def close(self) -> None:
        """Closes the connections that are idle."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def _ask(self, path: str, attributes: Attributes, cost: int, domain: Optional[str]) -> Answer:
        body = wire.request_body(attributes, cost, domain)
        try:
            return wire.read_answer(*self._post(path, body))
        except Unreachable as error:
            return wire.unreachable_answer(self._on_unreachable, error)

    def _post(self, path: str, body: bytes) -> Tuple[int, Mapping[str, str], bytes]:
        connection = self._take()
        try:
            connection.request("POST", self._place.prefix + path, body, self._headers)
            response = connection.getresponse()
            answer = response.read(wire.ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            reason = tls.explain(error) or str(error) or type(error).__name__
            raise Unreachable(f"{self._place.authority} did not answer: {reason}") from error
        except BaseException:
            connection.close()
            raise
        if response.will_close or not response.isclosed():
            connection.close()
        else:
            self._give(connection)
        return response.status, {name.lower(): value for name, value in response.getheaders()}, answer

    def _take(self) -> http.client.HTTPConnection:
        while True:
            with self._lock:
                if self._process != os.getpid():
                    # After a fork the connections belong to the parent process, which would receive our answers.
                    self._process, self._idle = os.getpid(), []
                if not self._idle:
                    break
                since, connection = self._idle.pop()
            if time.monotonic() - since < IDLE_MAX_S and _is_quiet(connection):
                return connection
            connection.close()
        if self._place.tls:
            return http.client.HTTPSConnection(
                self._place.host, self._place.port, timeout=self._timeout, context=self._ssl
            )
        return http.client.HTTPConnection(self._place.host, self._place.port, timeout=self._timeout)

    def _give(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._idle) < IDLE_CONNECTIONS_MAX:
                self._idle.append((time.monotonic(), connection))
                return
        connection.close()


def _is_quiet(connection: http.client.HTTPConnection) -> bool:
    """An idle connection that can be read has been closed by the server. A
    request on it would fail, and could not be repeated: it may have been charged."""
    if connection.sock is None:
        return False
    try:
        if hasattr(select, "poll"):
            # Unlike select, it knows sockets of any number.
            poll = select.poll()
            poll.register(connection.sock, select.POLLIN)
            return not poll.poll(0)
        return not select.select([connection.sock], [], [], 0)[0]
    except (OSError, ValueError):
        return False
