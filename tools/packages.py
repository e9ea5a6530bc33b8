"""Makes the node agent's packages: one archive with its own interpreter, a Debian package and an RPM of the same files.

    python tools/packages.py [--output FOLDER]     default: dist; bedplate-agent-VERSION-linux-ARCH.tar.gz, .deb, .rpm

In: the Python that runs this with its standard library and shared libraries, as `tools/rootfs.py` finds them; of our
own modules those that `bedplate-agent` imports, of the packages those that they import; deploy/agent. Out: files that a
machine needs nothing for but its kernel and a shell: neither Python nor a certain C library. Equal input gives equal
bytes.

The archive holds one folder named after the version. `bedplate-agent setup` in it and the packages all have that folder
below /opt/bedplate-agent, where `current` is a link to the one that runs.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import hashlib
import importlib.metadata
import io
import os
import re
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import rootfs
import rpm
import sbom
from packaging.requirements import Requirement
from rootfs import Entry, Layer

import bedplate

ROOT = rootfs.ROOT
SOURCES = ROOT / "src"
DEPLOY = ROOT / "deploy" / "agent"
HOME = "opt/bedplate-agent"
PROGRAM = "bedplate.apps.agent"
UNIT = "usr/lib/systemd/system/bedplate-agent.service"
SETTINGS = "etc/bedplate/agent.toml"
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_SCRIPTS = ("postinst", "prerm", "postrm")
# rpm tells its scripts how many versions are there afterwards; ours know dpkg's words.
_RPM_SCRIPTS = {
    "post": "set -- configure",
    "preun": '[ "$1" = 0 ] || exit 0\nset -- remove',
    "postun": '[ "$1" = 0 ] || exit 0\nset -- remove',
}
_SUMMARY = "node agent of the Bedplate cluster manager"
_DESCRIPTION = (
    "Makes true on a machine what the head of its site decides, keeps it true, and\n"
    "reports. It brings its own interpreter and libraries."
)
# Archives carry a time, and some programs complain of the year 1970: that of all files is the first one that zip knows.
_TIME_S = 315_532_800
_LIBRARY = f"lib/{Path(os.__file__).parent.name}"
_LAUNCHER = """#!/bin/sh
# With the loader and libraries beside it: of the machine it takes the kernel and this shell.
here=$(readlink -f "$0") && here=${{here%/bin/*}}
{before}lib=$here/lib
exec "$lib/{loader}" --library-path "$lib" --argv0 "$here/bin/python3" "$here/libexec/python3" {words}"$@"
"""
# A version of the agent that does not get as far as its first report gives way to the one before it: agent/update.py.
_TRIAL = """trial=${here%/*}/.trial
if [ "$1" = run ] && [ -f "$trial" ]; then
    read -r new old digest starts < "$trial" || :
    if [ "$new" = "${here##*/}" ] && [ -n "$starts" ]; then
        if [ "$starts" -ge 3 ]; then exec "${here%/*}/$old/bin/bedplate-agent" "$@"; fi
        echo "$new $old $digest $((starts + 1))" > "$trial.new" && mv "$trial.new" "$trial"
    fi
fi
"""


def architecture() -> str:
    """As package managers call this machine's."""
    machine = os.uname().machine
    return MACHINES.get(machine, machine)


# What goes in


def modules(program: str = PROGRAM) -> dict[str, Path]:
    """Our modules that a program imports, at its start or later: name of the module -> its file."""
    found: dict[str, Path] = {}
    todo = [program]
    while todo:
        name = todo.pop()
        path = _file(name)
        if name in found or path is None:
            continue
        found[name] = path
        todo += [name.rpartition(".")[0], *(each for each in _imports(path) if each.startswith("bedplate"))]
    # These are started by their path.
    for name in ("bedplate.agent.services.balancer", "bedplate.agent.services.keeper", "bedplate.agent.pipe"):
        found[name] = SOURCES.joinpath(*name.split(".")).with_suffix(".py")
    return found


def _file(name: str) -> Path | None:
    place = SOURCES.joinpath(*name.split("."))
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)


