"""Functions that ask before they run."""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from dataclasses import replace
from math import ceil
from typing import Any, Callable, Mapping, Optional, TypeVar, Union, cast

from .aio import AsyncClient
from .answer import Answer
from .client import Client
from .errors import Limited
from .wire import Attributes

Function = TypeVar("Function", bound=Callable[..., Any])

#: The default bound on how long a request is held back, in seconds.
DELAY_MAX_S = 10.0


def limited(
    client: Union[Client, AsyncClient],
    attributes: Union[Attributes, Callable[..., Attributes]],
    *,
    cost: Union[int, Callable[..., int]] = 1,
    domain: Optional[str] = None,
    delay_max: float = DELAY_MAX_S,
) -> Callable[[Function], Function]:
    """Decorates a function so that each call is charged first.

    `attributes` and `cost` may be functions of the call's own arguments. A denied
    call raises `Limited` and does not run. What a leaky bucket delays waits, at
    most `delay_max` seconds; beyond that it is given back and denied. A coroutine
    function needs an `AsyncClient`, any other a `Client`.

    >>> @limited(client, lambda user: {"user": user})
    ... def search(user): ...
    """

    def decorate(function: Function) -> Function:
        def asked(args: Any, kwargs: Any) -> Mapping[str, Any]:
            return {
                "attributes": attributes(*args, **kwargs) if callable(attributes) else attributes,
                "cost": cost(*args, **kwargs) if callable(cost) else cost,
                "domain": domain,
            }

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            admit(cast(Client, client), asked(args, kwargs), delay_max)
            return function(*args, **kwargs)

        @functools.wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            await admit_async(cast(AsyncClient, client), asked(args, kwargs), delay_max)
            return await function(*args, **kwargs)

        is_async = inspect.iscoroutinefunction(function)
        if is_async != isinstance(client, AsyncClient):
            wanted = "an AsyncClient" if is_async else "a Client"
            raise TypeError(f"{function.__name__} needs {wanted}, not {type(client).__name__}")
        return cast(Function, call_async if is_async else call)

    return decorate


def admit(client: Client, request: Mapping[str, Any], delay_max: float) -> Answer:
    """Charges a request and waits as long as it is to be held back."""
    answer = client.check(**request)
    if answer.allowed and answer.delay > delay_max:
        client.refund(**request)
        answer = held_too_long(answer, delay_max)
    if not answer.allowed:
        raise Limited(answer)
    if answer.delay > 0:
        time.sleep(answer.delay)
    return answer


async def admit_async(client: AsyncClient, request: Mapping[str, Any], delay_max: float) -> Answer:
    """Charges a request and waits as long as it is to be held back."""
    answer = await client.check(**request)
    if answer.allowed and answer.delay > delay_max:
        await client.refund(**request)
        answer = held_too_long(answer, delay_max)
    if not answer.allowed:
        raise Limited(answer)
    if answer.delay > 0:
        await asyncio.sleep(answer.delay)
    return answer


def held_too_long(answer: Answer, delay_max: float) -> Answer:
    """A delay that is longer than anybody waits, as a denial that says when it will be short enough."""
    retry_after = answer.delay - delay_max
    return replace(
        answer,
        allowed=False,
        status=429,
        retry_after=retry_after,
        delay=0.0,
        kind="https://iana.org/assignments/http-problem-types#quota-exceeded",
        title="Request cannot be satisfied as assigned quota has been exceeded",
        detail=f"the queue is {answer.delay:.1f} s long: try again in {ceil(retry_after * 1000)} ms",
        headers={**answer.headers, "retry-after": str(ceil(retry_after))},
    )
