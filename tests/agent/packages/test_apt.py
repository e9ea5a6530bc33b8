"""apt for real: a package of a local repository is installed below a root of its own, and purged again."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from bedplate.agent.packages.native import APT, Native

pytestmark = [pytest.mark.root, pytest.mark.external]
CONTROL = """\
Package: bedplate-probe
Version: 1.0
Architecture: all
Maintainer: nobody <nobody@localhost>
Description: a probe
"""


@pytest.fixture
def apt(tmp_path: Path) -> Native:
    """apt-get with a repository, lists, cache and root of its own."""
    tree, repository, root = tmp_path / "tree", tmp_path / "repository", tmp_path / "root"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(CONTROL)
    (tree / "usr/share/probe").mkdir(parents=True)
    (tree / "usr/share/probe/file").write_text("x\n")
    repository.mkdir()
    package = repository / "bedplate-probe_1.0_all.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", str(tree), str(package)], check=True, capture_output=True)
    data = package.read_bytes()
    about = f"{CONTROL}Filename: ./{package.name}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"
    (repository / "Packages").write_text(about)
    for name in ("var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "var/lib/apt/lists/partial"):
        (root / name).mkdir(parents=True)
    (root / "var/lib/dpkg/status").write_text("")
    (root / "var/cache/apt/archives/partial").mkdir(parents=True)
    (root / "var/log/apt").mkdir(parents=True)
    (tmp_path / "sources.list").write_text(f"deb [trusted=yes] file:{repository} ./\n")
    settings = {
        "Dir::Etc::sourcelist": tmp_path / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State": root / "var/lib/apt",
        "Dir::State::status": root / "var/lib/dpkg/status",
        "Dir::Cache": root / "var/cache/apt",
        "Dir::Log": root / "var/log/apt",
        "DPkg::Options::": f"--root={root}",
        "APT::Sandbox::User": "root",
    }
    options = tuple(word for key, value in settings.items() for word in ("-o", f"{key}={value}"))
    return Native(APT, options=options, query_options=(f"--admindir={root}/var/lib/dpkg",))


async def test_a_package_comes_and_goes(apt: Native, tmp_path: Path) -> None:
    assert await apt.installed(["bedplate-probe"]) == set()
    # The lists were never fetched: the first attempt fails, and is repeated after an update.
    assert await apt.install("bedplate-probe") is None
    assert (tmp_path / "root/usr/share/probe/file").read_text() == "x\n"
    assert await apt.installed(["bedplate-probe", "none"]) == {"bedplate-probe"}
    assert await apt.install("bedplate-probe") is None
    assert await apt.remove("bedplate-probe") is None
    assert not (tmp_path / "root/usr/share/probe").exists()
    assert await apt.installed(["bedplate-probe"]) == set()


async def test_what_apt_says_is_told(apt: Native) -> None:
    assert await apt.install("bedplate-none") == "apt-get: E: Unable to locate package bedplate-none"