def dependencies(files: Iterable[Path]) -> list[str]:
    """The distributions that modules import, and what those need themselves."""
    roots = {name.partition(".")[0] for path in files for name in _imports(path)} - sys.stdlib_module_names
    owners = importlib.metadata.packages_distributions()
    todo = sorted({owners[name][0] for name in roots - {"bedplate"}})
    found: list[str] = []
    while todo:
        name = todo.pop().lower()
        if name in found:
            continue
        found.append(name)
        for text in importlib.metadata.requires(name) or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                todo.append(needed.name)
    return sorted(found)


def tree(scratch: Path, version: str = bedplate.__version__) -> Layer:
    """All files of the agent below a folder named after its version."""
    own = modules()
    names = dependencies(own.values())
    standard, packaged = rootfs.interpreter(), rootfs.packages(names)
    program = standard.pop(rootfs.PYTHON)
    # Packages are in the standard library's folder, too, which is on the path whatever the options say.
    library = {inside.removeprefix("usr/"): path for inside, path in standard.items()}
    library |= {f"{_LIBRARY}/{inside.removeprefix(rootfs.MODULES + '/')}": path for inside, path in packaged.items()}
    shared = rootfs.libraries([program, *(path for path in library.values() if rootfs.is_elf(path))])
    beside = {f"lib/{Path(inside).name}": path for inside, path in shared.items()}
    layer = rootfs.files_layer(library | beside | {"libexec/python3": program}, scratch, f"{HOME}/{version}")
    layer |= rootfs.sources_layer(
        {f"{_LIBRARY}/{path.relative_to(SOURCES).as_posix()}": path for path in own.values()},
        scratch,
        f"{HOME}/{version}",
    )
    texts = {
        "bin/python3": _launcher(beside, ""),
        # Isolated, without site, without writing byte code, with UTF-8 whatever the locale.
        "bin/bedplate-agent": _launcher(beside, f"-IBSXutf8 -m {PROGRAM} ", _TRIAL),
    }
    layer |= {name: Entry(0o755, content=text.encode()) for name, text in texts.items()}
    for name in ("bedplate-agent.service", "agent.toml"):
        layer[f"share/{name}"] = Entry(source=DEPLOY / name)
    layer |= {f"share/{name}": Entry(content=text) for name, text in _licences([program, *shared.values()]).items()}
    return {f"{version}/{inside}": entry for inside, entry in layer.items()}


def _launcher(libraries: Iterable[str], words: str, before: str = "") -> str:
    loader = next(Path(name).name for name in libraries if re.match(r"lib/ld-", name))
    return _LAUNCHER.format(loader=loader, words=words, before=before)


def _licences(files: Iterable[Path]) -> dict[str, bytes]:
    """Texts of what is not Python packages, which bring their own."""
    debian, _ = sbom.debian_packages([*files, Path(os.__file__)])
    texts = sbom.files(debian, rootfs.python_licence())
    kept = {name.removeprefix("usr/share/"): text for name, text in texts.items() if name.startswith("usr/share/doc/")}
    return kept | {"doc/bedplate/copyright": (ROOT / "LICENSE").read_bytes()}


# Packages


def archive(layer: Layer, target: Path) -> None:
    """The agent's folder as one archive."""
    target.write_bytes(_packed(layer))


def _packed(layer: Layer) -> bytes:
    with tempfile.TemporaryFile() as plain, io.BytesIO() as packed:
        # dpkg does not read the newer form of tar archives.
        rootfs.write_layer(layer, plain, form=tarfile.GNU_FORMAT, time_s=_TIME_S)
        plain.seek(0)
        with gzip.GzipFile("", "wb", 6, packed, mtime=0) as stream:
            while part := plain.read(1 << 20):
                stream.write(part)
        return packed.getvalue()


def placed(layer: Layer, version: str = bedplate.__version__) -> Layer:
    """The files of a package: the agent's folder at its place, links to it, the unit, settings."""
    return {f"{HOME}/{inside}": entry for inside, entry in layer.items()} | {
        f"{HOME}/current": Entry(0o777, link=version),
        "usr/bin/bedplate-agent": Entry(0o777, link=f"../../{HOME}/current/bin/bedplate-agent"),
        "usr/share/doc/bedplate-agent/copyright": Entry(source=ROOT / "LICENSE"),
        UNIT: Entry(source=DEPLOY / "bedplate-agent.service"),
        SETTINGS: Entry(source=DEPLOY / "agent.toml"),
    }


