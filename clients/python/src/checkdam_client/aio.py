"""The client for asyncio."""

from __future__ import annotations

import asyncio
import ssl
import time
from types import TracebackType
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Type

from . import tls, wire
from .answer import Answer
from .client import IDLE_CONNECTIONS_MAX, IDLE_MAX_S
from .errors import Unreachable
from .tls import FilePath
from .wire import Attributes, BatchRequest

#: The most header lines of an answer.
_HEADERS_MAX = 100


class _Connection(NamedTuple):
    loop: asyncio.AbstractEventLoop
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def is_quiet(self) -> bool:
        return not self.reader.at_eof() and not self.writer.is_closing()

    def discard(self) -> None:
        # A client may outlive the loop that its connection belongs to. Nothing is left to
        # send, so TLS does not wait for the server's consent.
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._abort)

    def _abort(self) -> None:
        self.writer.transport.abort()


class AsyncClient:
    """Asks a checkdam server over connections that are kept open. Tasks may share it.

    >>> client = AsyncClient("http://127.0.0.1:8080", timeout=0.2, on_unreachable="open")
    >>> answer = await client.check({"user": "42", "plan": "free"})

    `timeout` bounds a whole call, in seconds; `on_unreachable`, `token` and the
    settings of TLS are those of `Client`.
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
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in wire.headers(token).items())
        self._idle: List[Tuple[float, _Connection]] = []

    async def check(self, attributes: Attributes, *, cost: int = 1, domain: Optional[str] = None) -> Answer:
        """Charges a request to every limit that applies, or to none."""
        return await self._ask("/v1/check", attributes, cost, domain)

    async def record(self, attributes: Attributes, cost: int, *, domain: Optional[str] = None) -> Answer:
        """Charges what was used to every limit that applies, whatever is left; never denied.

        Beyond a limit its bucket is in debt, and nothing passes until that is paid back. The
        answer's `allowed` says whether a request would pass now.
        """
        return await self._ask("/v1/record", attributes, cost, domain)

    async def peek(self, attributes: Attributes, *, cost: int = 1, domain: Optional[str] = None) -> Answer:
        """Answers as `check` would, charging nothing; the status is always 200."""
        return await self._ask("/v1/peek", attributes, cost, domain)

    async def refund(self, attributes: Attributes, *, cost: int = 1, domain: Optional[str] = None) -> Answer:
        """Gives back a cost to every limit that applies."""
        return await self._ask("/v1/refund", attributes, cost, domain)

    async def reset(self, attributes: Attributes, *, domain: Optional[str] = None) -> Answer:
        """Forgets what is owed to every limit that applies."""
        return await self._ask("/v1/reset", attributes, 1, domain)

    async def check_batch(self, requests: Sequence[BatchRequest]) -> List[Answer]:
        """Charges several requests, each by itself, in their order: at most 256."""
        body = wire.batch_body(requests)
        try:
            status, _, answer = await self._post("/v1/check/batch", body)
            return wire.read_batch(status, answer, len(requests))
        except Unreachable as error:
            return [wire.unreachable_answer(self._on_unreachable, error) for _ in requests]

    async def close(self) -> None:
        """Closes the connections that are idle."""
        idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.discard()
        # Transports close in the next turn of the loop, which may be the last.
        await asyncio.sleep(0)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self.close()

    async def _ask(self, path: str, attributes: Attributes, cost: int, domain: Optional[str]) -> Answer:
        body = wire.request_body(attributes, cost, domain)
        try:
            return wire.read_answer(*await self._post(path, body))
        except Unreachable as error:
            return wire.unreachable_answer(self._on_unreachable, error)

    async def _post(self, path: str, body: bytes) -> Tuple[int, Mapping[str, str], bytes]:
        try:
            return await asyncio.wait_for(self._exchange(path, body), self._timeout)
        except asyncio.TimeoutError as error:
            raise Unreachable(f"{self._place.authority} did not answer within {self._timeout:g} s") from error
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            reason = tls.explain(error) or str(error) or type(error).__name__
            raise Unreachable(f"{self._place.authority} did not answer: {reason}") from error

    async def _exchange(self, path: str, body: bytes) -> Tuple[int, Mapping[str, str], bytes]:
        connection = await self._take()
        try:
            connection.writer.write(
                f"POST {self._place.prefix}{path} HTTP/1.1\r\nHost: {self._place.authority}\r\n"
                f"{self._headers}Content-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            await connection.writer.drain()
            status, headers = await _read_head(connection.reader)
            answer = await _read_body(connection.reader, headers)
        except BaseException:
            # Also when the caller has given up: half an answer is in there.
            connection.discard()
            raise
        if headers.get("connection", "").lower() == "close" or len(self._idle) >= IDLE_CONNECTIONS_MAX:
            connection.discard()
        else:
            self._idle.append((time.monotonic(), connection))
        return status, headers, answer

    async def _take(self) -> _Connection:
        loop = asyncio.get_running_loop()
        while self._idle:
            since, connection = self._idle.pop()
            if connection.loop is loop and time.monotonic() - since < IDLE_MAX_S and connection.is_quiet():
                return connection
            connection.discard()
        reader, writer = await asyncio.open_connection(self._place.host, self._place.port, ssl=self._ssl)
        return _Connection(loop, reader, writer)


async def _read_head(reader: asyncio.StreamReader) -> Tuple[int, Dict[str, str]]:
    line = (await reader.readuntil(b"\r\n")).split(None, 2)
    if len(line) < 2 or not line[0].startswith(b"HTTP/1.") or not line[1].isdigit():
        raise ValueError(f"the answer begins {b' '.join(line)[:40]!r}: that is no HTTP/1.1")
    headers: Dict[str, str] = {}
    for _ in range(_HEADERS_MAX):
        text = (await reader.readuntil(b"\r\n")).decode("latin-1").rstrip("\r\n")
        if not text:
            return int(line[1]), headers
        name, _, value = text.partition(":")
        headers[name.strip().lower()] = value.strip()
    raise ValueError(f"the answer has more than {_HEADERS_MAX} headers")


async def _read_body(reader: asyncio.StreamReader, headers: Dict[str, str]) -> bytes:
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return await _read_chunks(reader)
    length = int(headers.get("content-length", "0"))
    if not 0 <= length <= wire.ANSWER_BYTES_MAX:
        raise ValueError(f"the answer is {length} bytes long")
    return await reader.readexactly(length)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while True:
        length = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
        if not 0 <= length <= wire.ANSWER_BYTES_MAX - len(body):
            raise ValueError("the answer is too long")
        if length == 0:
            break
        body += await reader.readexactly(length)
        await reader.readexactly(2)
    while (await reader.readuntil(b"\r\n")) != b"\r\n":
        pass
    return bytes(body)
