"""Labs: make one, look at it, use it, take it down.

In: options. Out: a real Kubernetes on this machine, or a head with bare nodes, described by a `state.Record`. The
order of a start is in `up`; each step is in the module named there. A start that fails, is interrupted or killed leaves
nothing behind (see `teardown`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from bedplate.core import errors, extras
from bedplate.core.tasks import TaskGroup
from bedplate.lab import (
    binaries,
    building,
    catalog,
    cgroups,
    debian,
    images,
    kubeadm_plane,
    managed,
    network,
    packages,
    process_plane,
    state,
    teardown,
    versions,
)
from bedplate.lab.ground import Ground
from bedplate.lab.nodes import INSIDE, Node, Waiter
from bedplate.lab.plan import Options, Plan, make_plan

__all__ = ["check_machine", "down", "gather", "keep_logs", "load_image", "up"]

Report = Callable[[str], None]

# What a lab calls on the machine, and the Debian package that has it.
_TOOLS = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "mount": "mount",
    "sysctl": "procps",
    "nft": "nftables",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "busybox": "busybox-static",
}


# What a managed lab calls; what its roles need is looked for when packages are laid out.
_MANAGED_TOOLS = ("ip", "nsenter", "unshare", "mount", "sysctl")


def check_machine(*, is_managed: bool = False) -> None:
    """Raise unless this machine and user can run a lab."""
    if os.geteuid() != 0:
        raise errors.Denied("a lab needs root, for namespaces, mounts and control groups: run it with sudo")
    tools = {tool: _TOOLS[tool] for tool in _MANAGED_TOOLS} if is_managed else _TOOLS
    missing = {package for tool, package in tools.items() if shutil.which(tool) is None}
    if not is_managed and not any(
        Path(folder, "bridge").exists() for folder in ("/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni")
    ):
        missing.add("containernetworking-plugins")
    if missing:
        packages = " ".join(sorted(missing))
        raise errors.NotFound(f"Debian packages are missing: {packages}", hint=f"apt-get install {packages}")


async def up(
    options: Options, programs: dict[str, Path], report: Report, shelf: state.Shelf | None = None
) -> state.Record:
    """Make a lab of the programs `gather` found; return when its nodes are Ready and its DNS answers, in a managed one
    when its agents have reported."""
    check_machine(is_managed=options.managed)
    shelf = shelf or state.Shelf()
    # The claim on the network lasts until its routes exist, where every later start finds them.
    with contextlib.ExitStack() as claim:
        claim.enter_context(shelf.lock(options.name, wait_s=5))
        claim.enter_context(teardown.Watchdog(shelf.root.parent, options.name))
        _clear_place(options.name, shelf, report)
        record = await _claim(options, shelf, claim)
        folder = shelf.folder(options.name)
        try:
            await _build(record.plan, folder, programs, options.timeout_s, report)
            record = state.Record("ready", record.pid, record.plan)
            shelf.write(record)
        except BaseException as err:
            with _deaf():
                kept = keep_logs(folder, shelf) if isinstance(err, Exception) else None
                teardown.remove(options.name, folder)
            if kept is not None:
                # An error of ours is told once; anything else is a bug, whose trace matters.
                raise _retell(err, folder, kept) from (None if isinstance(err, errors.BedplateError) else err)
            raise
    return record


def down(name: str, shelf: state.Shelf | None = None) -> bool:
    """Take a lab down, also one being made by another command. False when there was none."""
    shelf = shelf or state.Shelf()
    folder = shelf.folder(name)
    if not teardown.has_remains(name, folder):
        return False
    if os.geteuid() != 0:
        raise errors.Denied(f"taking lab {name!r} down needs root: run it with sudo")
    with shelf.lock(name, wait_s=60, interrupts=True), _deaf():
        teardown.remove(name, folder)
    return True


def gather(options: Options, report: Report) -> dict[str, Path]:
    """The programs and images a lab needs, built where they are missing: minutes the first time, then a moment."""
    make_plan(options, [])
    if options.managed:
        extras.require("bedplate lab up --managed", "head")
        programs = binaries.ensure(packages.NEEDS, progress=report)
        names = (*packages.TAKEN, *managed.IMAGED)
        if options.kubernetes != versions.DEFAULT:
            # Whoever names a version waits for it.
            programs |= binaries.ensure(names, options.kubernetes, progress=report, only_exact=True)
        taken = {name: binaries.cached(name, options.kubernetes) for name in (*names, *managed.ADDONS)}
        taken[debian.DOCKERD] = debian.cached()
        programs |= {name: path for name, path in taken.items() if path is not None}
        managed.make_images(programs, binaries.cache_folder(), options.kubernetes, report)
        if options.next_kubernetes:
            later = binaries.ensure(names, options.next_kubernetes, progress=report, only_exact=True)
            managed.make_images(programs | later, binaries.cache_folder(), options.next_kubernetes, report)
            version = versions.resolve(options.next_kubernetes)
            programs |= {packages.versioned(name, version): later[name] for name in packages.TAKEN}
        return programs
    is_kubeadm = options.control_plane == "kubeadm"
    needs = kubeadm_plane.NEEDS if is_kubeadm else process_plane.NEEDS
    programs = binaries.ensure(needs, options.kubernetes, progress=report, only_exact=is_kubeadm)
    programs |= binaries.ensure(["coredns"], progress=report)
    if options.containerd == "built":
        programs |= binaries.ensure(binaries.CONTAINERD_PROGRAMS, progress=report, only_exact=True)
    cache = binaries.cache_folder()
    programs["tool"] = catalog.build_tool(building.Builder(cache, dict(os.environ), report), cache)
    store = images.Store(cache / "images")
    recipes = catalog.base_recipes(programs["tool"], programs["coredns"])
    if is_kubeadm:
        recipes += catalog.kubeadm_recipes(
            kubeadm_plane.image_names(programs, options.kubernetes), programs, programs["tool"]
        )
    for recipe in recipes:
        store.make(recipe)
    return programs


async def load_image(name: str, archive: Path, shelf: state.Shelf, report: Report) -> list[str]:
    """Bring the images of an archive (docker save, OCI) into a running lab; their full names.

    They are then in every node's containerd (where `imagePullPolicy: Never` finds them) and in the lab's registry
    (where `Always` does).
    """
    record = shelf.need(name)
    record.plan.check_has_kubernetes()
    folder = shelf.folder(name)
    names = await asyncio.to_thread(images.Store(folder / "images").load_archive, archive)
    if not names:
        raise errors.Invalid(f"{archive} holds no named image", hint="give it a tag before saving it")
    tree = cgroups.Tree(name)
    passing = folder / f"load-{archive.name}"
    await asyncio.to_thread(shutil.copyfile, archive, passing)
    try:
        async with TaskGroup() as tasks:
            for each in record.plan.nodes:
                report(f"loading into {each.name}")
                node = Node(each.name, folder, tree)
                command = ["ctr", "-n", "k8s.io", "images", "import", str(INSIDE / passing.name)]
                tasks.create_task(node.run(command, f"load {archive.name} into {each.name}", timeout_s=300))
    except BaseExceptionGroup as group:
        raise _first(group) from None
    finally:
        passing.unlink(missing_ok=True)
    return names


def _clear_place(name: str, shelf: state.Shelf, report: Report) -> None:
    folder = shelf.folder(name)
    if not teardown.has_remains(name, folder):
        return
    record = shelf.read(name)
    if record is not None and record.phase == "ready" and teardown.is_alive(name):
        raise errors.AlreadyExists(
            f"lab {name!r} is up", hint=f"bedplate lab down --name {name}, or choose another name"
        )
    report(f"removing what an earlier start of lab {name!r} left")
    teardown.remove(name, folder)


async def _claim(options: Options, shelf: state.Shelf, stack: contextlib.ExitStack) -> state.Record:
    others = [record.plan for name in shelf.names() if (record := shelf.read(name)) is not None]
    taken = [range_ for plan in others for range_ in plan.ranges]
    claimed = set()
    while True:
        plan = make_plan(options, taken + await network.in_use())
        for range_ in plan.ranges:
            if range_ not in claimed and (claim := network.claim(range_)) is not None:
                stack.enter_context(claim)
                claimed.add(range_)
        # A lab that claimed a network until now made its routes before releasing it, so they are read once more.
        in_use = await network.in_use()
        lost = [each for each in plan.ranges if each not in claimed or any(each.overlaps(route) for route in in_use)]
        if not lost:
            break
        taken += lost
    record = state.Record("starting", os.getpid(), plan)
    shelf.write(record)
    return record


async def _build(plan: Plan, folder: Path, programs: dict[str, Path], timeout_s: float, report: Report) -> None:
    waiter = Waiter(timeout_s)
    cache = binaries.cache_folder() / "images"
    ground = Ground(plan, folder, programs, waiter, report, image_cache=cache)
    try:
        report(f"making {len(plan.nodes)} nodes in {plan.subnet}")
        if plan.is_managed:
            await managed.start(ground)
            return
        await ground.make_ground()
        await (kubeadm_plane if plan.control_plane == "kubeadm" else process_plane).start(ground)
        if not plan.has_network:
            return
        report("waiting for nodes")
        await ground.until_nodes_ready()
        report("waiting for cluster DNS")
        await ground.until_dns_answers()
    except BaseExceptionGroup as group:
        raise _first(group) from None


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner


def keep_logs(folder: Path, shelf: state.Shelf) -> Path | None:
    """Copy the logs of a lab to where they outlive it; that folder, or None for a lab without."""
    logs = folder / "logs"
    if not logs.is_dir():
        return None
    kept = shelf.root.parent / "failed" / folder.name
    shutil.rmtree(kept, ignore_errors=True)
    kept.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(logs, kept)
    return kept


def _retell(err: BaseException, folder: Path, kept: Path) -> errors.BedplateError:
    text = str(err).replace(str(folder / "logs"), str(kept)) or type(err).__name__
    kind = type(err) if isinstance(err, errors.BedplateError) else errors.Terminal
    return kind(f"lab {folder.name!r} could not be created and was removed: {text}", hint=f"all its logs are in {kept}")


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """Finish what must be finished: a second Ctrl-C waits. Only the main thread hears signals at all."""
    is_main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if is_main else ()
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
