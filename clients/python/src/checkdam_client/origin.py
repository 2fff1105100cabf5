"""Who asks for what, as far as an HTTP request tells by itself."""

from __future__ import annotations

import ipaddress
import posixpath
import re
from typing import Dict, Optional


def request_attributes(method: str, path: str, host: Optional[str], peer: Optional[str]) -> Dict[str, str]:
    """`path` without its query and with its escapes decoded; `peer` is the address of the connection.

    Headers are not asked who the client is: clients write them.
    """
    attributes = {"method": method, "endpoint": endpoint(path)}
    name = host_name(host or "")
    if name:
        attributes["host"] = name
    address = client_address(peer or "")
    if address:
        attributes["ip"] = address
    return attributes


def endpoint(path: str) -> str:
    """The path with one slash where there are several and without dot segments,
    so that no other way of writing it has a bucket of its own."""
    plain = posixpath.normpath("/" + re.sub("/+", "/", path).lstrip("/"))
    return plain + "/" if path.endswith(("/", "/.", "/..")) and plain != "/" else plain


def host_name(authority: str) -> str:
    """In lower case, without a port."""
    if authority.startswith("["):
        return authority[1:].partition("]")[0].lower()
    return authority.partition(":")[0].lower()


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
