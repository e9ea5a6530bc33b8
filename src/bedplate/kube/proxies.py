"""Which HTTP proxy leads to a server: the kubeconfig's, or the one in the environment, by the rules of Go's net/http.

In: an address and environment values. Out: the proxy's address, or nothing. Pure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from bedplate.core import errors

__all__ = ["choose", "is_bypassed"]


def choose(server: str, configured: str, environ: Mapping[str, str]) -> str:
    """The proxy for `server`: `configured` wins, else HTTPS_PROXY or HTTP_PROXY unless NO_PROXY covers the server."""
    proxy = configured
    if not proxy:
        parts = urlsplit(server)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        name = "HTTPS_PROXY" if parts.scheme == "https" else "HTTP_PROXY"
        proxy = environ.get(name) or environ.get(name.lower()) or ""
        if not proxy or is_bypassed(host, port, environ.get("NO_PROXY") or environ.get("no_proxy") or ""):
            return ""
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    scheme = urlsplit(proxy).scheme
    if scheme not in ("http", "https"):
        raise errors.Invalid(f"proxy of scheme {scheme!r} is not supported", hint="use an http or https proxy")
    return proxy


def is_bypassed(host: str, port: int, no_proxy: str) -> bool:
    """Whether NO_PROXY (names, .suffixes, addresses, CIDRs, each with an optional port, or `*`) covers this server."""
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(_covers(entry.strip().lower(), host.lower().rstrip("."), port, address) for entry in no_proxy.split(","))


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None


def _covers(entry: str, host: str, port: int, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None) -> bool:
    if not entry:
        return False
    if entry == "*":
        return True
    if "/" in entry:
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, wanted_port = _split_port(entry)
    if wanted_port is not None and wanted_port != port:
        return False
    if _address(name) is not None:
        return address == _address(name)
    name = name.removeprefix("*")
    # "example.com" covers itself and its subdomains, ".example.com" only the latter.
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")


def _split_port(entry: str) -> tuple[str, int | None]:
    if _address(entry) is not None:
        return entry, None
    name, colon, port = entry.rpartition(":")
    return (name, int(port)) if colon and port.isdigit() else (entry, None)
