"""Members of an etcd cluster: joined before they start, settled before the next one acts, removed before they go.

In: steps for the service `etcd`; every other service goes to the back end behind it. The head's two files say who the
members are (`head/render/etcd.py`). Out: the same service, and the cluster's members in line with the head's list:

    start     without data: a new cluster when there is none yet, else this member is added (a lost one of the same
              name is removed first, others that the head does not list as well), and it starts as an existing one
    reload    members that the head does not list any more are removed from the cluster
    retire    this member leaves the cluster, then it is stopped and its data removed

After a start or a restart the cluster must be healthy again, as far as enough members are there to make it so: members
take turns, and the next one waits for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from bedplate.agent.files import Root
from bedplate.agent.services import Services, unit
from bedplate.agent.services.passing import Passing
from bedplate.core.logging import get_logger

__all__ = ["ETCD", "LEFT", "Ask", "Etcd", "EtcdProblem", "Member", "Settings", "ask", "settings_of"]

_LOG = get_logger("agent.etcd")
ETCD = "etcd"
LEFT = ("member.before-restore", "restore")
"""Beside the data of a member: the one before the last restore, and one that a restore prepares."""
_CONF = "/cm/local/apps/etcd/current/etc/cm-etcd.conf"
_MEMBERS = "/cm/local/apps/etcd/current/etc/cm-etcd-members.conf"
_JOIN = "/run/bedplate-agent/etcd-join.env"
_DROP_IN = "etcd.service.d/90-bedplate-join.conf"
_QUESTION_S = 2.0
_PAUSE_S = 0.25
_LEAVE_S = 20.0
_SETTLE_S = 60.0
_ENDS = 3
"""So often may etcd end after a start: one that cannot read its data ends every time."""


class EtcdProblem(Exception):
    """A member did not answer, or not what was hoped for."""


class Member(msgspec.Struct, frozen=True, rename={"id": "ID", "peers": "peerURLs", "clients": "clientURLs"}):
    """A member as etcd tells it. One that was added and never started has no name, one of a new cluster that never
    started has no client URLs."""

    id: str
    name: str = ""
    peers: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()


class _Members(msgspec.Struct, frozen=True):
    members: tuple[Member, ...] = ()


class Settings(NamedTuple):
    """What the head wrote for this member. `peers` are all members' peer URLs, `clients` where each answers."""

    name: str
    data: str
    peers: Mapping[str, tuple[str, ...]]
    clients: Mapping[str, str]
    ca: str = ""
    cert: str = ""
    key: str = ""
    token: str = ""

    @property
    def others(self) -> list[str]:
        """Where the other members answer."""
        return [url for name, url in self.clients.items() if name != self.name]

    def is_listed(self, member: Member) -> bool:
        known = {url for urls in self.peers.values() for url in urls}
        return member.name in self.peers or bool(known & set(member.peers))

    def is_own(self, member: Member) -> bool:
        return member.name == self.name or bool(set(self.peers.get(self.name, ())) & set(member.peers))


Ask = Callable[[Settings, str, Mapping[str, Any] | None], Awaitable[bytes]]
"""Settings, a URL, what is posted there (None: nothing is) to the answer. Raises `EtcdProblem`."""


async def ask(settings: Settings, url: str, body: Mapping[str, Any] | None) -> bytes:
    """Ask a member over HTTP, with this member's certificate."""
    return await asyncio.to_thread(_asked, settings, url, body)


def _asked(settings: Settings, url: str, body: Mapping[str, Any] | None) -> bytes:
    import http.client
    import ssl

    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    try:
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=settings.ca or None)
            if settings.cert:
                context.load_cert_chain(settings.cert, settings.key or None)
            link: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=_QUESTION_S, context=context
            )
        else:
            link = http.client.HTTPConnection(host, port, timeout=_QUESTION_S)
        try:
            data = None if body is None else msgspec.json.encode(body)
            link.request("GET" if data is None else "POST", parts.path, body=data)
            answer = link.getresponse()
            content = answer.read(1 << 20)
        finally:
            link.close()
    except (OSError, http.client.HTTPException) as err:
        raise EtcdProblem(f"{url}: {err}") from err
    if answer.status != 200:
        raise EtcdProblem(f"{url}: {_told(content) or f'status {answer.status}'}")
    return content


