"""TLS of the clients: which CAs verify the server, and the client's own certificate."""

from __future__ import annotations

import os
import ssl
from typing import Optional, Union

from .wire import Place

#: The name of a file, as `open` takes it.
FilePath = Union[str, "os.PathLike[str]"]


def context(
    place: Place,
    ca_file: Optional[FilePath],
    client_certificate: Optional[FilePath],
    client_key: Optional[FilePath],
    ssl_context: Optional[ssl.SSLContext],
) -> Optional[ssl.SSLContext]:
    """What connections are made with; None without TLS.

    Files that cannot be used are an error here, not at the first check.
    """
    files = {"ca_file": ca_file, "client_certificate": client_certificate, "client_key": client_key}
    given = [name for name, path in files.items() if path is not None]
    if not place.tls:
        if given:
            raise ValueError(f"{given[0]} needs TLS: write the server's address as https://…")
        return None
    if ssl_context is not None:
        if given:
            raise ValueError(f"ssl_context and {given[0]} are given: load the file into the context instead")
        return ssl_context
    if client_key is not None and client_certificate is None:
        raise ValueError("client_key is given without client_certificate")
    for name in given:
        _check_readable(name, files[name])
    try:
        # With a CA file, the CAs of the system are not trusted.
        made = ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError as error:
        raise ValueError(f"ca_file: {os.fspath(ca_file or '')!r} has no CA certificate in PEM: {error}") from error
    made.set_alpn_protocols(["http/1.1"])
    if client_certificate is not None:
        try:
            made.load_cert_chain(client_certificate, client_key, password=_no_password)
        except ssl.SSLError as error:
            pair = os.fspath(client_certificate) if client_key is None else os.fspath(client_key)
            raise ValueError(
                f"client_certificate: {os.fspath(client_certificate)!r} and the key in {pair!r} are not a pair in PEM: {error}"
            ) from error
    return made


def explain(error: BaseException) -> Optional[str]:
    """What to do about an error of a connection, if TLS is its cause."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}; see ca_file"
    reason = getattr(error, "reason", None)
    if isinstance(error, ssl.SSLError) and isinstance(reason, str):
        if "CERTIFICATE_REQUIRED" in reason:
            return "it requires a client certificate: see client_certificate"
        if "UNKNOWN_CA" in reason or "BAD_CERTIFICATE" in reason or "CERTIFICATE_UNKNOWN" in reason:
            return f"it does not accept the client certificate ({reason})"
        if "WRONG_VERSION_NUMBER" in reason or "HTTP_REQUEST" in reason:
            return "it does not use TLS: write its address as http://…"
    return None


def _check_readable(name: str, path: Optional[FilePath]) -> None:
    """`ssl` does not say which of the files it cannot open."""
    try:
        with open(path or "", "rb"):
            pass
    except OSError as error:
        raise type(error)(error.errno, f"{name}: {error.strerror}", path) from None


def _no_password() -> str:
    # Without this OpenSSL would ask for it on the terminal.
    raise ValueError("client_key: the private key is encrypted; decrypt it, or load it into an ssl_context")
