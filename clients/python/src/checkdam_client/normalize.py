"""Normalizes paths, hosts and client addresses: the attributes of an HTTP request."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Dict, List, Optional
from urllib.parse import quote, unquote_to_bytes

#: What may stand in a segment of a path without a percent (RFC 3986).
_BARE = "-._~!$&'()*+,;=:@"


#: What some servers read as a slash.
_OTHER_SLASHES = re.compile(r"%2f|%5c|\\", re.IGNORECASE)


class AmbiguousPath(ValueError):
    """A path that applications read in two ways."""


@dataclass(frozen=True)
class PathForms:
    """How spellings of a path are treated that only some applications read alike, as the server's settings
    --path-slashes, --path-parameters, --path-trailing-slash and --path-case."""

    #: %2F, %5C and \\: "refuse" (400), "keep" (they separate nothing) or "decode" (they count as /)
    slashes: str = "refuse"
    #: what follows a semicolon in a segment: "strip" or "keep"
    parameters: str = "strip"
    #: a slash at the end: "keep" or "strip"
    trailing_slash: str = "keep"
    #: letter case: "keep" or "lower"
    case: str = "keep"

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(f"{name} is {value!r}: use one of {', '.join(choices)}")


_CHOICES = {
    "slashes": ("refuse", "keep", "decode"),
    "parameters": ("strip", "keep"),
    "trailing_slash": ("keep", "strip"),
    "case": ("keep", "lower"),
}
_DEFAULT = PathForms()


def request_attributes(
    method: str, target: str, host: Optional[str], peer: Optional[str], paths: PathForms = _DEFAULT
) -> Dict[str, str]:
    """`target` as it was sent; `peer` is the address of the connection.

    No header decides the address: clients can send any header. A path that can be
    read in two ways raises AmbiguousPath, which the middlewares answer with 400.
    """
    if has_dot_segments(target, paths):
        raise AmbiguousPath("the path has dot segments: ask for the path that is meant")
    # Some frameworks take get for GET.
    attributes = {"method": method.upper(), "endpoint": endpoint(target, paths)}
    name = host_name(host or "")
    if name:
        attributes["host"] = name
    address = client_address(peer or "")
    if address:
        attributes["ip"] = address
    return attributes


def target_of(path: bytes) -> str:
    """A path whose percents are decoded, as it may have been sent."""
    return quote(path, safe="/" + _BARE)


def endpoint(target: str, paths: PathForms = _DEFAULT) -> str:
    """The path without its query, with one slash where there are several, without dot segments and each
    character in one way, so that no other way of writing it has a bucket of its own."""
    path = _path(target)
    if path == "*":
        return path
    if paths.slashes == "refuse" and _OTHER_SLASHES.search(path):
        raise AmbiguousPath("the path has an encoded slash or a backslash (%2F, %5C or \\): write it in one way")
    segments: List[str] = []
    is_open = True
    for plain in _segments(path, paths):
        is_open = plain in ("", ".", "..")
        if not is_open:
            segments.append(plain)
        elif plain == ".." and segments:
            segments.pop()
    return "".join("/" + segment for segment in segments) + (
        "/" if is_open and not (segments and paths.trailing_slash == "strip") else ""
    )


def has_dot_segments(target: str, paths: PathForms = _DEFAULT) -> bool:
    """Whether the path has dot segments: some applications follow them, others take them as they stand."""
    return any(plain in (".", "..") for plain in _segments(_path(target), paths))


def _path(target: str) -> str:
    path = re.sub(r"[?#].*", "", target, flags=re.DOTALL)
    return re.sub(r"^https?://[^/]*", "", path, flags=re.IGNORECASE)


def _segments(path: str, paths: PathForms) -> List[str]:
    if paths.slashes == "decode":
        path = _OTHER_SLASHES.sub("/", path)
    segments = []
    for segment in path.split("/"):
        data = unquote_to_bytes(segment)
        if paths.parameters == "strip":
            data = data.partition(b";")[0]
        segments.append(quote(data.lower() if paths.case == "lower" else data, safe=_BARE))
    return segments


def host_name(authority: str) -> str:
    """In lower case, without port, brackets and last dot."""
    if authority.startswith("["):
        host = authority[1:].partition("]")[0]
    elif authority.count(":") > 1:
        host = authority
    else:
        host = authority.partition(":")[0]
    return (host[:-1] if host.endswith(".") else host).lower()


def client_address(peer: str) -> str:
    """IPv6 by its /64, which is one subscriber; empty for what is no address, such as a Unix socket."""
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Address(int(address) >> 64 << 64))
