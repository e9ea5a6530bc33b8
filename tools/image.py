"""Makes, keeps and pushes the container image of the cloud controller managers and of address management.

    python tools/image.py archive --image NAME --output FILE    an archive; needs no other program
    python tools/image.py build --image NAME                    into docker, podman or buildah, else as an archive
    python tools/image.py push --image NAME [--plain-http]      to the registry that the name begins with

In: the layers of `tools/rootfs.py`. Out: an image whose entry point is the manager, so that its arguments are the
manager's flags. The archive is an OCI layout with a `manifest.json`, so `docker load`, `podman load`, `ctr images
import` and `bedplate lab load-image` all take it. Where there is no container program, `push` speaks the registry's
protocol itself, with the credentials that `docker login` or `podman login` left.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import registrypush
import rootfs

import bedplate
from bedplate.core import errors
from bedplate.lab import images

ROOT = rootfs.ROOT
LAYERS = ROOT / "build" / "rootfs"
TOOLS = ("docker", "podman", "buildah")
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Blob:
    """Content with its digest; layers are files, the rest is small."""

    kind: str
    digest: str
    size: int
    content: bytes | Path

    def described(self) -> dict[str, Any]:
        return {"mediaType": self.kind, "digest": self.digest, "size": self.size}

    def read(self) -> bytes:
        return self.content if isinstance(self.content, bytes) else self.content.read_bytes()


@dataclass(frozen=True, slots=True)
class Image:
    """An image as a registry holds it."""

    manifest: Blob
    config: Blob
    layers: tuple[Blob, ...]


def assembled(*, has_plugin: bool) -> Image:
    """The image of the current sources; its SBOM is written beside the layers."""
    tars = rootfs.assemble(has_plugin=has_plugin)
    rootfs.write_sbom(tars[1], LAYERS)
    layers = tuple(_file_blob(LAYER, _compressed(tar)) for tar in tars)
    config = _text_blob(CONFIG, _config([_digest_of(tar) for tar in tars]))
    parts = {"config": config.described(), "layers": [layer.described() for layer in layers]}
    manifest = _text_blob(MANIFEST, {"schemaVersion": 2, "mediaType": MANIFEST, **parts})
    return Image(manifest, config, layers)


def _config(diff_ids: list[str]) -> dict[str, Any]:
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    run = {
        "User": f"{rootfs.USER}:{rootfs.USER}",
        "Env": [f"{name}={value}" for name, value in rootfs.ENVIRONMENT.items()],
        "Entrypoint": [f"/usr/bin/{rootfs.GENERIC}"],
        "WorkingDir": "/",
        "Labels": {
            "org.opencontainers.image.title": "Bedplate cloud controller managers and address management",
            "org.opencontainers.image.version": bedplate.__version__,
            "org.opencontainers.image.licenses": "Apache-2.0",
        },
    }
    history = [{"created_by": "Python and packages"}, {"created_by": "bedplate"}]
    return {
        "architecture": machine,
        "os": "linux",
        "config": run,
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
        "history": history,
    }


def _compressed(tar: Path) -> Path:
    """The same bytes for the same archive; kept beside it."""
    target = tar.with_name(tar.name + ".gz")
    if not target.exists():
        part = tar.with_name(f"{tar.name}.{os.getpid()}.part")
        with tar.open("rb") as source, part.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed:
            shutil.copyfileobj(source, packed, _CHUNK)
        part.rename(target)
    return target


def _digest_of(path: Path) -> str:
    with path.open("rb") as handle:
        return "sha256:" + hashlib.file_digest(handle, "sha256").hexdigest()


def _file_blob(kind: str, path: Path) -> Blob:
    return Blob(kind, _digest_of(path), path.stat().st_size, path)


def _text_blob(kind: str, value: dict[str, Any]) -> Blob:
    content = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    return Blob(kind, "sha256:" + hashlib.sha256(content).hexdigest(), len(content), content)


def write_archive(image: Image, name: str, target: Path) -> None:
    """An OCI layout that docker can load, too."""
    full = images.full_name(name)
    notes = {"io.containerd.image.name": full, "org.opencontainers.image.ref.name": full.rpartition(":")[2]}
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [image.manifest.described() | {"annotations": notes}],
    }
    docker = {"Config": _path(image.config), "RepoTags": [full], "Layers": [_path(layer) for layer in image.layers]}
    texts = {
        "oci-layout": b'{"imageLayoutVersion":"1.0.0"}',
        "index.json": json.dumps(index).encode(),
        "manifest.json": json.dumps([docker]).encode(),
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    with tarfile.open(part, "w", format=tarfile.PAX_FORMAT) as archive:
        for path, content in texts.items():
            _add(archive, path, content)
        for blob in (image.manifest, image.config, *image.layers):
            _add(archive, _path(blob), blob.read())
    part.rename(target)


def _path(blob: Blob) -> str:
    return "blobs/" + blob.digest.replace(":", "/")


def _add(archive: tarfile.TarFile, path: str, content: bytes) -> None:
    info = tarfile.TarInfo(path)
    info.size = len(content)
    archive.addfile(info, io.BytesIO(content))


def tool() -> str | None:
    """The container program to use: the first that is installed and works (a docker without its daemon does not)."""
    for name in TOOLS:
        if shutil.which(name) is not None:
            answer = subprocess.run([name, "info"], capture_output=True, timeout=60, check=False)
            if answer.returncode == 0:
                return name
    return None


def archive_path(name: str) -> Path:
    """Where an image goes that no container program takes."""
    return ROOT / "build" / "image" / (images.full_name(name).rpartition("/")[2].replace(":", "-") + ".tar")


def build(name: str, *, has_plugin: bool) -> None:
    with_tool = tool()
    if with_tool is None:
        target = archive_path(name)
        write_archive(assembled(has_plugin=has_plugin), name, target)
        print(f"no docker, podman or buildah that works here: wrote {target.relative_to(ROOT)} instead")
        print("load it with `docker load -i FILE`, `ctr images import FILE` or `bedplate lab load-image FILE`")
        return
    options = [] if has_plugin else ["--without-plugin"]
    if code := subprocess.run([sys.executable, str(ROOT / "tools" / "rootfs.py"), *options], check=False).returncode:
        sys.exit(code)
    verb = ["bud"] if with_tool == "buildah" else ["build"]
    sys.exit(subprocess.run([with_tool, *verb, "--tag", name, str(ROOT)], check=False).returncode)


def push(name: str, *, is_plain: bool, has_plugin: bool, token_host: str) -> None:
    with_tool = tool()
    if with_tool is None:
        image = assembled(has_plugin=has_plugin)
        parts = [(blob.digest, blob.read) for blob in (*image.layers, image.config)]
        where = registrypush.push(
            images.full_name(name), image.manifest.read(), MANIFEST, parts, is_plain=is_plain, token_host=token_host
        )
        print(f"pushed {where}@{image.manifest.digest}")
        return
    extra = ["--tls-verify=false"] if is_plain and with_tool != "docker" else []
    sys.exit(subprocess.run([with_tool, "push", *extra, name], check=False).returncode)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make and push the image.")
    parser.add_argument("what", choices=("archive", "build", "push"))
    parser.add_argument("--image", required=True, help="name of the image, with registry and tag")
    parser.add_argument("--output", type=Path, help="file of the archive")
    parser.add_argument(
        "--plain-http", action="store_true", help="the registry speaks HTTP without TLS; it gets no password"
    )
    parser.add_argument("--token-host", default="", help="a host beside the registry that may get its password")
    parser.add_argument(
        "--without-plugin", action="store_true", help="for managers only, where nv-ipam cannot be built"
    )
    given = parser.parse_args()
    has_plugin = not given.without_plugin
    try:
        if given.what == "archive":
            target = given.output or archive_path(given.image)
            write_archive(assembled(has_plugin=has_plugin), given.image, target)
            print(f"{target}: {target.stat().st_size / 1e6:.1f} MB")
        elif given.what == "build":
            build(given.image, has_plugin=has_plugin)
        else:
            push(given.image, is_plain=given.plain_http, has_plugin=has_plugin, token_host=given.token_host)
    except errors.BedplateError as err:
        sys.exit(f"image: {err}")


if __name__ == "__main__":
    main()
