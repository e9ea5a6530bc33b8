"""A node's store file, as people look at it: who is in it, and whether it is well.

In: the path of a store, read without any lock. Out: `Holding`s, rows of a table, an `Explanation`. Reads only; bringing
a file up to date is `ipam.node.storeview.sync_store`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from bedplate.cli import display
from bedplate.cli.ipam.holders import Holding
from bedplate.cli.ipam.tables import Table
from bedplate.core import clock
from bedplate.core.explanation import Explanation, Finding, State
from bedplate.ipam.addresses import parse_address
from bedplate.ipam.node import poolconfig
from bedplate.ipam.node.reservations import Reservation
from bedplate.ipam.node.storeview import StoreView, read_store

__all__ = ["check", "holdings", "listed"]


def holdings(path: Path) -> Iterator[Holding]:
    """What a store says about who holds what. It does not say which node it is of."""
    for reservation in read_store(path).reservations():
        address = parse_address(reservation.address)
        if address is not None:
            yield Holding(
                address,
                reservation.pod_namespace,
                reservation.pod_name,
                reservation.pod_uid,
                "",
                reservation.interface_name,
                "",
                _moment(reservation),
                "store",
                reservation.pool,
                reservation.container_id,
                reservation.device_id,
            )


def listed(view: StoreView, now: datetime) -> Table:
    """Every reservation."""
    reservations = sorted(view.reservations(), key=_place)
    columns = ("address", "pool", "pod", "interface", "container", "device", "age")
    rows = [
        (
            reservation.address or "-",
            reservation.pool,
            f"{reservation.pod_namespace}/{reservation.pod_name}" if reservation.pod_name else "-",
            reservation.interface_name,
            reservation.container_id[:13],
            reservation.device_id or "-",
            display.age((now - since).total_seconds()) if (since := _moment(reservation)) is not None else "-",
        )
        for reservation in reservations
    ]
    return Table(columns, rows, lambda: [_plain(reservation) for reservation in reservations])


def check(path: Path, view: StoreView) -> Explanation:
    """What is in the store, and what is wrong with it."""
    return Explanation("Store", str(path), tuple(_findings(path, view)))


def _findings(path: Path, view: StoreView) -> Iterator[Finding]:
    seen = view.assessment
    if seen.broken_file:
        text = f"{seen.broken_file}: the daemon moves it aside at startup and continues with the rest"
        yield Finding("file", "broken", text, State.BAD)
    else:
        size = seen.file[1] if seen.file is not None else 0
        yield Finding("file", "well", f"{size} bytes, its checksum is correct")
    if seen.broken_journal:
        yield Finding("journal", "broken", f"{seen.broken_journal}: calls after that point are missing", State.BAD)
    elif seen.is_foreign:
        text = "it does not belong to this file, which another program has written: the daemon will move it aside"
        yield Finding("journal", "foreign", text, State.BAD)
    elif seen.broken_file:
        yield Finding("journal", "read", "its content is added to what can be read from the file", State.NOTICE)
    elif view.pending:
        text = f"{view.pending} calls are only in the journal: bedplate ipam store sync {path} writes them to the file"
        yield Finding("journal", "ahead", text, State.NOTICE)
    else:
        yield Finding("journal", "even", "the file is complete: the original's daemon could take over")
    if view.holder is not None:
        yield Finding("daemon", f"process {view.holder}", "uses the store now")
    else:
        yield Finding("daemon", "none", "no process is known to use the store")
    reservations = list(view.reservations())
    yield Finding("reservations", str(len(reservations)), _by_pool(reservations))
    yield from _doubtful(reservations)


def _by_pool(reservations: list[Reservation]) -> str:
    counts = Counter(reservation.pool for reservation in reservations)
    return ", ".join(f"{count} of {pool}" for pool, count in sorted(counts.items())) or "nothing is held"


def _doubtful(reservations: list[Reservation]) -> Iterator[Finding]:
    """What no daemon should have written."""
    twice = Counter((reservation.pool, reservation.address) for reservation in reservations)
    for (pool, written), count in sorted(twice.items()):
        if count > 1:
            yield Finding("twice", written, f"{count} interfaces have it in pool {pool}", State.BAD)
    for reservation in reservations:
        address, config = parse_address(reservation.address), poolconfig.read(reservation.pool, reservation.config)
        if address is None:
            yield Finding(
                "address",
                reservation.address or "none",
                f"{_name(reservation)} of {reservation.pool} has no address",
                State.BAD,
            )
        elif config is not None and not config.network.holds(address):
            yield Finding(
                "address", reservation.address, f"{_name(reservation)}: it is not in {config.subnet}", State.BAD
            )


def _name(reservation: Reservation) -> str:
    return (
        f"{reservation.pod_namespace}/{reservation.pod_name}"
        if reservation.pod_name
        else f"container {reservation.container_id}"
    )


def _place(reservation: Reservation) -> tuple[str, int, str]:
    address = parse_address(reservation.address)
    return reservation.pool, address.value if address is not None else -1, reservation.container_id


def _moment(reservation: Reservation) -> datetime | None:
    try:
        return clock.parse_rfc3339(reservation.create_time)
    except ValueError:
        return None


def _plain(reservation: Reservation) -> dict[str, Any]:
    return {
        "address": reservation.address,
        "pool": reservation.pool,
        "namespace": reservation.pod_namespace,
        "pod": reservation.pod_name,
        "uid": reservation.pod_uid,
        "interface": reservation.interface_name,
        "container": reservation.container_id,
        "device": reservation.device_id,
        "since": reservation.create_time,
        "config": reservation.config,
    }
