"""Container images made on this machine, in a store a registry can serve.

In: files (static binaries, or a program with the shared libraries it needs) and an image name. Out: blobs below
`<store>/blobs` and a line in `<store>/refs`. No image is pulled from anywhere: the lab works without a registry.

An image is made once per content: the key of a recipe is what goes in (names, sizes, change times), and a recipe with
a known key is not built again. Archives written by other tools (`docker save`, OCI layouts) are taken in by
`load_archive`.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import urllib.parse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bedplate.api.references import full_name
from bedplate.core import errors

__all__ = ["Recipe", "Store", "full_name", "with_libraries"]

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Recipe:
    """What goes into an image: `files` maps the path inside to the file here, `links` a path to where it points."""

    name: str
    files: Mapping[str, Path]
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ("tmp",)
    texts: Mapping[str, str] = field(default_factory=dict)

    def key(self) -> str:
        """Equal keys mean equal images."""
        facts = {
            "files": {
                inside: [str(path), path.stat().st_size, path.stat().st_mtime_ns] for inside, path in self.files.items()
            },
            "rest": [self.entrypoint, self.command, dict(self.links), self.folders, dict(self.texts)],
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def with_libraries(programs: Iterable[Path]) -> dict[str, Path]:
    """The programs and every shared library the loader would bring in for them, at the same paths inside."""
    files: dict[str, Path] = {}
    for program in programs:
        files[str(program).lstrip("/")] = program
        answer = subprocess.run(["ldd", str(program)], capture_output=True, text=True, timeout=30, check=False)
        for word in answer.stdout.split():
            if word.startswith("/"):
                files[word.lstrip("/")] = Path(word)
    return files


class Store:
    """Blobs by digest, and names that point at manifests. Several stores may be served together."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for part in ("blobs", "refs", "recipes"):
            (root / part).mkdir(parents=True, exist_ok=True)

    def blob(self, digest: str) -> Path | None:
        """The file of a digest, if it is here."""
        path = self.root / "blobs" / digest.removeprefix("sha256:")
        return path if path.is_file() else None

    def find(self, name: str) -> str | None:
        """The manifest digest of a full name, if it is here."""
        path = self._ref(name)
        return path.read_text() if path.is_file() else None

    def names(self) -> list[str]:
        return sorted(urllib.parse.unquote(path.name) for path in (self.root / "refs").iterdir())

    def make(self, recipe: Recipe) -> str:
        """Build the image unless its content is known; point its name at it. Returns the manifest digest."""
        known = self.root / "recipes" / recipe.key()
        digest = known.read_text() if known.is_file() else ""
        if not digest or self.blob(digest) is None:
            layer, size = self._add_layer(recipe)
            config = _config_of(recipe, layer)
            digest = self._add_manifest(config, [(layer, size, _LAYER)])
            _replace(known, digest.encode())
        self.tag(recipe.name, digest)
        return digest

    def tag(self, name: str, digest: str) -> None:
        _replace(self._ref(full_name(name)), digest.encode())

    def load_archive(self, archive: Path) -> list[str]:
        """Take in a `docker save` or OCI archive; returns the names found in it."""
        try:
            with tarfile.open(archive) as source:
                members = {member.name.removeprefix("./"): member for member in source.getmembers() if member.isfile()}
                if "manifest.json" in members:
                    return self._load_docker(source, members)
                if "index.json" in members:
                    return self._load_oci(source, members)
        except (OSError, tarfile.TarError, KeyError, ValueError) as err:
            raise errors.Invalid(f"{archive} cannot be read as an image archive: {err}") from err
        raise errors.Invalid(
            f"{archive} is not an image archive: it holds neither manifest.json nor index.json",
            hint="write one with `docker save`, `podman save` or `buildah push … oci-archive:FILE`",
        )

    def _load_docker(self, source: tarfile.TarFile, members: Mapping[str, tarfile.TarInfo]) -> list[str]:
        names: list[str] = []
        for entry in json.loads(_content(source, members["manifest.json"])):
            layers = []
            for path in entry["Layers"]:
                digest, size = self._add_stream(source.extractfile(members[path]))
                blob = self.blob(digest)
                kind = _LAYER + ("+gzip" if blob and blob.open("rb").read(2) == b"\x1f\x8b" else "")
                layers.append((digest, size, kind))
            digest = self._add_manifest(_content(source, members[entry["Config"]]), layers)
            for name in entry.get("RepoTags") or []:
                self.tag(name, digest)
                names.append(full_name(name))
        return names

    def _load_oci(self, source: tarfile.TarFile, members: Mapping[str, tarfile.TarInfo]) -> list[str]:
        for path, member in members.items():
            if path.startswith("blobs/sha256/"):
                self._add_stream(source.extractfile(member))
        names = []
        for entry in json.loads(_content(source, members["index.json"]))["manifests"]:
            notes = entry.get("annotations", {})
            name = notes.get("io.containerd.image.name") or notes.get("org.opencontainers.image.ref.name")
            if name:
                self.tag(name, entry["digest"])
                names.append(full_name(name))
        return names

    def _add_layer(self, recipe: Recipe) -> tuple[str, int]:
        part = self.root / "blobs" / f"layer.{os.getpid()}.{recipe.key()[:12]}.part"
        try:
            with tarfile.open(part, "w", format=tarfile.PAX_FORMAT) as layer:
                _fill(layer, recipe)
            with open(part, "rb") as handle:
                digest = "sha256:" + hashlib.file_digest(handle, "sha256").hexdigest()
            size = part.stat().st_size
            part.rename(self.root / "blobs" / digest.removeprefix("sha256:"))
        finally:
            part.unlink(missing_ok=True)
        return digest, size

    def _add_manifest(self, config: bytes, layers: list[tuple[str, int, str]]) -> str:
        config_digest, config_size = self._add_stream(io.BytesIO(config))
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": {"mediaType": _CONFIG, "digest": config_digest, "size": config_size},
            "layers": [{"mediaType": kind, "digest": digest, "size": size} for digest, size, kind in layers],
        }
        return self._add_stream(io.BytesIO(json.dumps(manifest).encode()))[0]

    def _add_stream(self, stream: Any) -> tuple[str, int]:
        part = self.root / "blobs" / f"blob.{os.getpid()}.{id(stream)}.part"
        running = hashlib.sha256()
        try:
            with open(part, "wb") as target:
                while chunk := stream.read(_CHUNK):
                    running.update(chunk)
                    target.write(chunk)
            size = part.stat().st_size
            part.rename(self.root / "blobs" / running.hexdigest())
        finally:
            part.unlink(missing_ok=True)
        return f"sha256:{running.hexdigest()}", size

    def _ref(self, name: str) -> Path:
        return self.root / "refs" / urllib.parse.quote(name, safe="")


