"""What goes into the image, decided without building it: which modules, and what it says about itself."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.deploy.conftest import ROOT, VERSION, load_tool

rootfs, sbom = load_tool("rootfs"), load_tool("sbom")
RECORD = """Package: libc6
Status: install ok installed
Architecture: amd64
Source: glibc
Version: 2.36-9+deb12u14
Description: GNU C Library
 Contains the standard libraries.
"""


def modules() -> dict[str, Path]:
    """Name -> file of our own modules in the image."""
    found = {}
    for inside, path in rootfs.modules().items():
        if inside.endswith(".py"):
            name = inside.removeprefix(f"{rootfs.MODULES}/").removesuffix(".py").replace("/", ".")
            found[name.removesuffix(".__init__")] = path
    return found


def imported(path: Path) -> Iterator[str]:
    """What a module imports of ours, at any place in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_module(name: str) -> bool:
    place = ROOT / "src" / name.replace(".", "/")
    return place.with_suffix(".py").exists() or (place / "__init__.py").exists()


def test_no_module_in_the_image_imports_one_that_is_not() -> None:
    inside = modules()
    for name, path in inside.items():
        for wanted in imported(path):
            if wanted.startswith("bedplate"):
                module = wanted if is_module(wanted) else wanted.rpartition(".")[0]
                assert module in inside, f"{name} imports {module}"


def test_no_module_is_in_the_image_that_no_program_there_reaches() -> None:
    inside = modules()
    scripts = re.findall(r"from (bedplate\S+) import", "\n".join(rootfs.programs().values()))
    reached: set[str] = set()
    waiting = [*scripts, "bedplate.apps.bedplate"]
    while waiting:
        name = waiting.pop()
        if name not in inside or name in reached:
            continue
        reached.add(name)
        text = inside[name].read_text()
        waiting.append(name.rpartition(".")[0])
        for wanted in imported(inside[name]):
            waiting += [wanted, wanted.rpartition(".")[0]]
        # Commands and providers are named in tables, and imported when they are used.
        waiting += re.findall(r'"(bedplate\.[a-z_.]+)"', text)
        waiting += [f"bedplate.cli.{rest}" for rest in re.findall(r"\{_CLI\}\.([a-z_.]+)", text)]
    assert sorted(set(inside) - reached) == []


def test_head_lab_and_their_friends_are_elsewhere() -> None:
    for name in modules():
        assert not re.match(
            r"bedplate\.(agent|apiserver|client|head|lab|setup|sim|store|ui)\b|bedplate\.cli\.(agent|can|head|up|sim)\b",
            name,
        )
    assert not {"bedplate-agent", "cm-kubernetes-setup", "cmsh"} & set(rootfs.programs())


