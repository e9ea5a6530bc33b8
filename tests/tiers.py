"""Which tier a test belongs to: `make test`, `make verify` or `make soak`.

In: a test's marks, the names of its fixtures and the values of its parameters. Out: the marks to add, and the tier.
`make test` runs what needs nothing but Python. A test that talks to a program which is not part of this repository is
marked `external` (`real` when that program is a kube-apiserver) and runs in `make verify`.

Marks come from the tables here wherever a fixture or a parameter tells; a test that finds its program in another way
carries the mark itself. `guard` is the safety net: code that looks a program up calls it, and a test of `make test`
fails there, whether the program is installed or not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

VERIFY_MARKS = frozenset({"real", "external", "root", "lab"})
"""Marks that keep a test out of `make test`."""

PROGRAM_MARKS = frozenset({"real", "external", "lab"})
"""Marks of tests that talk to an external program: those may be tried a second time in `make verify`."""

FIXTURES = {
    "chromium": "external",
    "etcd": "external",
    "helm": "external",
    "kubectl": "external",
    "kubectl_program": "external",
    "nv_ipam": "external",
    "registry": "external",
}
"""Fixtures that start, or give the path of, a program that is not part of this repository; with the mark they add."""

_SERVERS = {"real": "real", "embedded-etcd": "external"}
_STORES = {"etcd": "external"}
_CONTRACTS = {"document": "external"}
PARAMETERS: Mapping[str, Mapping[str, str]] = {
    "server": _SERVERS,
    "own_server": _SERVERS,
    "place": _SERVERS,
    "store": _STORES,
    "backend": _STORES,
    "contract": _CONTRACTS,
    "contract_source": _CONTRACTS,
}
"""Parameters whose value names a program; with the mark that each value adds."""

_running: list[pytest.Item] = []


def marks_for(fixtures: Collection[str], parameters: Mapping[str, object]) -> set[str]:
    """The marks that follow from the fixtures that a test asks for and from its parameters."""
    marks = {FIXTURES[name] for name in FIXTURES.keys() & set(fixtures)}
    for name, values in PARAMETERS.items():
        value = parameters.get(name)
        if isinstance(value, str) and value in values:
            marks.add(values[value])
    return marks


def tier(marks: Collection[str]) -> str:
    """`test`, `verify` or `soak`."""
    if "soak" in marks:
        return "soak"
    return "test" if VERIFY_MARKS.isdisjoint(marks) else "verify"


def marks_of(item: pytest.Item) -> set[str]:
    return {mark.name for mark in item.iter_markers()}


def add_marks(item: pytest.Item) -> None:
    """Add the marks that the item's fixtures and parameters call for."""
    callspec = getattr(item, "callspec", None)
    parameters = callspec.params if callspec is not None else {}
    for name in sorted(marks_for(getattr(item, "fixturenames", ()), parameters)):
        item.add_marker(name)


def started(item: pytest.Item) -> None:
    _running.append(item)


def ended() -> None:
    _running.pop()


def guard(program: str) -> None:
    """Fail the running test if it belongs to `make test`: none there may depend on a program of the machine."""
    for item in _running[-1:]:
        if tier(marks_of(item)) == "test":
            pytest.fail(f"a test of `make test` asks for {program}: mark it `external`, or `real`")
