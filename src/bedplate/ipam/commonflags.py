"""What the flags of both programs have in common: feature gates and addresses to listen on. Pure."""

from __future__ import annotations

__all__ = ["GATES", "listener"]

GATES = ("AllAlpha", "AllBeta", "ContextualLogging", "LoggingAlphaOptions", "LoggingBetaOptions")


def listener(address: str) -> tuple[str | None, int] | None:
    """Host (None: every interface) and port of `host:port`, `[v6]:port` or `:port`; None for `0` and for nothing."""
    if address in ("", "0"):
        return None
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{address!r} is not HOST:PORT, :PORT or 0")
    bare = host.removeprefix("[").removesuffix("]") if host.startswith("[") and host.endswith("]") else host
    if ":" in bare and bare == host:
        raise ValueError(f"{address!r}: write an IPv6 address as [{host}]:{port}")
    return (bare or None), int(port)
