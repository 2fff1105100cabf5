"""Who asks for what, as far as an HTTP request tells by itself."""

from __future__ import annotations

import ipaddress
import re
from typing import Dict, List, Optional
from urllib.parse import quote, unquote_to_bytes

#: What may stand in a segment of a path without a percent (RFC 3986).
_BARE = "-._~!$&'()*+,;=:@"


def request_attributes(method: str, target: str, host: Optional[str], peer: Optional[str]) -> Dict[str, str]:
    """`target` as it was sent; `peer` is the address of the connection.

    Headers are not asked who the client is: clients write them.
    """
    attributes = {"method": method, "endpoint": endpoint(target)}
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


def endpoint(target: str) -> str:
    """The path without its query, with one slash where there are several, without dot segments and each
    character in one way, so that no other way of writing it has a bucket of its own."""
    path = re.sub(r"[?#].*", "", target, flags=re.DOTALL)
    path = re.sub(r"^https?://[^/]*", "", path, flags=re.IGNORECASE)
    if path == "*":
        return path
    segments: List[str] = []
    is_open = True
    for segment in path.split("/"):
        plain = quote(unquote_to_bytes(segment), safe=_BARE)
        is_open = plain in ("", ".", "..")
        if not is_open:
            segments.append(plain)
        elif plain == ".." and segments:
            segments.pop()
    return "".join("/" + segment for segment in segments) + ("/" if is_open else "")


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
