"""Assembles a root file system that runs the cloud controller managers and address management, and nothing else.

    python tools/rootfs.py [--output FOLDER] [--without-plugin]     default: build/rootfs, with base.tar and app.tar

In: the Python that runs this (its interpreter, standard library and the shared libraries they load), the packages
pinned in requirements/base.txt as they are installed, the managers' sources in src/bedplate, the native programs that
tools/crates.py builds, the machine's CA certificates.
Out: two layers. `base.tar` changes with Python and the packages, `app.tar` with our sources; both are kept in the
user's cache under a key of what went in, so that only what changed is made again. Equal input gives equal bytes.

Both say what they hold (tools/sbom.py): an SBOM, records of the distribution's packages, the licence texts.
There is no shell, no package manager, no test of anybody's and nothing to compile: modules come as byte code (our own
with their sources, so that a traceback in a log shows the line), and nothing is ever written. `tools/image.py` makes an
image of it; the Dockerfile adds the two archives to `scratch`.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import importlib.metadata
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import sbom

import bedplate
import crates
from bedplate.lab import binaries

ROOT = Path(__file__).resolve().parent.parent
USER, HOME = 65532, "/home/nonroot"
PYTHON = "usr/bin/python3"
MODULES = "usr/lib/bedplate"
ENVIRONMENT = {
    "HOME": HOME,
    "PATH": "/usr/bin",
    "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt",
    "PYTHONDONTWRITEBYTECODE": "1",
}
# Isolated, without site, without writing byte code, with UTF-8 whatever the locale: one word, as `#!` allows no more.
INTERPRETER = f"#!/{PYTHON} -IBSXutf8\n"
# Programs and modules of the larger systems, which no manager uses: the shell, head, agent, setup, API server, lab.
NO_PROGRAMS = frozenset({"bedplate-agent", "cm-kube-diagnose", "cm-kubernetes-setup", "cmsh"})
NO_PARTS = re.compile(
    r"(agent|apiserver|client|head|lab|people|setup|sim|store|ui)/"
    r"|cli/(agent|agentsetup|agents|can|overssh|head|sim|up)(/|\.py$)|cli/(clusterview|kubectl)\.py$"
    r"|apps/(agent|cmsh|kubediagnose|kubernetessetup)\.py$"
    r"|api/(desired|headapi|images|masking|quantity|references|setups|states|steps)\.py$|core/(folders|memory|openfiles)\.py$"
)
# The manager of any provider (or of several) that `--cloud-provider` names: the image's entry point.
GENERIC = "cloud-controller-manager"

_CERTIFICATES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
_NO_MODULES = re.compile(
    r"(test|tests|idlelib|tkinter|lib2to3|ensurepip|site-packages|dist-packages|config-.*|turtledemo|turtle\.py|"
    r"testdata|distutils|pydoc_data|venv|unittest|__pycache__)(/|$)"
)
_NO_EXTENSIONS = re.compile(
    r"(_?test|_tkinter|_ctypes_test|_xxtest|xxlimited|_curses|readline|nis\.|ossaudiodev|audioop)"
)
_NO_DATA = re.compile(
    r"\.(pyi|pyx|pxd|pxi|c|cc|cpp|h|hpp|proto|exe|a)$|/(RECORD|INSTALLER|REQUESTED|direct_url\.json)$"
)
_COMPILER = """
import json, py_compile, sys
mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
for inside, source, target in json.load(sys.stdin):
    try:
        py_compile.compile(source, target, "/" + inside, doraise=True, invalidation_mode=mode)
    except py_compile.PyCompileError:
        pass
