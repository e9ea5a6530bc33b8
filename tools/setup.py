"""Installs what the make targets need. Standard library only: it runs before anything is installed.

    python3 tools/setup.py test   the virtual environment; the native programs too, where cargo is installed
    python3 tools/setup.py venv   the virtual environment, with the native programs in it
    python3 tools/setup.py up     that, and kubectl where none is found
    python3 tools/setup.py all    that, Debian packages (as root), and the Kubernetes programs the tests use

A second run finds everything in place and takes a second or two. What cannot be installed (no root, no network, no Go,
no cargo) is named in one line each and left out; the tests that need it then skip and say so. The virtual environment
is the one thing that nothing works without.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
BUILD = ROOT / "build"
REQUIREMENTS = sorted((ROOT / "requirements").glob("*.txt"))
STAMP = VENV / "bedplate-setup"
# `make up` tries once to get kubectl; where that failed it does not make every later start wait for the same failure.
NO_KUBECTL = BUILD / "no-kubectl"

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
    "nginx": "nginx",
    "/usr/lib/nginx/modules/ngx_stream_module.so": "libnginx-mod-stream",
    "rsync": "rsync",
    "rpm": "rpm",
    "tmux": "tmux",
    "zsh": "zsh",
    "fish": "fish",
    "chromium": "chromium",
}
# Where there is no cargo: Debian 12 has a new one under another name (its plain one is too old), later ones do not.
RUST_PACKAGES = (("cargo-web", "rustc-web"), ("cargo", "rustc"))
KUBERNETES = "kube-apiserver kubectl kube-controller-manager kube-scheduler kubelet kubeadm kube-proxy"
OTHERS = "etcd etcdctl etcdutl coredns helm kwok registry containerd containerd-shim-runc-v2"
NETWORK_TROUBLE = re.compile(r"name resolution|unreachable|refused|timed out|resolve|dial |broken by", re.IGNORECASE)
BEAT_S = 10.0


def say(text: str) -> None:
    print(f"setup: {text}", file=sys.stderr, flush=True)


def left_out(what: str, why: str) -> None:
    say(f"left out: {what} ({why})")


def reason(output: str) -> str:
    """The one line of a failed command's output that tells a person most."""
    lines = [line.strip() for line in output.splitlines() if line.strip()] or ["no output"]
    telling = [line for line in lines if re.match(r"(bedplate|E|ERROR|error):", line)] or lines[-1:]
    text = re.sub(r"^(bedplate|ERROR|E|error): *", "", telling[0]).rstrip(":")
    if NETWORK_TROUBLE.search(output):
        return "no network? " + re.split(r": | \(from ", text)[0]
    return text[:200]


