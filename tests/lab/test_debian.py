"""The Docker engine from packages of Debian: fetched once, unpacked into the cache, with stand-ins for apt and dpkg."""

from __future__ import annotations

from pathlib import Path

import pytest

from bedplate.core import errors
from bedplate.lab import debian

_APT = """#!/bin/sh
echo "$@" >> {calls}
{failure}
shift 2
for name in "$@"; do echo "$name" > "${{name}}_20.10.24+dfsg1-1_amd64.deb"; done
"""
_DPKG = """#!/bin/sh
mkdir -p "$3/usr/sbin"
[ "$(cat "$2")" != docker.io ] || echo engine > "$3/usr/sbin/dockerd"
"""


def machine(
    tmp_path: Path, failure: str = "", *, programs: tuple[str, ...] = ("apt-get", "dpkg-deb")
) -> dict[str, str]:
    """The environment of a machine with these programs."""
    texts = {"apt-get": _APT.format(calls=tmp_path / "calls", failure=failure), "dpkg-deb": _DPKG}
    folder = tmp_path / "path"
    folder.mkdir()
    for name in programs:
        (folder / name).write_text(texts[name])
        (folder / name).chmod(0o755)
    for name in ("mkdir", "cat"):
        (folder / name).symlink_to(f"/bin/{name}")
    return {"BEDPLATE_CACHE": str(tmp_path / "cache"), "PATH": str(folder)}


def test_it_is_fetched_once_and_kept_by_its_version(tmp_path: Path) -> None:
    environ = machine(tmp_path)
    said: list[str] = []
    assert debian.cached(environ=environ) is None
    found = debian.ensure(said.append, environ=environ)
    assert found == tmp_path / "cache/docker/20.10.24+dfsg1-1/usr/sbin/dockerd"
    assert found.read_text() == "engine\n"
    assert debian.ensure(said.append, environ=environ) == debian.cached(environ=environ) == found
    assert (tmp_path / "calls").read_text() == "--quiet download docker.io tini libdevmapper1.02.1\n"
    assert said == ["fetching docker.io, tini, libdevmapper1.02.1 with apt-get"]
    assert [path.name for path in (tmp_path / "cache/docker").iterdir()] == ["20.10.24+dfsg1-1"]


def test_what_apt_says_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    environ = machine(tmp_path, "echo 'E: Unable to locate package docker.io' >&2; exit 100")
    with pytest.raises(errors.Unavailable, match="apt-get: E: Unable to locate package") as caught:
        debian.ensure(print, environ=environ)
    assert caught.value.hint == "apt-get update, then try again"
    assert list((tmp_path / "cache/docker").iterdir()) == []


def test_a_machine_that_cannot_fetch_it_says_so(tmp_path: Path) -> None:
    environ = machine(tmp_path, programs=("apt-get",))
    with pytest.raises(errors.NotFound, match="there is no dpkg-deb here"):
        debian.ensure(print, environ=environ)
    with pytest.raises(errors.Invalid, match="BEDPLATE_NO_BUILD forbids fetching it"):
        debian.ensure(print, environ={**environ, "BEDPLATE_NO_BUILD": "1"})
