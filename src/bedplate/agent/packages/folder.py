"""Packages from a local folder: trees or archives that are laid below the root. For sandboxes, labs and tests.

In: `FOLDER/NAME/` or `FOLDER/NAME.tar`, `.tar.gz`, `.tar.xz`, whose paths are those of the node; `FOLDER/NAME.owns` may
list folders that its programs fill; `FOLDER/NAME=VERSION/` has the files that are other ones in that version. Out: the
same files below the root, and a list of them in the agent's state, by which they are removed. The list is written
first: an interrupted installation is finished or taken back whole. A folder that a package owns is made with it and
goes with all that is in it, unless it was there before. What two packages bring alike goes with the last of them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tarfile
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from bedplate.agent.files import FileProblem, Present, Root

__all__ = ["Folder"]

_ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.xz")


class _Entry(NamedTuple):
    path: str
    present: Present


class _Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    paths: list[str]
    folders: list[str] = []
    owns: list[str] = []
    is_whole: bool = False
    version: str = ""


class Folder:
    """`lists` is where the lists of installed files are kept."""

    family = "folder"

    def __init__(self, source: str, root: Root, lists: str) -> None:
        self._source = source
        self._root = root
        self._lists = lists

    async def installed(self, names: Iterable[str]) -> set[str]:
        manifests = {name: self._manifest(name) for name in names}
        return {name for name, manifest in manifests.items() if manifest is not None and manifest.is_whole}

    async def install(self, name: str) -> str | None:
        manifest = self._manifest(name)
        if manifest is not None and manifest.is_whole:
            return None
        try:
            entries = list(self._entries(name))
            ours = set(manifest.paths) if manifest is not None else set()
            others = self._others(name)
            ours |= self._alike(entries, others)
            taken = [entry.path for entry in entries if entry.path not in ours and self._root.stat(entry.path)]
            if taken:
                return f"{name} would overwrite {taken[0]}, which is not part of a package"
            folders = {path for entry in entries for path in self._root.missing_folders(entry.path)}
            folders.update(manifest.folders if manifest is not None else ())
            folders.update(folder for other in others for folder in other.folders if _is_in(folder, entries))
            owns = set(manifest.owns) if manifest is not None else set()
            theirs = {path for other in others for path in other.owns}
            owns.update(path for path in self._owned(name) if path in theirs or self._root.stat(path) is None)
            folders.update(folder for path in owns for folder in self._root.missing_folders(f"{path}/x"))
            manifest = _Manifest([entry.path for entry in entries], sorted(folders), sorted(owns))
            self._save(name, manifest)
            for folder in manifest.folders:
                os.makedirs(self._root.place(folder), mode=0o755, exist_ok=True)
            for entry in entries:
                self._root.put_back(entry.path, entry.present)
            self._save(name, msgspec.structs.replace(manifest, is_whole=True))
        except (OSError, FileProblem, tarfile.TarError) as err:
            return f"{name} cannot be installed from {self._source}: {err}"
        return None

    async def upgrade(self, name: str, version: str, *, only_fetch: bool = False) -> str | None:
        manifest = self._manifest(name)
        if manifest is None or not manifest.is_whole:
            return f"{name} is not installed"
        if manifest.version == version:
            return None
        try:
            entries = list(self._entries(f"{name}={version}"))
            others = {path for other in self._others(name) for path in other.paths}
            known = {*manifest.paths, *others}
            taken = [entry.path for entry in entries if entry.path not in known and self._root.stat(entry.path)]
            if taken:
                return f"{name} {version} would overwrite {taken[0]}, which is not part of a package"
            if only_fetch:
                return None
            folders = {path for entry in entries for path in self._root.missing_folders(entry.path)}
            new = msgspec.structs.replace(
                manifest,
                paths=list(dict.fromkeys([*manifest.paths, *(entry.path for entry in entries)])),
                folders=sorted({*manifest.folders, *folders}),
            )
            self._save(name, new)
            for entry in entries:
                os.makedirs(os.path.dirname(self._root.place(entry.path)), mode=0o755, exist_ok=True)
                self._root.put_back(entry.path, entry.present)
            self._save(name, msgspec.structs.replace(new, version=version))
        except (OSError, FileProblem, tarfile.TarError) as err:
            return f"{name} {version} cannot be installed from {self._source}: {err}"
        return None

    async def remove(self, name: str) -> str | None:
        manifest = self._manifest(name)
        if manifest is None:
            return None
        try:
            self._save(name, msgspec.structs.replace(manifest, is_whole=False))
            kept = {path for other in self._others(name) for path in (*other.paths, *other.owns)}
            for path in manifest.paths:
                if path not in kept:
                    self._root.remove(path)
            for path in set(manifest.owns) - kept:
                with contextlib.suppress(FileNotFoundError):
                    shutil.rmtree(self._root.place(path))
            for folder in sorted(manifest.folders, reverse=True):
                self._root.remove_folders((folder,))
            os.unlink(self._list(name))
        except (OSError, FileProblem) as err:
            return f"{name} cannot be removed: {err}"
        return None

    def _others(self, name: str) -> list[_Manifest]:
        """The lists of all other packages."""
        files = os.listdir(self._lists) if os.path.isdir(self._lists) else []
        names = sorted({file.removesuffix(".json") for file in files if file.endswith(".json")} - {name})
        return [manifest for manifest in map(self._manifest, names) if manifest is not None]

    def _alike(self, entries: Iterable[_Entry], others: Iterable[_Manifest]) -> set[str]:
        """Paths that another package brought with the same content."""
        theirs = {path for other in others for path in other.paths}
        shared = (entry for entry in entries if entry.path in theirs)
        return {entry.path for entry in shared if self._root.read(entry.path).content == entry.present.content}

    def _entries(self, name: str) -> Iterator[_Entry]:
        tree = os.path.join(self._source, name)
        if "/" in name or name in (".", ".."):
            raise FileProblem(f"{name!r} is not the name of a package")
        if os.path.isdir(tree):
            yield from _tree(tree)
            return
        for ending in _ENDINGS:
            if os.path.exists(tree + ending):
                yield from _archive(tree + ending)
                return
        raise FileProblem(f"there is no package {name}", hint="put a folder or an archive of that name there")

    def _owned(self, name: str) -> list[str]:
        """Folders that the programs of a package fill."""
        try:
            with open(os.path.join(self._source, f"{name}.owns")) as stream:
                paths = [line.strip() for line in stream]
        except FileNotFoundError:
            return []
        return [os.path.normpath(path) for path in paths if path.startswith("/") and os.path.normpath(path) != "/"]

    def _list(self, name: str) -> str:
        return os.path.join(self._lists, f"{name}.json")

    def _manifest(self, name: str) -> _Manifest | None:
        try:
            with open(self._list(name), "rb") as stream:
                return msgspec.json.decode(stream.read(), type=_Manifest)
        except (OSError, msgspec.DecodeError):
            return None

    def _save(self, name: str, manifest: _Manifest) -> None:
        os.makedirs(self._lists, mode=0o700, exist_ok=True)
        new = self._list(name) + ".new"
        with open(new, "wb") as stream:
            stream.write(msgspec.json.encode(manifest))
            stream.flush()
            os.fsync(stream.fileno())
        os.rename(new, self._list(name))


def _is_in(folder: str, entries: Iterable[_Entry]) -> bool:
    return any(entry.path.startswith(f"{folder}/") for entry in entries)


def _tree(folder: str) -> Iterator[_Entry]:
    for parent, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        for name in sorted([*names, *links]):
            place = os.path.join(parent, name)
            about = os.lstat(place)
            facts = (stat.S_IMODE(about.st_mode), about.st_uid, about.st_gid, about.st_mtime_ns)
            path = "/" + os.path.relpath(place, folder)
            if stat.S_ISLNK(about.st_mode):
                yield _Entry(path, Present("link", b"", *facts, os.readlink(place)))
            else:
                with open(place, "rb") as stream:
                    yield _Entry(path, Present("file", stream.read(), *facts))


def _archive(place: str) -> Iterator[_Entry]:
    with contextlib.closing(tarfile.open(place)) as archive:
        for member in archive:
            path = os.path.normpath("/" + member.name)
            facts = (member.mode & 0o7777, member.uid, member.gid, int(member.mtime * 1e9))
            if member.issym():
                yield _Entry(path, Present("link", b"", *facts, member.linkname))
            elif member.isfile():
                stream = archive.extractfile(member)
                assert stream is not None, "it is a file"
                yield _Entry(path, Present("file", stream.read(), *facts))
