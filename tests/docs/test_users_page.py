"""The tutorial about two users works as written. It creates accounts, so it sees an /etc and a /home of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests import pages, programs
from tests.docs.conftest import furnish

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/tutorials/two-users.md"
DEADLINE_S = 600

# In a mount namespace of its own: what the page does to accounts is gone with it.
ALONE = """
set -e
mount --bind "$1/etc" /etc
for place in /home /var/log /var/mail; do test ! -d "$place" || mount -t tmpfs tmpfs "$place"; done
shift
exec "$@"
"""


@pytest.mark.root
@pytest.mark.external
def test_the_tutorial_of_two_users(tmp_path: Path) -> None:
    useradd, unshare, _ = (programs.on_path(name) for name in ("useradd", "unshare", "curl"))
    kubectl = programs.built("kubectl")
    subprocess.run(["cp", "--archive", "/etc", str(tmp_path / "etc")], check=True)
    folder = tmp_path / "reader"
    folder.mkdir()
    furnish(folder)
    before = Path("/etc/passwd").read_bytes()
    environ = {name: value for name, value in os.environ.items() if name not in ("KUBECONFIG", "HOME")}
    environ |= {"HOME": str(folder), "PATH": f"{kubectl.parent}:{useradd.parent}:{os.environ['PATH']}"}
    code = "import sys; from tests.docs import test_users_page as page; page.run(sys.argv[1])"
    command = ["bash", "-c", ALONE, "bash", str(tmp_path), sys.executable, "-c", code, str(folder)]
    done = subprocess.run(
        [str(unshare), "--mount", "--propagation", "private", *command],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    assert Path("/etc/passwd").read_bytes() == before


def run(folder: str) -> None:
    """Called in the namespace: the page's commands, in their order, in one shell."""
    pages.run(PAGE, Path(folder), os.environ, ["6443", "9443"], DEADLINE_S)