"""
_KEPT_LAYERS = 6
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Entry:
    """One file, folder or link of a layer; exactly one of `source`, `content` and `link` tells what a file holds."""

    mode: int = 0o644
    source: Path | None = None
    content: bytes | None = None
    link: str = ""
    owner: int = 0


Layer = dict[str, Entry]


# What goes in


def interpreter() -> dict[str, Path]:
    """The interpreter and its standard library: path inside -> file here."""
    library = Path(os.__file__).parent
    inside = f"usr/lib/{library.name}"
    found = {PYTHON: Path(sys._base_executable).resolve()}  # type: ignore[attr-defined]
    for path in sorted(library.rglob("*")):
        name = path.relative_to(library).as_posix()
        if path.is_file() and not any(_NO_MODULES.match(name, at) for at in _starts(name)):
            found[f"{inside}/{name}"] = path
    extensions = next(Path(folder) for folder in sys.path if folder.endswith("lib-dynload"))
    for path in extensions.glob("*.so"):
        found[f"{inside}/lib-dynload/{path.name}"] = path
    return {name: path for name, path in found.items() if not _NO_EXTENSIONS.match(path.name)}


def _starts(name: str) -> Iterator[int]:
    """Where each part of a path begins."""
    yield 0
    yield from (found.end() for found in re.finditer("/", name))


def pins() -> list[tuple[str, str]]:
    """Name and version of every package in requirements/base.txt."""
    text = (ROOT / "requirements" / "base.txt").read_text()
    return re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)", text, re.MULTILINE)


def packages(chosen: Collection[str] | None = None) -> dict[str, Path]:
    """What requirements/base.txt pins, or some of it, as installed: path inside -> file here."""
    found: dict[str, Path] = {}
    for name, version in pins():
        if chosen is not None and name not in chosen:
            continue
        package = importlib.metadata.distribution(name)
        if package.version != version:
            sys.exit(f"rootfs: {name} {package.version} is installed, requirements/base.txt says {version}: make setup")
        for file in package.files or ():
            inside = file.as_posix()
            is_ours = not inside.startswith("..") and not _NO_DATA.search(inside) and "__pycache__" not in inside
            if is_ours and not any(_NO_MODULES.match(inside, at) for at in _starts(inside)):
                found[f"{MODULES}/{inside}"] = Path(str(file.locate()))
    return found


def modules() -> dict[str, Path]:
    """Our own modules, but those of programs that are not in the image: path inside -> file here."""
    package = ROOT / "src" / "bedplate"
    files = sorted(path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    named = {path.relative_to(package).as_posix(): path for path in files}
    return {f"{MODULES}/bedplate/{name}": path for name, path in named.items() if not NO_PARTS.match(name)}


def libraries(files: Iterable[Path]) -> dict[str, Path]:
    """The shared libraries that programs and extension modules load from the machine, where its loader looks."""
    answer = subprocess.run(["ldd", *map(str, files)], capture_output=True, text=True, timeout=120, check=False).stdout
    found = set(re.findall(r"(?:=> |^\s+)(/\S+) \(0x", answer, re.MULTILINE))
    packaged = importlib.metadata.distribution("aiohttp").locate_file("")
    ours = {Path(path) for path in found if not path.startswith(str(packaged))}
    beside = next(path for path in ours if path.name.startswith(("libc.so", "libc.musl"))).parent
    # The loader stands where programs name it; the rest beside the C library, as one of an own Python may be anywhere.
    return {(path if path.name.startswith("ld-") else beside / path.name).as_posix()[1:]: path for path in ours}


def certificates() -> dict[str, Path]:
    """The authorities that this machine trusts, where OpenSSL is told to look inside."""
    for path in map(Path, _CERTIFICATES):
        if path.is_file():
            return {ENVIRONMENT["SSL_CERT_FILE"][1:]: path}
    sys.exit("rootfs: no CA certificates on this machine; on Debian: apt-get install ca-certificates")


def programs() -> dict[str, str]:
    """The text of each program: those of pyproject.toml, and one for whichever clouds `--cloud-provider` names."""
    scripts: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    head = f'{INTERPRETER}import sys\nsys.path.append("/{MODULES}")\n'
    texts = {}
    for name, target in scripts.items():
        if name in NO_PROGRAMS:
            continue
        module, _, function = target.partition(":")
        texts[name] = f"{head}from {module} import {function}\nsys.exit({function}())\n"
    texts[GENERIC] = (
        f'{head}sys.argv[1:1] = ["ccm", "run"]\nfrom bedplate.apps.bedplate import main\nsys.exit(main())\n'
    )
    return texts


def native() -> dict[str, Path]:
    """The CNI plugin, and the library that the node daemon loads. Without them the image is not what it says."""
    try:
        found = crates.artefacts()
    except crates.Left as left:
        sys.exit(f"rootfs: nv-ipam cannot be built ({left}); --without-plugin makes an image for managers only")
    library = f"{MODULES}/{crates.PLACES[crates.LIBRARY].relative_to(ROOT / 'src').as_posix()}"
    return {f"usr/bin/{crates.PLUGIN}": found[crates.PLUGIN], library: found[crates.LIBRARY]}


@dataclass(frozen=True, slots=True)
class Contents:
    """What the image says about itself: texts for its two layers, and the SBOM."""

    base: dict[str, bytes]
    app: dict[str, bytes]
    document: str


def contents(machine: Mapping[str, Path], *, has_plugin: bool) -> Contents:
    """`machine`: path inside -> file of this machine, for the interpreter, shared libraries and certificates."""
    # The file of certificates is written when their package is installed, and so belongs to none.
    debian, loose = sbom.debian_packages([*machine.values(), Path(os.__file__)], also=["ca-certificates"])
    records = sbom.files(debian, python_licence())
    release = records.get("etc/os-release", b"").decode()
    parts = [sbom.interpreter(), *sbom.python_packages(pins())]
    parts += [package.component(sbom.distribution(release)) for package in debian]
    parts += sbom.loose_libraries(path for path in loose if ".so" in path.name)
    if has_plugin:
        version = bedplate.__version__
        parts.append(sbom.Component("nv-ipam", version, f"pkg:generic/bedplate/nv-ipam@{version}", "Apache-2.0"))
    text = sbom.document(bedplate.__version__, parts)
    own = {f"{MODULES}/{name}": content for name, content in sbom.own_metadata(bedplate.__version__).items()}
    own |= {"usr/share/doc/bedplate/copyright": (ROOT / "LICENSE").read_bytes(), sbom.PLACE: text.encode()}
    return Contents(records, own, text)


def python_licence() -> dict[str, Path]:
    """The licence of an interpreter that is not a package of the distribution."""
    text = Path(os.__file__).parent / "LICENSE.txt"
    return {"python": text} if text.is_file() else {}


# Layers


def base_layer(sources: Mapping[str, Path], scratch: Path, extra: Mapping[str, bytes]) -> Layer:
    """Python, its packages and what a system must have."""
    layer = files_layer(sources, scratch)
    texts = {
        "etc/passwd": f"root:x:0:0:root:/:/sbin/nologin\nnonroot:x:{USER}:{USER}:nonroot:{HOME}:/sbin/nologin\n",
        "etc/group": f"root:x:0:\nnonroot:x:{USER}:\n",
        "etc/nsswitch.conf": "hosts: files dns\n",
    }
    layer |= {name: Entry(content=text.encode()) for name, text in texts.items()}
    layer |= {name: Entry(content=content) for name, content in extra.items()}
    layer["tmp"] = Entry(0o1777)
    # ipam-node wants the folder of the plugin's log to exist where it runs itself, as the original does.
    layer["var/log"] = Entry(0o755)
    layer[HOME[1:]] = Entry(0o755, owner=USER)
    layer["bin"] = Entry(0o777, link="usr/bin")
    return layer


def app_layer(sources: Mapping[str, Path], scratch: Path, extra: Mapping[str, bytes]) -> Layer:
    """Our own modules with their sources, and the programs, which users know at `/NAME` and at `/usr/bin/NAME`."""
    layer = sources_layer(sources, scratch)
    layer |= {name: Entry(content=content) for name, content in extra.items()}
    for inside in [inside for inside in sources if inside.startswith("usr/bin/")]:
        layer[inside] = Entry(0o755, source=sources[inside])
        layer[inside.removeprefix("usr/bin/")] = Entry(0o777, link=inside)
    for name, text in programs().items():
        layer[f"usr/bin/{name}"] = Entry(0o755, content=text.encode())
        layer[name] = Entry(0o777, link=f"usr/bin/{name}")
    return layer


def files_layer(sources: Mapping[str, Path], scratch: Path, base: str = "") -> Layer:
    """Files as they are, but modules as byte code alone, and programs and libraries without symbols."""
    code = compiled(sources, scratch, base)
    layer: Layer = {inside + "c": Entry(content=content) for inside, content in code.items()}
    for inside, source in sources.items():
        if inside.endswith(".py"):
            continue
        if is_elf(source):
            layer[inside] = Entry(0o755, content=stripped(source, scratch))
        else:
            layer[inside] = Entry(source=source)
    return layer


def sources_layer(sources: Mapping[str, Path], scratch: Path, base: str = "") -> Layer:
    """Files as they are, modules with their byte code beside them."""
    layer: Layer = {inside: Entry(source=source) for inside, source in sources.items()}
    for inside, code in compiled(sources, scratch, base).items():
        folder, _, name = inside.rpartition("/")
        cached = f"{folder}/__pycache__/{name.removesuffix('.py')}.{sys.implementation.cache_tag}.pyc"
        layer[cached] = Entry(content=code)
    return layer


def compiled(sources: Mapping[str, Path], scratch: Path, base: str = "") -> dict[str, bytes]:
    """The byte code of modules, which names the file inside, below `base`, and is never checked against it. What is not
    Python is left out.

    A process of its own compiles: constant sets are written in the order of their hashes, so the seed must be fixed.
    """
    python = [(inside, source) for inside, source in sources.items() if inside.endswith(".py")]
    wanted = [(inside, str(source), str(scratch / f"{number}.pyc")) for number, (inside, source) in enumerate(python)]
    for _, _, target in wanted:
        Path(target).unlink(missing_ok=True)
    subprocess.run(
        [sys.executable, "-c", _COMPILER],
        input=json.dumps([(os.path.join(base, inside), *rest) for inside, *rest in wanted]),
        text=True,
        check=True,
        timeout=1800,
        env=os.environ | {"PYTHONHASHSEED": "0"},
    )
    return {inside: Path(target).read_bytes() for inside, _, target in wanted if Path(target).exists()}


def is_elf(path: Path) -> bool:
    with path.open("rb") as handle:
        return handle.read(4) == b"\x7fELF"


def stripped(source: Path, scratch: Path) -> bytes:
    """A program or library without its debugging symbols, where binutils are installed."""
    target = scratch / "stripped"
    if shutil.which("strip") is None:
        return source.read_bytes()
    command = ["strip", "--strip-unneeded", "-o", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0
    return target.read_bytes() if done else source.read_bytes()


def content(entry: Entry) -> bytes | None:
    """What a file holds; None for folders and links."""
    return entry.source.read_bytes() if entry.source else entry.content


def write_layer(layer: Layer, target: Path | IO[bytes], *, form: int = tarfile.PAX_FORMAT, time_s: int = 0) -> None:
    """A tar archive that depends on nothing but the layer."""
    folders = {str(parent) for name in layer for parent in Path(name).parents} - {"."}
    everything = {name: Entry(0o755) for name in folders} | layer
    name_or_stream: dict[str, Any] = {"name": target} if isinstance(target, Path) else {"fileobj": target}
    with tarfile.open(mode="w", format=form, **name_or_stream) as archive:
        for name, entry in sorted(everything.items()):
            info = tarfile.TarInfo(name)
            info.mode, info.uid, info.gid, info.mtime = entry.mode, entry.owner, entry.owner, time_s
            held = content(entry)
            if entry.link:
                info.type, info.linkname = tarfile.SYMTYPE, entry.link
            elif held is None:
                info.type = tarfile.DIRTYPE
            else:
                info.size = len(held)
            archive.addfile(info, io.BytesIO(held) if held is not None else None)


# The cache


def assemble(*, has_plugin: bool = True) -> tuple[Path, Path]:
    """Both layers, from the cache where what goes in is what went in before."""
    folder = binaries.cache_folder() / "rootfs"
    folder.mkdir(parents=True, exist_ok=True)
    python, packaged = interpreter(), packages()
    extensions = [path for path in (*python.values(), *packaged.values()) if is_elf(path)]
    system = libraries(extensions) | certificates()
    base = python | packaged | system
    app = modules() | (native() if has_plugin else {})
    said = contents({PYTHON: python[PYTHON]} | system, has_plugin=has_plugin)
    with _locked(folder):
        layers = (
            _kept(folder, f"base-{_key_by_times(base, said.base)}", lambda at: base_layer(base, at, said.base)),
            _kept(folder, f"app-{_key_by_content(app, said.app)}", lambda at: app_layer(app, at, said.app)),
        )
        _forget_old(folder, layers)
    return layers


def _kept(folder: Path, name: str, make: Callable[[Path], Layer]) -> Path:
    target = folder / f"{name}.tar"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            part = Path(scratch) / "layer.tar"
            write_layer(make(Path(scratch)), part)
            part.rename(target)
    os.utime(target)
    return target


def _tool() -> list[str]:
    """What the result depends on besides the files: this program, the Python that compiles, and `strip`."""
    own = [Path(module).read_text() for module in (__file__, sbom.__file__)]
    return [*own, sys.version, str(shutil.which("strip"))]


def _key_by_times(files: Mapping[str, Path], extra: Mapping[str, bytes]) -> str:
    facts = [[name, path.stat().st_size, path.stat().st_mtime_ns] for name, path in sorted(files.items())]
    return hashlib.sha256(repr([_tool(), facts, sorted(extra.items())]).encode()).hexdigest()[:16]


def _key_by_content(files: Mapping[str, Path], extra: Mapping[str, bytes]) -> str:
    facts = [[name, hashlib.sha256(path.read_bytes()).hexdigest()] for name, path in sorted(files.items())]
    return hashlib.sha256(repr([_tool(), programs(), facts, sorted(extra.items())]).encode()).hexdigest()[:16]


def _forget_old(folder: Path, used: Iterable[Path]) -> None:
    """Keep the layers used last; an hour passes before one is removed, as another process may be reading it."""
    by_age = sorted(folder.glob("*.tar"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in by_age[_KEPT_LAYERS:]:
        if path not in used and time.time() - path.stat().st_mtime > _HOUR_S:
            for each in folder.glob(f"{path.name}*"):
                each.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description="Assemble the root file system of the image.")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "rootfs", help="folder for base.tar, app.tar")
    parser.add_argument(
        "--without-plugin", action="store_true", help="for managers only, where nv-ipam cannot be built"
    )
    given = parser.parse_args()
    output: Path = given.output
    output.mkdir(parents=True, exist_ok=True)
    for layer, name in zip(assemble(has_plugin=not given.without_plugin), ("base.tar", "app.tar"), strict=True):
        part = output / f"{name}.part"
        shutil.copyfile(layer, part)
        part.rename(output / name)
        print(f"{output / name}: {layer.stat().st_size / 1e6:.1f} MB")
    write_sbom(output / "app.tar", output)


def write_sbom(app: Path, output: Path) -> None:
    """The SBOM of a layer as a file of its own, for a release."""
    output.mkdir(parents=True, exist_ok=True)
    with tarfile.open(app) as layer:
        document = layer.extractfile(sbom.PLACE)
        assert document is not None
        (output / Path(sbom.PLACE).name.replace("bedplate", "sbom")).write_bytes(document.read())


if __name__ == "__main__":
    main()
