"""Which store a program uses, from the options a user gave.

In: text options, as command lines and settings files carry them. Out: a store that is not yet open. All faults in the
options are reported together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bedplate.core import errors, extras
from bedplate.core.clock import Clock
from bedplate.store.interface import Store
from bedplate.store.sqlite import SqliteStore

__all__ = ["StoreOptions", "open_store"]

_SQLITE = "sqlite:"


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """`location` is `sqlite:PATH` or `etcd`; the `etcd_` options are those of `--etcd-endpoints`, `--etcd-cafile`,
    `--etcd-certfile`, `--etcd-keyfile`, `--etcd-prefix`. `history_s` and `must_exist` are for SQLite: how long old
    revisions stay readable, and whether a missing or empty file is an error. An etcd keeps its own history, for as long
    as its operator configured."""

    location: str = ""
    history_s: float = 300.0
    etcd_endpoints: Sequence[str] = ()
    etcd_cafile: str = ""
    etcd_certfile: str = ""
    etcd_keyfile: str = ""
    etcd_prefix: str = "/bedplate"
    must_exist: bool = False
    etcd_user: str = ""
    etcd_password: str = ""


def open_store(options: StoreOptions, *, clock: Clock | None = None) -> Store:
    """The store the options name, to be opened with `async with`. Raises `Invalid`."""
    problems = _problems(options)
    if problems:
        raise errors.Invalid("the store cannot be opened", problems=problems)
    if options.location.startswith(_SQLITE):
        path = options.location.removeprefix(_SQLITE)
        return SqliteStore(path, history_s=options.history_s, clock=clock, must_exist=options.must_exist)
    extras.require("--store etcd", "etcd")
    # Loaded only when used: gRPC would cost every program 12 MB and 50 ms.
    from bedplate.store.etcd import EtcdOptions, EtcdStore

    etcd = EtcdOptions(
        endpoints=[endpoint.rstrip("/") for endpoint in options.etcd_endpoints],
        prefix=options.etcd_prefix,
        ca_file=options.etcd_cafile,
        cert_file=options.etcd_certfile,
        key_file=options.etcd_keyfile,
        user=options.etcd_user,
        password=options.etcd_password,
    )
    return EtcdStore(etcd, clock=clock)


def _problems(options: StoreOptions) -> list[str]:
    is_etcd = options.location in ("", "etcd") and bool(options.etcd_endpoints)
    problems = []
    if options.location == "etcd" and not options.etcd_endpoints:
        problems.append("etcd needs --etcd-endpoints")
    elif not is_etcd and (not options.location.startswith(_SQLITE) or options.location == _SQLITE):
        problems.append(f"{options.location!r} is not a store (write sqlite:PATH, or etcd with --etcd-endpoints)")
    if options.location.startswith(_SQLITE) and options.etcd_endpoints:
        problems.append(f"{options.location} and --etcd-endpoints are mutually exclusive")
    if bool(options.etcd_certfile) != bool(options.etcd_keyfile):
        problems.append("--etcd-certfile and --etcd-keyfile must be given together")
    if bool(options.etcd_user) != bool(options.etcd_password):
        problems.append("an etcd user and its password must be given together")
    if options.history_s <= 0:
        problems.append(f"the history must be longer than 0 s, not {options.history_s:g} s")
    for endpoint in options.etcd_endpoints:
        scheme, _, address = endpoint.rstrip("/").rpartition("://")
        host, _, port = address.rpartition(":")
        if scheme not in ("", "http", "https") or not host or not port.isdigit():
            problems.append(f"{endpoint!r} must be an endpoint such as https://HOST:PORT")
        elif scheme == "http" and options.etcd_cafile:
            problems.append(f"{endpoint!r} is not encrypted although --etcd-cafile is given")
    return problems
