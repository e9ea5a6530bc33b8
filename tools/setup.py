"""Installs what the make targets need. Standard library only: it runs before anything is installed.

    python3 tools/setup.py venv   the virtual environment alone
    python3 tools/setup.py up     that, and kubectl where none is found
    python3 tools/setup.py all    that, Debian packages (as root), and the Kubernetes programs the tests use

A second run finds everything in place and takes well under a second. What cannot be installed (no root, no network, no
Go) is named in one line and left out; the tests that need it then skip and say so.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
REQUIREMENTS = [ROOT / "requirements" / "base.txt", ROOT / "requirements" / "dev.txt"]
STAMP = VENV / "bedplate-requirements.sha256"

# program that must be on the PATH (or file that must exist) -> Debian package that brings it
PACKAGES = {
    "containerd": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "conntrack": "conntrack",
    "iptables": "iptables",
    "nft": "nftables",
    "ip": "iproute2",
    "/bin/busybox": "busybox-static",
    "nsenter": "util-linux",
    "ps": "procps",
}
KUBERNETES = "kube-apiserver kubectl kube-controller-manager kube-scheduler kubelet kubeadm kube-proxy"
OTHERS = "etcd etcdctl coredns helm kwok"


def say(text: str) -> None:
    print(f"setup: {text}", file=sys.stderr, flush=True)


def left_out(what: str, why: str) -> None:
    say(f"left out: {what} ({why})")


def run(*command: str | Path) -> bool:
    """Run a command; on failure show the end of its output."""
    done = subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        say(f"`{' '.join(str(part) for part in command[:6])} …` failed:\n{tail}")
    return done.returncode == 0


def wanted() -> str:
    digest = hashlib.sha256(sys.version.encode())
    for path in [*REQUIREMENTS, ROOT / "pyproject.toml"]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def make_venv() -> None:
    """Create .venv with the pinned requirements, or leave it when it is what it should be."""
    if STAMP.exists() and STAMP.read_text() == wanted():
        return
    started = time.monotonic()
    if not PYTHON.exists():
        say("creating .venv")
        if not run(sys.executable, "-m", "venv", VENV):
            sys.exit("setup: python3 needs its venv module (on Debian: apt-get install python3-venv)")
    say("installing the pinned Python packages (a minute or two the first time)")
    pip = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    files = [part for path in REQUIREMENTS for part in ("-r", path)]
    if not run(*pip, "--require-hashes", *files):
        if (VENV / "bin" / "bedplate").exists():
            left_out("new Python packages", "pip failed; going on with those installed before")
            return
        sys.exit("setup: the Python packages could not be installed; is there a network?")
    if not run(*pip, "--no-deps", "--no-build-isolation", "--editable", "."):
        sys.exit("setup: bedplate itself could not be installed into .venv")
    STAMP.write_text(wanted())
    say(f"Python packages ready after {time.monotonic() - started:.0f} s")


def install_packages() -> None:
    """Debian packages the lab needs; named before they are installed."""
    missing = sorted({package for probe, package in PACKAGES.items() if not is_there(probe)})
    if not missing:
        return
    if os.geteuid() != 0:
        left_out(", ".join(missing), "Debian packages need root; the lab will not run")
        return
    if shutil.which("apt-get") is None:
        left_out(", ".join(missing), "no apt-get here: install them with your system's package manager")
        return
    say(f"installing Debian packages: {' '.join(missing)}")
    os.environ["DEBIAN_FRONTEND"] = "noninteractive"
    command = ("apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *missing)
    if not (run(*command) or (run("apt-get", "update", "--quiet") and run(*command))):
        left_out(", ".join(missing), "apt-get failed")


def is_there(probe: str) -> bool:
    if probe.startswith("/"):
        return Path(probe).exists()
    return shutil.which(probe, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") is not None


def get_binaries(programs: str, version: str) -> None:
    # Progress comes on standard error and is for people; the paths on standard output are not wanted here.
    command = [VENV / "bin" / "bedplate", "binaries", "get", *programs.split(), "--kubernetes", version]
    if subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False).returncode != 0:
        left_out(f"Kubernetes {version} programs", "see above; tests that need them will skip")


def main(what: str) -> None:
    if sys.version_info < (3, 11):
        sys.exit(f"setup: Python 3.11 or newer is needed, this is {sys.version.split()[0]}")
    (ROOT / "build").mkdir(exist_ok=True)
    make_venv()
    if what == "up" and shutil.which("kubectl") is None:
        get_binaries("kubectl", "1.35")
    if what == "all":
        install_packages()
        get_binaries(f"{KUBERNETES} {OTHERS}", "1.35")
        get_binaries(KUBERNETES, "1.34")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "all")
