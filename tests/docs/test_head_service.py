"""The guide to the head's service works as written, as root, on a machine of its own: its commands in their order.

The machine is a set of namespaces over this one: an `/etc` and a `/var/lib` that vanish with it, its own network and
processes. What is missing there is systemd, which cannot run here: a stand-in for `systemctl` starts what the unit
says, as the user that the unit says, and stops it with SIGTERM.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from tests import pages, programs
from tests.docs.test_fresh_clone import python_for_all

pytestmark = [
    pytest.mark.external,
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user"),
]
ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 600
UNSHARE = ("unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child")
SYSTEMCTL = """#!/bin/bash
set -e
unit=/etc/systemd/system/bedplate-head.service
case $1 in
enable | start)
    test "${!#}" = bedplate-head
    user=$(sed -n 's/^User=//p' $unit)
    line=$(sed -n 's/^ExecStart=//p' $unit)
    umask 0077
    setsid setpriv --reuid "$user" --regid "$user" --init-groups --no-new-privs \\
        env -i PATH=/usr/local/bin:/usr/bin:/bin $line > /var/lib/journal 2>&1 &
    echo $! > /var/lib/main.pid
    # A reader takes longer to write the next line.
    for _ in $(seq 600); do
        curl --silent --insecure https://localhost:8081/readyz > /var/lib/ready && exit
        sleep 0.2
    done
    cat /var/lib/journal >&2
    exit 1
    ;;
stop)
    pid=$(cat /var/lib/main.pid)
    kill -TERM $pid
    for _ in $(seq 150); do kill -0 $pid 2> /dev/null || exit 0; sleep 0.2; done
    exit 1
    ;;
*) exit 1 ;;
esac
"""
MACHINE = """
ip link set lo up
mount -t tmpfs tmpfs /var/lib
mkdir /var/lib/upper /var/lib/work /var/lib/tools /var/lib/programs
mount -t overlay overlay -o lowerdir=/etc,upperdir=/var/lib/upper,workdir=/var/lib/work /etc
mkdir -p /etc/systemd/system /etc/prometheus
cp "$SYSTEMCTL" /var/lib/tools/systemctl
chmod 0755 /var/lib /var/lib/tools /var/lib/tools/systemctl
# Wherever the checkout is, others can read it here.
mkdir /var/lib/src /var/lib/site
mount --bind "$SRC" /var/lib/src
mount --bind "$SITE" /var/lib/site
mount --bind /var/lib/programs /usr/local/bin
for name in bedplate cmsh; do
    printf '#!/bin/sh\nPYTHONPATH=/var/lib/src:/var/lib/site exec %s -m bedplate.apps.%s "$@"\n' "$PYTHON" $name \
        > /usr/local/bin/$name
    chmod 0755 /usr/local/bin/$name
done
export PATH=/var/lib/tools:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
useradd --system --no-create-home prometheus
"""


def test_the_guide_of_the_service(tmp_path: Path) -> None:
    for name in ("unshare", "useradd", "runuser", "setpriv", "curl", "ip"):
        programs.on_path(name)
    python = python_for_all()
    question = [python, "-c", "import sys; print(sys.version_info[:2])"]
    told = subprocess.run(question, capture_output=True, text=True, check=True)
    if told.stdout.strip() != str(sys.version_info[:2]):
        pytest.skip("no Python that another user may run")
    lines = pages.console_lines(ROOT / "docs/guides/head-service.md")
    assert len(lines) > 10
    (tmp_path / "systemctl").write_text(SYSTEMCTL)
    scraped = (
        "runuser -u prometheus -- curl --fail --silent --cacert /etc/prometheus/head-ca.crt "
        "--oauth2-bearer $(cat /etc/prometheus/head.token) https://localhost:8081/metrics"
    )
    refused = "! bedplate head status"
    after = [scraped, refused, "stat --format %U:%a /etc/prometheus/head.token", "systemctl stop bedplate-head"]
    script = "".join(f"printf '\x1e'\n{line}\n" for line in (*lines, *after))
    places = {
        "SYSTEMCTL": str(tmp_path / "systemctl"),
        "SRC": str(ROOT / "src"),
        "SITE": sysconfig.get_path("platlib"),
        "PYTHON": str(python),
    }
    environ = {name: value for name, value in os.environ.items() if not name.startswith("BEDPLATE_")}
    done = subprocess.run(
        [*UNSHARE, "bash", "-ec", f"{MACHINE}\n{script}"],
        cwd=ROOT,
        env={**environ, **places},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    printed = done.stdout.split("\x1e")[1:]
    assert done.returncode == 0, f"$ {[*lines, *after][len(printed) - 1]}\n{printed[-1]}{done.stderr}"
    shown = dict(zip([*lines, *after], printed, strict=True))
    status = shown["runuser -u bedplate -- bedplate head status"]
    assert "https://" in status and "active" in status
    assert "admin is an enabled administrator" in shown["runuser -u bedplate -- bedplate head recover-admin"]
    assert "head_" in shown[scraped], "the auditor's token is enough"
    assert "belongs to user" in done.stderr, "as root it is refused"
    assert shown["stat --format %U:%a /etc/prometheus/head.token"].strip() == "prometheus:600"
