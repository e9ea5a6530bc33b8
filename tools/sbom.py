"""What the image is made of, for people and for scanners: an SBOM, package records and licence texts.

In: the pinned Python packages as installed, the interpreter, the machine's files that go into the image. Out:
`Component`s; an SPDX document of them; the files that tell scanners of a distribution which of its packages the shared
libraries come from (`/etc/os-release`, `/var/lib/dpkg/status.d/`, as images without a package manager have them), and
the licence text of each. On a machine without dpkg the libraries are listed with the version in their names. Equal
input gives equal text.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

PLACE = "usr/share/sbom/bedplate.spdx.json"
"""Where the SBOM is in the image."""
_OS_RELEASE = Path("/etc/os-release")
_DOCS = Path("/usr/share/doc")
_LICENCE_ID = re.compile(r"[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)*")


@dataclass(frozen=True, slots=True, order=True)
class Component:
    """One piece of software in the image. `purl` is its package URL, by which scanners know it."""

    name: str
    version: str
    purl: str
    licence: str = ""


@dataclass(frozen=True, slots=True, order=True)
class DebianPackage:
    """An installed package: its record, as dpkg has it, and the file with its licences."""

    name: str
    version: str
    architecture: str
    record: str
    licence_file: Path | None = None

    def component(self, distribution: str) -> Component:
        name, version = quote(self.name, safe=""), quote(self.version, safe="~")
        purl = f"pkg:deb/{distribution}/{name}@{version}?arch={self.architecture}"
        return Component(self.name, self.version, purl)


def python_packages(pins: Iterable[tuple[str, str]]) -> list[Component]:
    """The pinned packages, with the licence that each declares."""
    found = []
    for name, version in pins:
        facts = importlib.metadata.distribution(name).metadata
        declared = (facts.get("License-Expression") or facts.get("License") or "").strip().partition("\n")[0]
        found.append(Component(name, version, f"pkg:pypi/{name.lower()}@{version}", declared))
    return found


def interpreter() -> Component:
    version = ".".join(map(str, sys.version_info[:3]))
    return Component("python", version, f"pkg:generic/python@{version}", "PSF-2.0")


def loose_libraries(paths: Iterable[Path]) -> list[Component]:
    """Shared libraries that no package manager knows, with the version in their file names; Python's own is listed as
    the interpreter."""
    found = set()
    for path in paths:
        name, _, version = path.resolve().name.partition(".so.")
        if name.startswith("libpython"):
            continue
        found.add(Component(name, version or "0", f"pkg:generic/{name}@{version or '0'}"))
    return sorted(found)


# Packages of the distribution


def owners(answer: str) -> dict[str, str]:
    """Path -> package, from what `dpkg-query --search` prints."""
    found = {}
    for line in answer.splitlines():
        packages, colon, path = line.rpartition(": ")
        if colon and not line.startswith("diversion by"):
            found[path] = packages.split(", ")[0].partition(":")[0]
    return found


def parse_record(record: str, docs: Path = _DOCS) -> DebianPackage:
    """A package from its record in dpkg's database."""
    fields = dict(re.findall(r"(?m)^([A-Z][A-Za-z-]*): (.*)$", record))
    text = docs / fields["Package"] / "copyright"
    architecture = fields.get("Architecture", "all")
    kept = text if text.is_file() else None
    return DebianPackage(fields["Package"], fields["Version"], architecture, record.strip() + "\n", kept)


def debian_packages(files: Iterable[Path], also: Iterable[str] = ()) -> tuple[list[DebianPackage], list[Path]]:
    """The packages that files belong to and, where installed, those named; and the files that belong to none."""
    paths = list(files)
    if shutil.which("dpkg-query") is None:
        return [], paths
    spellings = {path: {str(path), str(path.resolve()), *_merged(path), *_merged(path.resolve())} for path in paths}
    asked = sorted({spelling for each in spellings.values() for spelling in each})
    known = owners(_run("dpkg-query", "--search", *asked))
    names: set[str] = set()
    unknown = []
    for path, each in spellings.items():
        packages = {known[spelling] for spelling in each if spelling in known}
        names |= packages
        if not packages:
            unknown.append(path)
    records = [_run("dpkg-query", "--status", name) for name in sorted(names | set(also))]
    return [parse_record(record) for record in records if "Version:" in record], unknown


def _merged(path: Path) -> set[str]:
    """The other spelling of a path on systems where /lib is a link to /usr/lib: dpkg knows one of both."""
    text = str(path)
    return {text.removeprefix("/usr") if text.startswith("/usr/lib") else f"/usr{text}"}


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False).stdout


def distribution(text: str) -> str:
    """The `ID` of an os-release file."""
    match = re.search(r"(?m)^ID=\"?([\w.-]+)", text)
    return match[1] if match else "linux"


# What goes into the image


def files(packages: Sequence[DebianPackage], licences: dict[str, Path]) -> dict[str, bytes]:
    """The records and licence texts: path inside -> content. `licences` are those of software without a package."""
    found = {f"usr/share/doc/{name}/copyright": path.read_bytes() for name, path in licences.items()}
    for package in packages:
        found[f"var/lib/dpkg/status.d/{package.name}"] = package.record.encode()
        if package.licence_file is not None:
            found[f"usr/share/doc/{package.name}/copyright"] = package.licence_file.read_bytes()
    if packages and _OS_RELEASE.is_file():
        found["etc/os-release"] = _OS_RELEASE.read_bytes()
    return found


def own_metadata(version: str) -> dict[str, bytes]:
    """What tells a scanner of Python packages that Bedplate itself is here, in which version."""
    text = f"Metadata-Version: 2.1\nName: bedplate\nVersion: {version}\nLicense-Expression: Apache-2.0\n"
    return {f"bedplate-{version}.dist-info/METADATA": text.encode()}


def document(version: str, components: Iterable[Component]) -> str:
    """An SPDX 2.3 document: the image, and what it contains."""
    parts = sorted(set(components))
    digest = hashlib.sha256(repr((version, parts)).encode()).hexdigest()
    image = _package("SPDXRef-image", Component("bedplate", version, f"pkg:generic/bedplate@{version}", "Apache-2.0"))
    listed = [_package(f"SPDXRef-{number}", part) for number, part in enumerate(parts, 1)]
    content: dict[str, Any] = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"bedplate-{version}",
        "documentNamespace": f"urn:bedplate:spdx:{version}:{digest}",
        # A fixed moment, as the same content must give the same bytes.
        "creationInfo": {"created": "1970-01-01T00:00:00Z", "creators": ["Tool: bedplate-sbom"]},
        "packages": [image, *listed],
        "relationships": [
            _relationship("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-image"),
            *(_relationship("SPDXRef-image", "CONTAINS", part["SPDXID"]) for part in listed),
        ],
    }
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


def _package(identity: str, part: Component) -> dict[str, Any]:
    licence = part.licence if _LICENCE_ID.fullmatch(part.licence) else "NOASSERTION"
    return {
        "SPDXID": identity,
        "name": part.name,
        "versionInfo": part.version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": licence,
        "copyrightText": "NOASSERTION",
        "externalRefs": [
            {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": part.purl}
        ],
    }


def _relationship(left: str, kind: str, right: str) -> dict[str, str]:
    return {"spdxElementId": left, "relationshipType": kind, "relatedSpdxElement": right}