@pytest.fixture
def inside(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs Python with the image's modules of ours in place of the checkout's."""
    for name, path in rootfs.modules().items():
        target = tmp_path / Path(name).relative_to(rootfs.MODULES)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(path)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            [sys.executable, *words], env=environ, capture_output=True, text=True, timeout=300, check=False
        )

    return run


def test_every_module_loads_with_those_of_the_image_alone(
    inside: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    script = (
        "import importlib, pkgutil, bedplate\n"
        "names = [m.name for m in pkgutil.walk_packages(bedplate.__path__, 'bedplate.')]\n"
        "names = [name for name in names if not name.endswith(('__main__', '.libstoresum'))]\n"
        "for name in names: importlib.import_module(name)\n"
        "print(bedplate.__file__, len(names))\n"
    )
    done = inside("-c", script)
    assert done.returncode == 0, done.stderr
    place, count = done.stdout.split()
    assert place.startswith(str(tmp_path)) and int(count) > 150


def test_the_image_offers_the_commands_that_it_has(inside: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    shown = inside("-m", "bedplate.apps.bedplate", "--help").stdout
    listed = re.findall(r"(?m)^  ([a-z]+)  +[A-Z]", shown)
    assert listed == ["ccm", "ipam", "permissions", "jupyter", "doctor", "completion"]
    for name in ("agent", "can", "lab", "head", "up", "sim", "cmsh"):
        refused = inside("-m", "bedplate.apps.bedplate", name, "--help")
        assert refused.returncode == 1 and "Traceback" not in refused.stderr
        assert "is not part of this installation" in refused.stderr or "needs the extra" in refused.stderr, name


def test_every_package_comes_with_its_version_and_its_licence_text() -> None:
    kept = rootfs.packages()
    for name, version in rootfs.pins():
        folder = f"{name.lower().replace('-', '_')}-{version}.dist-info"
        files = [inside for inside in kept if inside.lower().startswith(f"{rootfs.MODULES}/{folder}/".lower())]
        assert any(inside.endswith("/METADATA") for inside in files), name
        assert any(re.search(r"LICEN[CS]E|COPYING", inside) for inside in files), name


def test_the_native_programs_contain_nothing_of_others() -> None:
    """The SBOM lists nv-ipam alone; a crate of somebody else would have to be in it."""
    assert "source = " not in (ROOT / "Cargo.lock").read_text()


def test_the_sbom_lists_every_package_once_and_is_the_same_for_the_same_content() -> None:
    parts = [sbom.interpreter(), *sbom.python_packages(rootfs.pins())]
    text = sbom.document(VERSION, parts)
    assert text == sbom.document(VERSION, reversed(parts))
    assert text != sbom.document(VERSION, parts[1:])
    content = json.loads(text)
    assert content["spdxVersion"] == "SPDX-2.3" and content["dataLicense"] == "CC0-1.0"
    names = [(each["name"], each["versionInfo"]) for each in content["packages"]]
    assert len(names) == len(set(names)) and {("bedplate", VERSION), *rootfs.pins()} <= set(names)
    assert len({each["SPDXID"] for each in content["packages"]}) == len(names)
    purls = [each["externalRefs"][0]["referenceLocator"] for each in content["packages"]]
    assert all(re.fullmatch(r"pkg:(pypi|generic)/[\w./%-]+@[\w.+%-]+", purl) for purl in purls)
    contained = [
        each["relatedSpdxElement"] for each in content["relationships"] if each["relationshipType"] == "CONTAINS"
    ]
    assert len(contained) == len(parts)
    for each in content["packages"]:
        # Free text that somebody wrote as a licence is not an expression.
        assert each["licenseDeclared"] == "NOASSERTION" or " " not in re.sub(
            r" (AND|OR|WITH) ", "", each["licenseDeclared"]
        )


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("libc6:amd64: /lib/x86_64-linux-gnu/libc.so.6\n", {"/lib/x86_64-linux-gnu/libc.so.6": "libc6"}),
        ("libssl3, libssl3t64: /usr/lib/libssl.so.3\n", {"/usr/lib/libssl.so.3": "libssl3"}),
        ("diversion by dash from: /bin/sh\ndash: /bin/sh\n", {"/bin/sh": "dash"}),
        ("", {}),
    ],
)
def test_the_owners_of_files_are_read(answer: str, found: dict[str, str]) -> None:
    assert sbom.owners(answer) == found


def test_a_package_of_the_distribution_becomes_a_record_a_licence_and_a_component(tmp_path: Path) -> None:
    (tmp_path / "libc6").mkdir()
    (tmp_path / "libc6" / "copyright").write_text("LGPL")
    package = sbom.parse_record(RECORD, tmp_path)
    assert (package.name, package.version, package.architecture) == ("libc6", "2.36-9+deb12u14", "amd64")
    assert package.component("debian").purl == "pkg:deb/debian/libc6@2.36-9%2Bdeb12u14?arch=amd64"
    other = sbom.parse_record(RECORD.replace("libc6", "libstdc++6").replace("2.36", "1:2.36"), tmp_path)
    assert other.component("debian").purl == "pkg:deb/debian/libstdc%2B%2B6@1%3A2.36-9%2Bdeb12u14?arch=amd64"
    files = sbom.files([package], {"python": tmp_path / "libc6" / "copyright"})
    assert files["var/lib/dpkg/status.d/libc6"].decode() == RECORD
    assert files["usr/share/doc/libc6/copyright"] == files["usr/share/doc/python/copyright"] == b"LGPL"


def test_libraries_without_a_package_are_listed_by_their_file_names(tmp_path: Path) -> None:
    (tmp_path / "libfoo.so.1.2").touch()
    (tmp_path / "libfoo.so.1").symlink_to("libfoo.so.1.2")
    assert sbom.loose_libraries([tmp_path / "libfoo.so.1", tmp_path / "libpython3.11.so.1.0"]) == [
        sbom.Component("libfoo", "1.2", "pkg:generic/libfoo@1.2")
    ]


@pytest.mark.parametrize(("text", "name"), [('ID="debian"\n', "debian"), ("A=b\nID=ubuntu\n", "ubuntu"), ("", "linux")])
def test_the_distribution_is_read_from_its_release_file(text: str, name: str) -> None:
    assert sbom.distribution(text) == name
