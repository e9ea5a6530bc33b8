"""Software images: which node gets which tree in which way, what is refused, and what becomes of a transfer.

In: requests of people, starts of machines, streams of agents. Out: errands with everything decided (image, exclude
list, whether to write and to delete), bytes for the node they belong to. `decide` is pure.

    update     AUTO: what the image has is copied, what it does not have is deleted, but for the exclude lists
    full       FULL: nothing but the machine's own identity is left; the node must be named as a confirmation
    sync       the same as update with the list for boots, when a machine has started; NOSYNC: nothing happens
    grab       the node's tree becomes the image's, in one step, when all of it has arrived

On a data node nothing is deleted unless it is named. Many nodes may read an image at the same time; a grab, a copy and
a command in it have it for themselves. A node does one transfer at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import NamedTuple

from bedplate.api.headapi import ErrandKind, ErrandState, ErrandTold, ImageAction, ImageResult, ImageState, Transfer
from bedplate.core import errors
from bedplate.core.logging import get_logger
from bedplate.head.entities.nodes import PhysicalNode, SoftwareImage
from bedplate.head.errands import Errands
from bedplate.head.images.repositories import Mirror
from bedplate.head.images.serving import Serving, Transfers
from bedplate.head.images.trees import Condition
from bedplate.head.notices import Notices
from bedplate.head.policy import Identity
from bedplate.head.render import render
from bedplate.head.resolve import inherited, resolve
from bedplate.head.schema.ranges import compress, natural
from bedplate.head.service import Head
from bedplate.head.session import Session
from bedplate.head.tree import Tree

__all__ = ["Imaging", "Job", "decide", "has_data", "image_of"]

_LOG = get_logger("head.images")
_LASTS_S = 3600.0
_TIDY_S = 10.0


class Job(NamedTuple):
    """A transfer as it is decided for one node."""

    image: str
    mode: str
    is_written: bool
    is_deleting: bool
    is_confirmed: bool


def image_of(tree: Tree, node: str) -> str:
    """The image of a node: its own, else its category's. Raises `NotFound`, `Invalid`."""
    device = tree.get(("device", node))
    if device.type != "PhysicalNode":
        raise errors.Invalid(f"{node} is a head node: it has no software image", hint="name compute nodes")
    value, _ = inherited(tree, device, PhysicalNode.software_image)
    if not value or tree.find("softwareimage", str(value)) is None:
        raise errors.Invalid(f"{node} has no software image", hint="set softwareimage, on the node or its category")
    return str(value)


def install_mode(tree: Tree, node: str) -> str:
    """How a node is installed: its own setting, else its category's."""
    value, _ = inherited(tree, tree.get(("device", node)), PhysicalNode.install_mode)
    return str(value or "AUTO")


def has_data(tree: Tree, node: str) -> bool:
    """Whether wiping a node needs a confirmation: it is marked so, or one of its roles keeps data there, as etcd's."""
    return render(tree, resolve(tree, node)).data_node is not None


def decide(tree: Tree, node: str, kind: ErrandKind, transfer: Transfer) -> Job:
    """What a request means for a node. Raises `NotFound`, `Invalid`."""
    own = image_of(tree, node)
    is_named = node in transfer.confirm
    if kind == "grabimage":
        if transfer.full:
            raise errors.Invalid("a grab is never full", hint="leave it out")
        image = transfer.image or own
        if tree.find("softwareimage", image) is None:
            raise errors.NotFound(f"there is no software image {image}", hint="softwareimage add it, and commit")
        return Job(image, "grab", transfer.write, True, is_named)
    if transfer.image is not None and transfer.image != own:
        raise errors.Invalid(
            f"the image of {node} is {own}, not {transfer.image}", hint=f"device use {node}; set softwareimage"
        )
    if transfer.write and install_mode(tree, node) == "NOSYNC":
        raise errors.Invalid(
            f"the install mode of {node} is NOSYNC: its files are left alone",
            hint="clear installmode on the node, or set another one",
        )
    is_data = has_data(tree, node)
    if transfer.full and transfer.write and not is_named:
        what = "a data node: a full installation would wipe its data" if is_data else "wiped by a full installation"
        raise errors.Invalid(f"{node} is {what}", hint=f"confirm it by name: --confirm {node}")
    mode = "full" if transfer.full else "update"
    return Job(own, mode, transfer.write, is_named or not is_data, is_named)