def _fill(layer: tarfile.TarFile, recipe: Recipe) -> None:
    folders = {
        "/".join(parts[:n])
        for parts in (p.split("/") for p in [*recipe.files, *recipe.links, *recipe.texts])
        for n in range(1, len(parts))
    }
    for name in sorted(folders | set(recipe.folders)):
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
        layer.addfile(entry)
    for name, source in sorted(recipe.files.items()):
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = source.stat().st_size, 0o755
        with open(source, "rb") as handle:
            layer.addfile(entry, handle)
    for name, text in sorted(recipe.texts.items()):
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = len(text.encode()), 0o644
        layer.addfile(entry, io.BytesIO(text.encode()))
    for name, target in sorted(recipe.links.items()):
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = tarfile.SYMTYPE, target
        layer.addfile(entry)


def _config_of(recipe: Recipe, layer: str) -> bytes:
    run = {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"], "WorkingDir": "/"}
    if recipe.entrypoint:
        run["Entrypoint"] = list(recipe.entrypoint)
    if recipe.command:
        run["Cmd"] = list(recipe.command)
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    config = {
        "architecture": machine,
        "os": "linux",
        "config": run,
        "rootfs": {"type": "layers", "diff_ids": [layer]},
        "history": [{"created_by": "bedplate lab"}],
    }
    return json.dumps(config).encode()


def _content(source: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    handle = source.extractfile(member)
    return handle.read() if handle is not None else b""


def _replace(path: Path, content: bytes) -> None:
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_bytes(content)
    shutil.move(part, path)
