"""The trees of software images on this head node's disk: what is an image, who has it, what is done with it as a whole.

In: paths of images. Out: the condition of trees; trees that were copied, replaced, removed, or worked in. A tree is an
image only with its marker (`.bedplate-image`), which `adopt`, `copy` and a grab write: whatever else lies there never
reaches a node. Trees lie below one folder, without links on the way: an image's path is a word of people who may edit
images, and not everything on a head node is theirs to give away.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from bedplate.agent.files import Root, Written
from bedplate.api.images import IMAGES, MARKER
from bedplate.core import errors
from bedplate.core.clock import Clock, SystemClock, rfc3339
from bedplate.head.images import disk, repositories

__all__ = ["Condition", "Marker", "Trees"]

_PLAIN = re.compile(r"/[A-Za-z0-9._/@+:~-]*")
State = Literal["ready", "missing", "empty", "unmarked", "outside"]


class Marker(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the marker says: how often the tree was replaced or worked in, when last, and where it came from."""

    generation: int = 1
    changed: str = ""
    origin: str = ""


class Condition(NamedTuple):
    """A tree as it is on the disk."""

    state: State
    marker: Marker = Marker(generation=0)

    @property
    def refusal(self) -> str:
        """Why it is not copied to a node; empty for an image."""
        return {
            "ready": "",
            "missing": "its folder does not exist",
            "empty": "its folder is empty",
            "unmarked": f"its folder has no {MARKER}",
            "outside": "its path is not below the folder of images, or leads through a link",
        }[self.state]

    @property
    def remedy(self) -> str:
        """What to do about that."""
        return {
            "ready": "",
            "missing": "adopt a tree that is there, copy another image, or grab a node",
            "empty": "copy another image, or grab a node",
            "unmarked": "if it is meant to be an image: softwareimage adopt",
            "outside": "set another path; bedplate head serve --images names the folder",
        }[self.state]