class Imaging:
    """Transfers of all nodes, and the trees they are about."""

    def __init__(self, head: Head, notices: Notices, errands: Errands, transfers: Transfers) -> None:
        self._head = head
        self._notices = notices
        self._errands = errands
        self.transfers = transfers
        self.trees = transfers.trees

    # People

    async def ask(
        self, nodes: Sequence[str], kind: ErrandKind, transfer: Transfer, *, by: str, lasts_s: float
    ) -> Sequence[ErrandState]:
        """Ask nodes for a transfer: all of them or none. Raises `NotFound`, `Invalid`, `Conflict`."""
        tree = self._head.tree
        jobs = {node: decide(tree, node, kind, transfer) for node in nodes}
        strange = sorted(set(transfer.confirm) - set(nodes), key=natural)
        if strange:
            raise errors.Invalid(f"{compress(strange)} was confirmed, and is not meant", hint="confirm the nodes named")
        if kind == "grabimage" and len(nodes) != 1:
            raise errors.Invalid("an image is grabbed from one node", hint="name one")
        for image in {job.image for job in jobs.values()}:
            await self._tidied(image)
        self._refuse(jobs)
        return await self._errands.ask(nodes, kind, by=by, lasts_s=lasts_s, work=_work(jobs))

    async def _tidied(self, image: str) -> None:
        """Wait a moment for a grab that is over by what its node says, and that is being tidied up here."""
        if any(errand.image == image for errand in self._errands.transfers()):
            return
        with contextlib.suppress(errors.Invalid, TimeoutError):
            async with asyncio.timeout(_TIDY_S):
                await self.trees.free(self.trees.place(self._path(image)))

    def _refuse(self, jobs: Mapping[str, Job]) -> None:
        """Raise for what is not an image, and for what others are at."""
        for image in sorted({job.image for job in jobs.values()}):
            users = [node for node, job in jobs.items() if job.image == image]
            grabs = jobs[users[0]].mode == "grab" and jobs[users[0]].is_written
            condition = self._condition(image)
            is_new = grabs and condition.state in ("missing", "empty")
            if condition.refusal and not is_new:
                raise errors.Invalid(f"{image} cannot be used: {condition.refusal}", hint=condition.remedy)
            place = self.trees.place(self._path(image))
            if place in self.trees.busy:
                raise errors.Conflict(f"{image} is being {self.trees.busy[place]}", hint="try again when that is over")
            self._refuse_others(image, users, grabs)

    def _refuse_others(self, image: str, users: Iterable[str], grabs: bool) -> None:
        asked = set(users)
        for errand in self._errands.transfers():
            if errand.node in asked and errand.state == "accepted":
                raise errors.Conflict(
                    f"{errand.node} is at {errand.kind} of {errand.image} ({errand.text})",
                    hint="device power status shows it; try again when it is over",
                )
            if errand.image != image:
                continue
            is_grab = errand.kind == "grabimage" and errand.write
            if is_grab and errand.node not in asked:
                raise errors.Conflict(f"{image} is being grabbed from {errand.node}", hint="try again when it is over")
            if grabs and not is_grab and errand.write:
                raise errors.Conflict(
                    f"{image} is being copied to {errand.node}", hint="grab it when the update is over"
                )

    async def act(self, name: str, action: ImageAction, *, by: str) -> ImageResult:
        """Do something with the tree of an image. Raises `NotFound`, `Invalid`, `Conflict`."""
        self._head.standing.refuse_writes()
        path, trees = self._path(name), self.trees
        users = [errand for errand in self._errands.transfers() if errand.image in (name, action.source)]
        if users and action.action != "adopt":
            raise errors.Conflict(
                f"{users[0].image} is at {users[0].kind} with {users[0].node}", hint="try again when it is over"
            )
        if action.action == "run":
            if not action.command:
                raise errors.Invalid("there is no command to run", hint="give one: softwareimage chroot IMAGE COMMAND")
            ran = await trees.run(path, action.command, timeout_s=action.timeout, by=by)
            result = ImageResult(text=f"it ended with {ran.code}", code=ran.code, output=ran.output)
        elif action.action == "repository":
            result = await self._bump(path, action, by)
            if not action.write:
                return result
        elif action.action == "adopt":
            result = ImageResult(text=trees.adopt(path, by=by))
        elif action.action == "copy":
            if action.source is None:
                raise errors.Invalid("there is no image to copy from", hint="name it")
            result = ImageResult(text=await trees.copy(self._path(action.source), path))
        else:
            nodes = self.users().get(name, [])
            if nodes:
                raise errors.Conflict(
                    f"{name} is the image of {compress(nodes)}", hint="give these another image first"
                )
            result = ImageResult(text=await trees.remove(path))
        _LOG.info("head.image_changed", image=name, action=action.action, by=by, result=result.text)
        await self._notices.add(name, f"{name}: {action.action} by {by}: {result.text}")
        return result

    async def _bump(self, path: str, action: ImageAction, by: str) -> ImageResult:
        """Bring the repository of Kubernetes packages in a tree to a version, or tell what that would be."""
        mirror = Mirror(action.base, action.key, action.helm)
        bump = await self.trees.bump(path, action.version, is_written=action.write, by=by, mirror=mirror)
        what = f"{bump.path} {'is' if action.write else 'would be'} that of {bump.version}"
        if not bump.path:
            what = f"{bump.version} has no repository for this system: programs are copied one by one"
        return ImageResult(text=what, output=bump.content, commands=list(bump.commands))

    def states(self) -> Sequence[ImageState]:
        """All images."""
        users, transfers = self.users(), self._errands.transfers()
        items = []
        for name in sorted(self._head.tree.mode("softwareimage"), key=natural):
            path, condition = self._path(name), self._condition(name)
            at_it = [errand for errand in transfers if errand.image == name]
            busy = f"{at_it[0].kind} of {compress([errand.node for errand in at_it])}" if at_it else ""
            with contextlib.suppress(errors.Invalid):
                busy = self.trees.busy.get(self.trees.place(path), busy)
            items.append(
                ImageState(
                    name=name,
                    path=path,
                    state=condition.state,
                    nodes=len(users.get(name, ())),
                    busy=busy,
                    generation=condition.marker.generation,
                    changed=condition.marker.changed,
                    origin=condition.marker.origin,
                )
            )
        return items

    def users(self) -> dict[str, list[str]]:
        """The nodes of each image, by its name."""
        tree, users = self._head.tree, dict[str, list[str]]()
        for node, device in tree.mode("device").items():
            if device.type == "PhysicalNode":
                value, _ = inherited(tree, device, PhysicalNode.software_image)
                users.setdefault(str(value), []).append(node)
        return users

    def _path(self, image: str) -> str:
        return str(SoftwareImage.path.value(self._head.tree.get(("softwareimage", image))) or "")

    def remedy(self, image: str) -> str:
        """Why an image is not copied to nodes, and what to do about it; empty for one that is."""
        condition = self._condition(image)
        return f"{condition.refusal}: {condition.remedy}" if condition.refusal else ""

    def _condition(self, image: str) -> Condition:
        return self.trees.condition(self._path(image))

    # Machines

    async def booted(self, node: str) -> None:
        """A machine has started: bring it to its image, as its install mode says. This start clears the mode for
        one start alone."""
        tree = self._head.tree
        device = tree.find("device", node)
        if device is None or device.type != "PhysicalNode":
            return
        once = str(PhysicalNode.next_install_mode.value(device) or "")
        mode = once or install_mode(tree, node)
        if once:
            await self._use_up(node)
        if mode == "NOSYNC":
            await self._notices.add(node, f"{node} has started; its files are left as they are (NOSYNC)")
            return
        try:
            image = image_of(tree, node)
            if self._condition(image).refusal:
                return
            is_data = has_data(tree, node)
            if mode == "FULL" and is_data:
                await self._notices.add(
                    node, f"{node} is a data node: it is not wiped (FULL), and nothing is deleted", "warning"
                )
            is_full = mode == "FULL" and not is_data
            jobs = {node: Job(image, "full" if is_full else "sync", True, not is_data, is_full)}
            self._refuse(jobs)
            await self._errands.ask([node], "imageupdate", by="its start", lasts_s=_LASTS_S, work=_work(jobs))
        except (errors.Invalid, errors.Conflict, errors.NotFound) as err:
            await self._notices.add(node, f"{node} has started, and is not synced: {err}", "warning")

    async def _use_up(self, node: str) -> None:
        session = Session(self._head.tree)
        session.clear(("device", node), "nextinstallmode")
        who = Identity.local(f"{node} (start)")
        await self._head.commit_as(who, session.edits(), "the mode for the next start was used")

    @contextlib.asynccontextmanager
    async def transfer(self, node: str, id_: str) -> AsyncIterator[tuple[ErrandState, Serving]]:
        """The stream of a node's own transfer. Raises `NotFound` for any other, and what `Transfers.serve` raises."""
        self._head.standing.refuse_writes()
        errand = self.asked(node, id_)
        is_written, path = errand.kind == "grabimage" and errand.write, self._path(errand.image)
        async with self.transfers.serve(id_, path, is_written=is_written, node=node, by=errand.by) as serving:
            self.asked(node, id_)
            yield errand, serving

    def asked(self, node: str, id_: str) -> ErrandState:
        """The transfer that a node was asked for, and that is not over. Raises `NotFound`."""
        for errand in self._errands.transfers():
            if errand.id == id_ and errand.node == node:
                return errand
        raise errors.NotFound(f"{node} was not asked for the transfer {id_}", hint="it may be over by now")

    async def fail(self, node: str, id_: str, why: str) -> None:
        """Say that a transfer failed at this end."""
        await self._errands.told(node, [ErrandTold(id=id_, state="failed", text=why[:1000])])


def _work(jobs: Mapping[str, Job]) -> Mapping[str, Mapping[str, object]]:
    return {
        node: {
            "image": job.image,
            "mode": job.mode,
            "write": job.is_written,
            "delete": job.is_deleting,
            "confirmed": job.is_confirmed,
        }
        for node, job in jobs.items()
    }
