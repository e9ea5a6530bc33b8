"""Builds the native parts, keeps them, and puts them where they are looked for. Standard library only.

    python3 tools/crates.py install    nv-ipam into .venv/bin, libstoresum.so beside the module that loads it
    python3 tools/crates.py paths      builds what is missing; prints name and file of each, one a line

In: the crates and a cargo. Out: files in the user's cache, under a key of everything that went in, so that a second
checkout of the same sources builds nothing, with or without a cargo. What cannot be built is said in one line; the exit
status is then 1, and nothing else depends on it: without the library a slower way is taken, and without nv-ipam only
pods on this machine miss something.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = "libstoresum.so"
PLUGIN = "nv-ipam"
# A static program runs on hosts that have another C library, or none. The library is loaded into Python, which has one.
COMMANDS = {
    PLUGIN: ("--package", "nv-ipam", "--bin", "nv-ipam", "--", "-C", "target-feature=+crt-static"),
    LIBRARY: ("--package", "storesum", "--lib"),
}
PLACES = {PLUGIN: ROOT / ".venv" / "bin" / PLUGIN, LIBRARY: ROOT / "src/bedplate/ipam/node" / LIBRARY}
HINT = "on Debian: apt-get install cargo-web"
KEPT = 4


class Left(Exception):
    """Why something was left out, for a person."""


def cache_folder() -> Path:
    """`$BEDPLATE_CACHE`, or `bedplate` in the user's cache folder."""
    if os.environ.get("BEDPLATE_CACHE"):
        return Path(os.environ["BEDPLATE_CACHE"]).expanduser().absolute() / "crates"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "bedplate" / "crates"


def check_trusted(folder: Path) -> None:
    """As root, programs come only from folders that nobody else may write; `bedplate.core.folders` in short."""
    for place in (folder, *folder.parents) if os.geteuid() == 0 else ():
        about = place.stat() if place.exists() else None
        if about is None:
            continue
        is_sticky = about.st_mode & stat.S_ISVTX and place != folder
        is_shared = about.st_mode & stat.S_IWOTH or (about.st_mode & stat.S_IWGRP and about.st_gid != 0)
        if about.st_uid != 0 or (is_shared and not is_sticky):
            raise Left(f"root does not trust {folder}, because others may write {place}; BEDPLATE_CACHE names another")


def sources_key() -> str:
    """Of everything that goes in but the compiler."""
    digest = hashlib.sha256(repr(COMMANDS).encode() + platform.machine().encode())
    files = [path for path in (ROOT / "crates").rglob("*") if path.suffix in (".rs", ".toml")]
    for path in [ROOT / "Cargo.toml", ROOT / "Cargo.lock", ROOT / "VERSION", *sorted(files)]:
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def compiler_key() -> str:
    """Of the compiler that cargo uses. Raises `Left` where there is none, or one that does not answer."""
    compiler = os.environ.get("RUSTC") or "rustc"
    try:
        told = subprocess.run([compiler, "-vV"], capture_output=True, text=True, cwd=ROOT, check=False)
    except OSError as error:
        raise Left(f"cargo without a compiler: {error}; {HINT}") from error
    if told.returncode:
        raise Left(f"cargo without a compiler: {reason(told.stderr)}; {HINT}")
    return hashlib.sha256(told.stdout.encode()).hexdigest()[:8]


def artefacts() -> dict[str, Path]:
    """The files, built where the cache does not have them."""
    if not (ROOT / "Cargo.toml").exists():
        raise Left("their sources are not here")
    folder = cache_folder()
    check_trusted(folder)
    folder.mkdir(parents=True, exist_ok=True)
    key = sources_key()
    with locked(folder):
        try:
            cargo = shutil.which("cargo")
            if cargo is None:
                raise Left(f"no cargo; {HINT}")
            target = folder / f"{key}-{compiler_key()}"
        except Left:
            kept = sorted(folder.glob(f"{key}-*"))
            if not kept:
                raise
            return {name: kept[-1] / name for name in COMMANDS}
        if not target.exists():
            build(cargo, target)
            forget_old(folder, target)
        os.utime(target)
    return {name: target / name for name in COMMANDS}


def build(cargo: str, target: Path) -> None:
    """Build everything into a folder that is there whole or not at all."""
    print(f"building {' and '.join(COMMANDS)} (half a minute)", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        built = Path(scratch) / "made"
        built.mkdir()
        for name, arguments in COMMANDS.items():
            # Nothing foreign is needed, so nothing is looked for on a network. The target folder is shared with tests.
            command = [cargo, "rustc", "--quiet", "--release", "--locked", "--offline", *arguments]
            ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, env=environment())
            if ran.returncode != 0:
                raise Left(f"{name}: {reason(ran.stderr)}")
            shutil.copy(ROOT / "target" / "release" / name, built / name)
        built.rename(target)


def environment() -> dict[str, str]:
    """Cargo's own settings may change neither the place nor the kind of what is built."""
    changing = ("RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_TARGET_DIR", "CARGO_BUILD_TARGET")
    return {name: value for name, value in os.environ.items() if name not in changing}


def reason(output: str) -> str:
    """The line of cargo's output that tells a person most."""
    match = re.search(r"(?m)^error[^:]*: (.*)$", output)
    text = match.group(1) if match else (output.strip().splitlines() or ["no output"])[-1]
    if "linker" in text and "not found" in text:
        text += "; on Debian: apt-get install gcc libc6-dev"
    if "requires rustc" in output or ("rustc" in text and "is not supported" in text):
        text += f"; {HINT}"
    return text[:200]


def forget_old(folder: Path, used: Path) -> None:
    """Keep what was used last."""
    by_age = sorted(folder.glob("*-*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in by_age[KEPT:]:
        if path != used:
            shutil.rmtree(path, ignore_errors=True)


def install() -> None:
    """Copy the files to their places, where they are not what they should be."""
    for name, source in artefacts().items():
        place = PLACES[name]
        content = source.read_bytes()
        if place.exists() and place.read_bytes() == content:
            continue
        # A program that runs, or a library that is loaded, is replaced and never written over.
        part = place.with_name(f".{name}.{os.getpid()}")
        part.write_bytes(content)
        part.chmod(0o755)
        part.rename(place)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def main(what: str) -> None:
    try:
        if what == "install":
            install()
        else:
            for name, path in artefacts().items():
                print(f"{name} {path}")
    except Left as left:
        sys.exit(f"error: {left}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "install")