class Trees:
    """`folder` stands for `/cm/images`."""

    def __init__(
        self,
        folder: str = IMAGES,
        *,
        clock: Clock | None = None,
        is_root: bool | None = None,
        which: Callable[[str], str | None] = shutil.which,
    ) -> None:
        self.folder = os.path.realpath(folder)
        self.is_root = os.geteuid() == 0 if is_root is None else is_root
        self._clock = clock or SystemClock()
        self.which = which
        self._freed = asyncio.Event()
        self.busy: dict[str, str] = {}
        """What changes a tree now, by place: nobody else reads or writes it meanwhile."""
        self._readers: dict[str, list[str]] = {}

    # Looking

    def place(self, path: str) -> str:
        """Where the tree of an image is. Raises `Invalid`."""
        inner = path.removeprefix(f"{IMAGES}/") if path.startswith(f"{IMAGES}/") else ""
        if not inner and path.startswith(f"{self.folder}/"):
            inner = path.removeprefix(f"{self.folder}/")
        place = f"{self.folder}/{inner}"
        is_plain = _PLAIN.fullmatch(place) and os.path.normpath(place) == place and place != self.folder
        is_hidden = any(part.startswith(".") for part in inner.split("/"))
        if not inner or not is_plain or is_hidden or os.path.realpath(place) != place or self._is_nested(inner):
            raise errors.Invalid(
                f"{path} cannot be the path of an image",
                hint=f"a path below {self.folder} (bedplate head serve --images) of plain letters, without links, and "
                "in no other image",
            )
        return place

    def _is_nested(self, inner: str) -> bool:
        """Whether a path lies in another image: what is there is that image's."""
        parts = inner.split("/")
        above = ("/".join(parts[:count]) for count in range(1, len(parts)))
        return any(os.path.lexists(f"{self.folder}/{part}/{MARKER}") for part in above)

    def condition(self, path: str) -> Condition:
        """What is there."""
        try:
            place = self.place(path)
        except errors.Invalid:
            return Condition("outside")
        if place not in self.busy:
            disk.restore(place)
        try:
            names = os.listdir(place)
        except (FileNotFoundError, NotADirectoryError):
            return Condition("missing")
        except OSError:
            return Condition("unmarked")
        if not set(names) - {MARKER}:
            return Condition("empty")
        marker = self._marker(place)
        return Condition("ready", marker) if marker is not None else Condition("unmarked")

    def _marker(self, place: str) -> Marker | None:
        try:
            handle = os.open(os.path.join(place, MARKER), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(handle, "rb") as stream:
                return msgspec.json.decode(stream.read(1 << 16), type=Marker)
        except (OSError, msgspec.DecodeError):
            return None

    def _mark(self, place: str, before: Marker | None, origin: str) -> Marker:
        generation = before.generation + 1 if before is not None else 1
        marker = Marker(generation, rfc3339(self._clock.now()), origin)
        target = os.path.join(place, MARKER)
        new = f"{target}.new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with open(handle, "wb") as stream:
            stream.write(msgspec.json.encode(marker))
            stream.flush()
            os.fsync(stream.fileno())
        os.rename(new, target)
        return marker

    # Trees as a whole

    def adopt(self, path: str, *, by: str) -> str:
        """Make the tree that is there an image. Raises `Invalid`, `NotFound`."""
        place, condition = self.place(path), self.condition(path)
        if condition.state == "ready":
            return f"{place} is an image already"
        if condition.state != "unmarked":
            raise errors.Invalid(f"{place} cannot be adopted: {condition.refusal}", hint=condition.remedy)
        self._mark(place, None, f"adopted by {by}")
        return f"{place} is an image now"

    async def copy(self, source: str, path: str) -> str:
        """Copy a tree to where none is yet. Raises `Invalid`, `AlreadyExists`, `Conflict`."""
        place, origin = self.place(path), self.place(source)
        condition, present = self.condition(source), self.condition(path)
        if condition.state != "ready":
            raise errors.Invalid(f"{origin} cannot be copied: {condition.refusal}", hint=condition.remedy)
        if present.state not in ("missing", "empty"):
            raise errors.AlreadyExists(f"{place} is not empty", hint="remove it first, or choose another path")
        new = disk.beside(place, "new")
        async with self.changing(place, f"copied from {origin}"), self.kept(new):
            with self.reading(origin, f"copied to {place}"):
                await self._duplicate(origin, new)
            self._mark(new, None, f"copy of {origin}")
            with contextlib.suppress(FileNotFoundError):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(place, MARKER))
                os.rmdir(place)
            os.rename(new, place)
        return f"{origin} was copied to {place}"

    async def remove(self, path: str) -> str:
        """Remove a tree that is an image. Raises `Invalid`."""
        place, condition = self.place(path), self.condition(path)
        if condition.state == "missing":
            return f"{place} does not exist"
        if condition.state == "unmarked":
            raise errors.Invalid(f"{place} is not removed: {condition.refusal}", hint=condition.remedy)
        gone = disk.beside(place, "gone")
        async with self.changing(place, "removed"):
            await disk.discard(gone)
            os.rename(place, gone)
        await disk.discard(gone)
        return f"{place} was removed"

    async def run(self, path: str, command: Sequence[str], *, timeout_s: float, by: str) -> disk.Ran:
        """Run a command inside a tree, with a view of mounts and processes of its own. Raises `Invalid`.

        Mounts are private to the command, so that none is left behind, however it ends."""
        place, condition = self.place(path), self.condition(path)
        if condition.state != "ready":
            raise errors.Invalid(f"nothing can be run in {place}: {condition.refusal}", hint=condition.remedy)
        if not self.is_root:
            raise errors.Invalid(
                "a command can be run in an image only by a head that runs as root",
                hint=f"as root on the head node: chroot {place} COMMAND",
            )
        for program in ("unshare", "chroot", "mount"):
            if self.which(program) is None:
                raise errors.Invalid(f"{program} is not installed on this head node", hint="install util-linux")
        async with self.changing(place, f"used by a command of {by}"):
            apart = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", _INSIDE, "sh", place)
            ran = await disk.run([*apart, *command], timeout_s)
            self._mark(place, condition.marker, f"{' '.join(command)[:200]} of {by}")
        return ran

    async def bump(
        self,
        path: str,
        version: str,
        *,
        is_written: bool,
        by: str,
        mirror: repositories.Mirror = repositories.Mirror(),  # noqa: B008 - it is frozen
    ) -> repositories.Bump:
        """Bring the repository of Kubernetes packages in a tree to a version. Raises `Invalid`, `Conflict`."""
        place, condition = self.place(path), self.condition(path)
        if condition.state != "ready":
            raise errors.Invalid(f"{place} is left alone: {condition.refusal}", hint=condition.remedy)
        # Links in a tree lead to somewhere in that tree, not to the head's own files.
        root = Root(place, is_privileged=self.is_root)

        def text(name: str) -> str:
            return root.read(name, follow=True).content[: 1 << 16].decode(errors="replace")

        files = {name: text(name) for name in repositories.paths()}
        bump = repositories.bump(text(repositories.OS_RELEASE), files, version, os.uname().machine, mirror)
        if is_written and bump.path:
            async with self.changing(place, f"changed by {by}"):
                written = {**repositories.files(bump.family, bump.version, mirror), bump.path: bump.content}
                for name, content in written.items():
                    root.write(name, content.encode(), Written(), folder_mode=0o755)
                self._mark(place, condition.marker, f"repository of {bump.version} by {by}")
        return bump

    # Who has a tree

    @contextlib.asynccontextmanager
    async def changing(self, place: str, what: str) -> AsyncIterator[None]:
        """Have a tree for oneself. Raises `Conflict`."""
        others = [self.busy[place]] if place in self.busy else self._readers.get(place, ())
        if others:
            raise errors.Conflict(f"{place} is being {others[0]}", hint="try again when that is over")
        self.busy[place] = what
        try:
            disk.restore(place)
            for word in disk.WORDS:
                await disk.discard(disk.beside(place, word))
            yield
        finally:
            del self.busy[place]
            freed, self._freed = self._freed, asyncio.Event()
            freed.set()

    @contextlib.contextmanager
    def reading(self, place: str, what: str) -> Iterator[None]:
        """Read a tree with others, and let nobody change it: who deletes by what is read would delete too much. Raises
        `Conflict`."""
        if place in self.busy:
            raise errors.Conflict(f"{place} is being {self.busy[place]}", hint="try again when that is over")
        self._readers.setdefault(place, []).append(what)
        try:
            yield
        finally:
            self._readers[place].remove(what)
            if not self._readers[place]:
                del self._readers[place]

    async def free(self, place: str) -> None:
        """Wait until nobody changes a tree."""
        while place in self.busy:
            await self._freed.wait()

    async def prepare(self, place: str, new: str) -> None:
        """A folder to write to: a copy of the tree, or an empty one where there is none."""
        await disk.discard(new)
        os.makedirs(os.path.dirname(new), mode=0o700, exist_ok=True)
        if place:
            await self._duplicate(place, new)
        else:
            os.mkdir(new, 0o755)

    async def _duplicate(self, source: str, target: str) -> None:
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        ran = await disk.spared(target, disk.run(["cp", "-a", "--reflink=auto", "-T", source, target], 86400.0))
        if ran.code:
            last = "; ".join(ran.output.strip().splitlines()[-2:])
            raise errors.Invalid(f"{source} cannot be copied on the head node: {last}", hint="is its disk full?")

    @contextlib.asynccontextmanager
    async def kept(self, new: str) -> AsyncIterator[None]:
        """A tree under another name until it is whole; gone when the block ends and it was not renamed."""
        await disk.discard(new)
        try:
            yield
        finally:
            await disk.discard(new)

    def replace(self, place: str, new: str, before: Marker, origin: str) -> None:
        """Put a tree that is whole in place of the image, in one step."""
        if not self.is_root:
            disk.unmunge(new)
        self._mark(new, before, origin)
        os.sync()
        if os.path.lexists(place):
            disk.exchange(new, place)
        else:
            os.rename(new, place)


_INSIDE = """
set -e
mount --make-rprivate /
for name in proc sys dev; do
    if [ -L "$1/$name" ]; then echo "/$name is a link in the image: it would lead out of it" >&2; exit 1; fi
    mkdir -p "$1/$name"
done
mount -t proc proc "$1/proc"
mount --rbind /sys "$1/sys"
mount --rbind /dev "$1/dev"
if [ -e /etc/resolv.conf ] && [ -f "$1/etc/resolv.conf" ] && [ ! -L "$1/etc/resolv.conf" ]; then
    mount --bind /etc/resolv.conf "$1/etc/resolv.conf"
fi
tree=$1
shift
exec chroot "$tree" "$@"
"""