def debian(layer: Layer, target: Path, version: str = bedplate.__version__) -> None:
    """A Debian package: an `ar` archive of a version, of what dpkg is told and does, and of the files."""
    files = placed(layer, version)
    contents = {name: rootfs.content(entry) for name, entry in files.items()}
    regular = {name: content for name, content in contents.items() if content is not None}
    control: Layer = {
        "control": Entry(content=_control(regular, version).encode()),
        "md5sums": Entry(content=_sums(regular).encode()),
        "conffiles": Entry(content=f"/{SETTINGS}\n".encode()),
    }
    control |= {name: Entry(0o755, source=DEPLOY / name) for name in _SCRIPTS}
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.gz": _packed(control),
        "data.tar.gz": _packed(files),
    }
    target.write_bytes(ar(members))


def _control(files: Mapping[str, bytes], version: str) -> str:
    size = sum(-(-len(content) // 1024) for content in files.values())
    return (
        f"Package: bedplate-agent\nVersion: {version}\nArchitecture: {architecture()}\n"
        f"Maintainer: The Bedplate maintainers <maintainers@bedplate.invalid>\nInstalled-Size: {size}\n"
        "Section: admin\nPriority: optional\n"
        f"Description: {_SUMMARY}\n {_DESCRIPTION.replace(chr(10), chr(10) + ' ')}\n"
    )


def _sums(files: Mapping[str, bytes]) -> str:
    lines = sorted((name, hashlib.md5(content).hexdigest()) for name, content in files.items() if name != SETTINGS)
    return "".join(f"{digest}  {name}\n" for name, digest in lines)


def ar(members: Mapping[str, bytes]) -> bytes:
    """An archive as `ar` writes it; names have at most 15 characters."""
    parts = [b"!<arch>\n"]
    for name, content in members.items():
        header = f"{name:<16}{_TIME_S:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n"
        parts += [header.encode("ascii"), content, b"\n" * (len(content) % 2)]
    return b"".join(parts)


def redhat(layer: Layer, target: Path, version: str = bedplate.__version__) -> None:
    """An RPM. The mark says that rpm brought the files: `bedplate-agent remove` leaves them to it."""
    scripts = {
        kind: f"{words}\n{(DEPLOY / name).read_text()}"
        for (kind, words), name in zip(_RPM_SCRIPTS.items(), _SCRIPTS, strict=True)
    }
    about = rpm.About(
        name="bedplate-agent",
        version=version.replace("-", "~"),
        architecture=rpm.ARCHITECTURES.get(architecture(), architecture()),
        summary=_SUMMARY,
        description=_DESCRIPTION,
        licence="Apache-2.0",
        time_s=_TIME_S,
        scripts=scripts,
        owned=(HOME, "etc/bedplate", "usr/share/doc/bedplate-agent"),
        settings=(SETTINGS,),
    )
    target.write_bytes(rpm.package(about, placed(layer, version) | {f"{HOME}/.rpm": Entry(content=b"")}))


def build(output: Path) -> list[Path]:
    """All packages; where they are."""
    output.mkdir(parents=True, exist_ok=True)
    version = bedplate.__version__
    targets = [
        output / f"bedplate-agent-{version}-linux-{architecture()}.tar.gz",
        output / f"bedplate-agent_{version}_{architecture()}.deb",
        output / f"bedplate-agent-{version}-1.{rpm.ARCHITECTURES.get(architecture(), architecture())}.rpm",
    ]
    with tempfile.TemporaryDirectory() as scratch:
        layer = tree(Path(scratch))
        for target, write in zip(targets, (archive, debian, redhat), strict=True):
            part = target.with_name(f"{target.name}.part")
            write(layer, part)
            part.rename(target)
    return targets


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the packages of the node agent.")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="folder for them")
    for target in build(parser.parse_args().output):
        print(f"{target}: {target.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