def _told(content: bytes) -> str:
    try:
        told = msgspec.json.decode(content)
    except msgspec.DecodeError:
        return content[:200].decode(errors="replace").strip()
    return str(told.get("message") or told.get("error") or told.get("reason") or "") if isinstance(told, dict) else ""


class Etcd(Passing):
    """The services of a node, with a member of an etcd cluster among them. `memory` is a file that says that this
    member was part of a cluster: without its data it must not begin another one."""

    def __init__(
        self, services: Services, root: Root, memory: str, *, ask: Ask = ask, pause_s: float = _PAUSE_S
    ) -> None:
        super().__init__(services)
        self._root = root
        self._memory = memory
        self._ask = ask
        self._pause_s = pause_s

    # The interface

    async def start(self, name: str, timeout_s: float = 90.0) -> str | None:
        return await self._begin(super().start, name, timeout_s)

    async def restart(self, name: str, timeout_s: float = 90.0) -> str | None:
        return await self._begin(super().restart, name, timeout_s)

    async def retire(self, name: str, timeout_s: float = 90.0) -> str | None:
        settings = self._settings() if name == ETCD else None
        if settings is None:
            return await super().retire(name, timeout_s)
        await self._leave(settings)
        why = await super().retire(name, timeout_s)
        if not why:
            self._forget(settings)
        return why

    async def reload(self, name: str, timeout_s: float = 90.0) -> str | None:
        settings = self._settings() if name == ETCD else None
        if settings is None:
            return await super().reload(name, timeout_s)
        try:
            await self._again(lambda: self._line_up(settings), min(timeout_s, _SETTLE_S))
        except EtcdProblem as err:
            return f"the members of the cluster cannot be brought in line with the head's list: {err}"
        return None

    # Starting

    async def _begin(
        self, act: Callable[[str, float], Awaitable[str | None]], name: str, timeout_s: float
    ) -> str | None:
        settings = self._settings() if name == ETCD else None
        if settings is None:
            return await act(name, timeout_s)
        try:
            await self._join(settings, timeout_s)
        except EtcdProblem as err:
            return str(err)
        return await act(name, timeout_s) or await self._settled(settings, min(timeout_s, _SETTLE_S))

    async def _join(self, settings: Settings, timeout_s: float) -> None:
        """See to it that the cluster knows this member, or that there is none yet."""
        has_data = self._has_data(settings)
        try:
            present = await self._listed(settings, settings.others)
        except EtcdProblem as err:
            if not has_data:
                await self._begin_anew(settings, err)
            return
        own = next((member for member in present if settings.is_own(member)), None)
        if has_data and own is not None:
            return
        # It was removed while it was away, or lost its log: what it has is useless.
        self._wipe(settings)
        if own is not None and own.name and not own.clients:
            # A new cluster has begun without us, and waits for us as one of its first members.
            return
        try:
            await self._again(lambda: self._enter(settings), timeout_s)
        except EtcdProblem as err:
            raise EtcdProblem(f"this member cannot be added to its cluster: {err}") from err

    async def _enter(self, settings: Settings) -> None:
        """Become a member that has not started yet, in place of one of the same name that has."""
        present = await self._listed(settings, settings.others)
        await self._remove_unlisted(settings, present)
        own = next((member for member in present if settings.is_own(member)), None)
        if own is not None and own.clients:
            await self._remove(settings, own)
            own = None
        # With this member the cluster may have too few that run to agree on anything until it has started.
        present = await self._add(settings) if own is None else present
        await self._write_join(settings, [member for member in present if settings.is_listed(member)])

    async def _again(self, work: Callable[[], Awaitable[None]], timeout_s: float) -> None:
        """Do it until the cluster lets us: for some seconds after a member has come or gone it changes no other one."""
        end_s = time.monotonic() + timeout_s
        while True:
            try:
                return await work()
            except EtcdProblem:
                if time.monotonic() > end_s:
                    raise
                await asyncio.sleep(self._pause_s)

    async def _begin_anew(self, settings: Settings, why: EtcdProblem) -> None:
        """Without data, and without a cluster that could decide: only the first members of a new one may start."""
        if not settings.others:
            return
        for url in settings.others:
            try:
                present = await self._list(settings, url, is_agreed=False)
            except EtcdProblem:
                continue
            own = next((member for member in present if settings.is_own(member) and not member.clients), None)
            if own is not None:
                if not own.name:
                    # It was added, and the agent ended before it could start.
                    await self._write_join(settings, present)
                return
            raise EtcdProblem(
                f"this member has no data, and its cluster has too few members to add it: {why};"
                " start the other members first"
            )
        if self._was_member():
            raise EtcdProblem(
                "the data of this member is gone, and no other member answers; start the other members first, or remove"
                f" {self._memory} to begin a new cluster"
            )

    async def _settled(self, settings: Settings, timeout_s: float) -> str | None:
        """Wait until the cluster is healthy, unless too few members are there for that."""
        own = settings.clients.get(settings.name, "")
        end_s = time.monotonic() + timeout_s
        why = ""
        while own:
            try:
                health = msgspec.json.decode(await self._ask(settings, f"{own}/health", None))
                if isinstance(health, dict) and str(health.get("health")) == "true":
                    self._remember()
                    return None
                why = str(health)
            except (EtcdProblem, msgspec.DecodeError) as err:
                why = str(err)
                status = (await self._services.status([ETCD])).get(ETCD)
                if status is not None and status.restarts >= _ENDS:
                    return f"etcd ends again and again ({status.why or why}); see its log on this node"
            there = 1 + await self._count(settings)
            if 2 * there <= len(settings.clients):
                return None
            if time.monotonic() > end_s:
                return f"etcd runs, but its cluster is not healthy: {why}; see its log and those of the other members"
            await asyncio.sleep(self._pause_s)
        return None

    async def _count(self, settings: Settings) -> int:
        """How many of the others are there, whatever they say."""

        async def is_there(url: str) -> bool:
            try:
                await self._list(settings, url, is_agreed=False)
            except EtcdProblem:
                return False
            return True

        return sum(await asyncio.gather(*map(is_there, settings.others)))

    # Leaving

    async def _leave(self, settings: Settings) -> None:
        """Let the others go on without this member. It goes whatever they say: what fails is told in the log."""
        end_s = time.monotonic() + _LEAVE_S
        while True:
            try:
                present = await self._listed(settings, list(settings.clients.values()))
                own = next((member for member in present if settings.is_own(member)), None)
                if own is None or len(present) == 1:
                    return
                await self._remove(settings, own)
                return
            except EtcdProblem as err:
                status = (await self._services.status([ETCD])).get(ETCD)
                if time.monotonic() > end_s or status is None or not status.is_up:
                    _LOG.warning(
                        "agent.etcd.not_removed",
                        member=settings.name,
                        error=str(err),
                        hint="remove the member with etcdctl member remove on another one",
                    )
                    return
                await asyncio.sleep(self._pause_s)

    def _forget(self, settings: Settings) -> None:
        for name in LEFT if settings.data else ():
            shutil.rmtree(os.path.join(self._root.place(settings.data), name), ignore_errors=True)
        self._wipe(settings)
        _unlink(self._memory)
        _unlink(self._root.place(_JOIN))
        for folder in unit.FOLDERS:
            # Agents before put it into systemd's folder on every machine.
            place = self._root.place(f"{folder}/{_DROP_IN}")
            if os.path.exists(place):
                _unlink(place)
                with contextlib.suppress(OSError):
                    os.rmdir(os.path.dirname(place))

    # What etcd is asked

    async def _listed(self, settings: Settings, urls: Iterable[str]) -> tuple[Member, ...]:
        """The members, as a majority of them agrees. Raises `EtcdProblem` where there is none."""
        last = EtcdProblem("there is no other member")
        for url in urls:
            try:
                return await self._list(settings, url, is_agreed=True)
            except EtcdProblem as err:
                last = err
        raise last

    async def _list(self, settings: Settings, url: str, *, is_agreed: bool) -> tuple[Member, ...]:
        answer = await self._ask(settings, f"{url}/v3/cluster/member/list", {"linearizable": is_agreed})
        return _decoded(answer)

    async def _line_up(self, settings: Settings) -> None:
        """Remove members that the head does not list."""
        await self._remove_unlisted(settings, await self._listed(settings, list(settings.clients.values())))

    async def _remove_unlisted(self, settings: Settings, present: Iterable[Member]) -> None:
        for member in present:
            if not settings.is_listed(member):
                await self._remove(settings, member)

    async def _remove(self, settings: Settings, member: Member) -> None:
        _LOG.info("agent.etcd.remove", member=member.name or member.id)
        await self._any(settings, "member/remove", {"ID": member.id}, "member not found")

    async def _add(self, settings: Settings) -> tuple[Member, ...]:
        """Add this member; all members, it among them."""
        _LOG.info("agent.etcd.add", member=settings.name)
        peers = list(settings.peers.get(settings.name, ()))
        answer = await self._any(settings, "member/add", {"peerURLs": peers}, "Peer URLs already exists")
        return _decoded(answer) if answer else await self._listed(settings, settings.others)

    async def _any(self, settings: Settings, what: str, body: Mapping[str, Any], done: str) -> bytes:
        """Ask the first of the others that does it, then this member itself; `done` is the refusal of what was done."""
        own = settings.clients.get(settings.name)
        last = EtcdProblem("no member answers")
        for url in [*settings.others, *([own] if own else [])]:
            try:
                return await self._ask(settings, f"{url}/v3/cluster/{what}", body)
            except EtcdProblem as err:
                if done in str(err):
                    return b""
                last = err
        raise last

    # Files

    def _settings(self) -> Settings | None:
        return settings_of(self._root)

    def _has_data(self, settings: Settings) -> bool:
        """Whether there is a log: etcd makes the rest before it knows whether it may start."""
        try:
            return bool(settings.data) and bool(os.listdir(os.path.join(self._root.place(settings.data), "member/wal")))
        except OSError:
            return False

    def _wipe(self, settings: Settings) -> None:
        """Remove the data of this member, and its folder when nothing else is in it."""
        if not settings.data:
            return
        place = self._root.place(settings.data)
        shutil.rmtree(os.path.join(place, "member"), ignore_errors=True)
        with contextlib.suppress(OSError):
            os.rmdir(place)

    def _was_member(self) -> bool:
        return os.path.exists(self._memory)

    def _remember(self) -> None:
        if not self._was_member():
            with open(self._memory, "w") as stream:
                stream.write("this node was a member of an etcd cluster\n")

    async def _write_join(self, settings: Settings, present: Sequence[Member]) -> None:
        """Tell etcd, which reads it once, that the cluster exists, and of whom it consists."""
        names = {url: name for name, urls in settings.peers.items() for url in urls}
        cluster = ",".join(f"{member.name or names.get(url, '')}={url}" for member in present for url in member.peers)
        lines = f"ETCD_INITIAL_CLUSTER_STATE=existing\nETCD_INITIAL_CLUSTER={cluster}\n"
        self._put(_JOIN, lines)
        self._put(f"{unit.transient(self._root)}/{_DROP_IN}", f"[Service]\nEnvironmentFile=-{_JOIN}\n")
        await self._services.reload_units()

    def _put(self, path: str, content: str) -> None:
        place = self._root.place(path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "w") as stream:
            stream.write(content)


