"""Client of the checkdam rate limiter, and a polite caller of any limited API.

`Client` and `AsyncClient` ask a checkdam server. `limited` decorates functions,
`RateLimitMiddleware` and `WsgiRateLimitMiddleware` guard applications. `Polite`
and `AsyncPolite` call APIs that others limit, without running into the limits.
"""

from .aio import AsyncClient
from .answer import Answer, Ban, Tier
from .asgi import RateLimitMiddleware, scope_attributes
from .client import Client
from .errors import CheckdamError, Limited, QueueFull, Refused, Unreachable, WaitTooLong
from .limited import limited
from .normalize import AmbiguousPath, PathForms
from .pace import Pace
from .polite import AsyncPolite, Polite
from .wsgi import WsgiRateLimitMiddleware, environ_attributes

__version__ = "0.1.0"

__all__ = [
    "AmbiguousPath",
    "Answer",
    "AsyncClient",
    "AsyncPolite",
    "Ban",
    "CheckdamError",
    "Client",
    "Limited",
    "Pace",
    "PathForms",
    "Polite",
    "QueueFull",
    "RateLimitMiddleware",
    "Refused",
    "Tier",
    "Unreachable",
    "WaitTooLong",
    "WsgiRateLimitMiddleware",
    "environ_attributes",
    "limited",
    "scope_attributes",
]