def run(*command: str | Path, on_line: Callable[[str], None] | None = None, **environ: str) -> tuple[bool, str]:
    """Run a command, hand each line of its output to `on_line`; whether it succeeded, and all of the output."""
    process = subprocess.Popen(
        [str(part) for part in command],
        cwd=ROOT,
        env=os.environ | environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if on_line is not None:
            on_line(line.rstrip())
    return process.wait() == 0, "".join(lines)


def is_usable() -> bool:
    """Whether .venv works. It keeps the Python it was made with, whichever one runs this."""
    return PYTHON.exists() and run(PYTHON, "-m", "pip", "--version")[0]


def pins() -> str:
    digest = hashlib.sha256()
    for path in [*REQUIREMENTS, ROOT / "pyproject.toml"]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def make_venv() -> None:
    """Create .venv with the pinned requirements, or leave it when it is what it should be."""
    stamp = STAMP.read_text().splitlines() if STAMP.exists() else []
    if stamp == [str(VENV), pins()] and PYTHON.exists():
        return
    started = time.monotonic()
    # The programs in a virtual environment name its folder, so one that was moved is of no use.
    if (stamp and stamp[0] != str(VENV)) or not is_usable():
        say("creating .venv")
        stamp = []
        done, output = run(sys.executable, "-m", "venv", "--clear", VENV)
        if not done:
            lacks_venv = "ensurepip" in output or "No module named venv" in output
            hint = "on Debian: apt-get install python3-venv" if lacks_venv else reason(output)
            sys.exit(f"setup: .venv could not be created ({hint})")
    problem = install_pins()
    if problem and not stamp:
        sys.exit(f"setup: the Python packages could not be installed ({problem})")
    if problem:
        left_out("newer Python packages", f"going on with those of before: {problem}")
        return
    STAMP.write_text(f"{VENV}\n{pins()}\n")
    say(f"Python packages ready after {time.monotonic() - started:.0f} s")


def install_pins() -> str:
    """Install what requirements/ pins, and this checkout; what went wrong, or nothing."""
    total = sum(line.endswith("\\\n") and "==" in line for path in REQUIREMENTS for line in path.open())
    say(f"installing {total} pinned Python packages (a minute or two the first time)")
    seen, told = 0, time.monotonic()

    def count(line: str) -> None:
        nonlocal seen, told
        seen += line.startswith(("Collecting ", "Requirement already "))
        if time.monotonic() - told > BEAT_S:
            told = time.monotonic()
            say(f"  {seen} of {total} packages" if seen < total else "  unpacking")

    pip: list[str | Path] = [PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar=off"]
    files: list[str | Path] = [part for path in REQUIREMENTS for part in ("-r", path)]
    # Every package is pinned in these files, so there is nothing to resolve.
    done, output = run(*pip, "--require-hashes", "--no-deps", *files, on_line=count)
    if done:
        done, output = run(*pip, "--no-deps", "--no-build-isolation", "--editable", ".")
    write_paths_in_ascii()
    return "" if done else reason(output)


def write_paths_in_ascii() -> None:
    """Python reads .pth files in the encoding of the locale and does not start where that fails, as with LC_ALL=C and a
    checkout in a folder with an umlaut. Such a path is written as code that has none."""

    def written(line: bytes) -> str:
        return line.decode() if line.isascii() else f"import os, sys; sys.path.append(os.fsdecode({line!r}))"

    for file in VENV.glob("lib/python*/site-packages/*.pth"):
        if not (content := file.read_bytes()).isascii():
            file.write_text("".join(f"{written(line)}\n" for line in content.splitlines()))


def install_packages() -> None:
    """Debian packages the lab needs; named before they are installed."""
    missing = sorted({package for probe, package in PACKAGES.items() if not is_there(probe)})
    if not missing:
        return
    names = ", ".join(missing)
    if os.geteuid() != 0:
        left_out(names, "Debian packages need root; the lab will not run")
        return
    if shutil.which("apt-get") is None:
        left_out(names, "no apt-get here: install them with your system's package manager")
        return
    say(f"installing Debian packages: {' '.join(missing)}")
    install = ("apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *missing)
    done, output = run(*install, DEBIAN_FRONTEND="noninteractive")
    if not done and run("apt-get", "update", "--quiet")[0]:
        done, output = run(*install, DEBIAN_FRONTEND="noninteractive")
    if not done:
        left_out(names, reason(output))


def install_rust() -> None:
    """A cargo for the native programs, where there is none; what is missing afterwards is said when they are built."""
    if is_there("cargo") or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    for packages in RUST_PACKAGES:
        say(f"installing Debian packages: {' '.join(packages)}")
        install = ("apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *packages, "gcc", "libc6-dev")
        if run(*install, DEBIAN_FRONTEND="noninteractive")[0]:
            return


def build_crates() -> None:
    """The CNI plugin and the store checksum, from the cache or built now."""

    def progress(line: str) -> None:
        if line.startswith("building "):
            say(line)

    done, output = run(sys.executable, ROOT / "tools" / "crates.py", "install", on_line=progress)
    if not done:
        left_out("nv-ipam and a faster ipam-node", reason(output))


def is_there(probe: str) -> bool:
    if probe.startswith("/"):
        return Path(probe).exists()
    return shutil.which(probe, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") is not None


def get_binaries(programs: str, version: str) -> list[Path]:
    """Have `bedplate binaries get` find or build programs, showing its progress; where they are, or nothing."""

    def progress(line: str) -> None:
        if re.match(r" *\d+\.\d+s  ", line):
            say(line.strip())

    command: tuple[str | Path, ...] = (
        VENV / "bin" / "bedplate",
        "binaries",
        "get",
        *programs.split(),
        "--kubernetes",
        version,
    )
    done, output = run(*command, on_line=progress, PIP_RETRIES="1")
    if not done:
        left_out(f"{programs} {version}", reason(re.sub(r"(?m)^ *\d+\.\d+s  .*\n", "", output)))
    return [Path(line) for line in output.splitlines() if done and line.startswith("/")]


def get_kubectl() -> None:
    if shutil.which("kubectl") is not None:
        return
    if NO_KUBECTL.exists():
        left_out("kubectl", f"none here, and getting one failed on {NO_KUBECTL.read_text()}; `make setup` tries again")
    elif paths := get_binaries("kubectl", "1.35"):
        link_kubectl(paths)
    else:
        NO_KUBECTL.write_text(time.strftime("%Y-%m-%d"))


def link_kubectl(paths: list[Path]) -> None:
    """Where the PATH has no kubectl, the one of the cache stands beside our programs."""
    for path in paths:
        if path.name == "kubectl" and shutil.which("kubectl") is None:
            link = VENV / "bin" / "kubectl"
            link.unlink(missing_ok=True)
            link.symlink_to(path)


def main(what: str) -> None:
    if sys.version_info < (3, 11):
        sys.exit(f"setup: Python 3.11 or newer is needed, this is {sys.version.split()[0]}")
    BUILD.mkdir(exist_ok=True)
    with (BUILD / "setup.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another setup in this folder")
            fcntl.flock(lock, fcntl.LOCK_EX)
        make_venv()
        if what == "all":
            install_packages()
            install_rust()
        # `make test` needs no native program, so it does not complain about a missing cargo either.
        if what != "test" or is_there("cargo"):
            build_crates()
        if what == "up":
            get_kubectl()
        if what == "all":
            NO_KUBECTL.unlink(missing_ok=True)
            link_kubectl(get_binaries(f"{KUBERNETES} {OTHERS}", "1.35"))
            get_binaries(KUBERNETES, "1.34")


if __name__ == "__main__":
    try:
        main(sys.argv[1] if len(sys.argv) > 1 else "all")
    except KeyboardInterrupt:
        sys.exit("setup: interrupted; the next run goes on from here")