def settings_of(root: Root) -> Settings | None:
    """What the head wrote for the member of a node; None while the files are not there."""
    texts = []
    for path in (_CONF, _MEMBERS):
        present = root.read(path)
        if present.kind != "file":
            return None
        texts.append(present.content.decode(errors="replace"))
    given = {**unit.environment_of(texts[0]), **unit.environment_of(texts[1])}
    peers: dict[str, tuple[str, ...]] = {}
    for name, url in _pairs(given.get("ETCD_INITIAL_CLUSTER", "")):
        peers[name] = (*peers.get(name, ()), url)

    def place(key: str) -> str:
        path = given.get(key, "")
        return root.place(path) if path else ""

    return Settings(
        given.get("ETCD_NAME", ""),
        given.get("ETCD_DATA_DIR", ""),
        peers,
        dict(_pairs(given.get("CM_ETCD_CLIENTS", ""))),
        place("ETCD_TRUSTED_CA_FILE"),
        place("ETCD_CERT_FILE"),
        place("ETCD_KEY_FILE"),
        given.get("ETCD_INITIAL_CLUSTER_TOKEN", ""),
    )


def _decoded(answer: bytes) -> tuple[Member, ...]:
    try:
        return msgspec.json.decode(answer, type=_Members).members
    except msgspec.DecodeError as err:
        raise EtcdProblem(f"it does not answer as etcd does: {err}") from err


def _pairs(text: str) -> list[tuple[str, str]]:
    """`a=1,b=2` as pairs."""
    parts = [part.partition("=") for part in text.split(",") if "=" in part]
    return [(name, value) for name, _, value in parts]


def _unlink(place: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(place)
