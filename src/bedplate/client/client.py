"""The client of a head: one method for each thing the REST API can do.

In: arguments as Python values. Out: Structs of `api.headapi`. Requests, retries and the choice of a head are
`transport`'s. Every write carries a nonce, so that a repeated one is carried out once.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from bedplate.api import headapi
from bedplate.api.desired import Desired
from bedplate.client.following import Event, follow
from bedplate.client.http import Duplex, Streamed
from bedplate.client.transport import ATTEMPTS, Answer, Credential, Request, Transport
from bedplate.core import errors
from bedplate.core.clock import Clock

__all__ = ["Event", "HeadClient", "Wanted"]

T = TypeVar("T")
Objects = list[headapi.Object]
_BASE = "/api/v1"
_JSON = "application/json"
_NONCE = "Idempotency-Key"
_LONG_S = 120.0
_IDLE_S = 900.0
_COMMIT_S = 20.0
"""A head that lost its power says nothing at all. As a commit is carried out once, however often it is asked for, the
other one may be asked soon."""
_LONGEST_NAMES = 4000


class Wanted(NamedTuple):
    """What a node should be, and the ETag to ask with the next time and to report as `digest`."""

    etag: str
    state: Desired


class HeadClient:
    """See the package. Open with `async with`. Several URLs are those of the heads of one site.

    `ca_file` is the authority the head's certificate must come from; `cert_file` and `key_file` are a client
    certificate, which a token makes unnecessary. `discover` says after a failure where heads are by now. `nonce` and
    `rng` are there for tests.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        token: str = "",
        ca_file: str = "",
        cert_file: str = "",
        key_file: str = "",
        timeout_s: float = 30.0,
        attempts: int = ATTEMPTS,
        discover: Callable[[], Iterable[str]] = tuple,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        nonce: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self._transport = Transport(
            [urls] if isinstance(urls, str) else urls,
            Credential(token, ca_file, cert_file, key_file),
            timeout_s=timeout_s,
            attempts=attempts,
            discover=discover,
            clock=clock,
            rng=rng,
        )
        self._nonce = nonce

    async def __aenter__(self) -> HeadClient:
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._transport.__aexit__(*exc)

    @property
    def url(self) -> str:
        """The head that is asked first: the one that answered last, or the active one."""
        return self._transport.url

    # Who and what

    async def whoami(self) -> headapi.Whoami:
        """Who the head takes the caller for; its name and revision."""
        return await self._get("/whoami", headapi.Whoami)

    async def schema(self) -> dict[str, Any]:
        """Modes and entities as data."""
        return await self._get("/schema", dict[str, Any])

    # Objects

    async def tree(self, *, at: int | None = None) -> headapi.TreeDocument:
        """Every object, now or as of a revision."""
        query = {} if at is None else {"at": str(at)}
        return await self._get("/tree", headapi.TreeDocument, query, timeout_s=_LONG_S)

    async def get(self, mode: str, key: str, *, at: int | None = None) -> headapi.Object:
        """One object. Raises `NotFound`."""
        return await self._get(_place(mode, key), headapi.Object, {} if at is None else {"at": str(at)})

    async def list(self, mode: str, *, at: int | None = None, page: int = 1000) -> Sequence[headapi.Object]:
        """All objects of a mode, sorted by key, at one revision; read in pages."""
        objects: Objects = []
        query = {"limit": str(page)} if at is None else {"limit": str(page), "at": str(at)}
        while True:
            part = await self._get(_place(mode), headapi.ObjectPage, query)
            objects.extend(msgspec.convert(item, headapi.Object) for item in part.items)
            if not part.cursor:
                return objects
            query = {"limit": str(page), "continue": part.cursor}

    async def put(
        self,
        mode: str,
        key: str,
        values: Mapping[str, Any],
        *,
        type: str = "",
        extras: Mapping[str, str] | None = None,
        children: Mapping[str, Any] | None = None,
        base: int | None = None,
        replace: bool = False,
        message: str = "",
    ) -> headapi.Object:
        """Write one object whole, as a commit of its own. One that exists is replaced only if it is of the revision
        `base`, or with `replace`, whatever it is, and then it must exist; else `Conflict`. `patch` changes parts."""
        body = headapi.ObjectPut(
            type=type or msgspec.UNSET,
            values=dict(values),
            extras=dict(extras or {}),
            children=dict(children or {}),
            revision=msgspec.UNSET if base is None else base,
        )
        headers = {"If-Match": "*"} if base is None and replace else {}
        return _decode(await self._write("PUT", _place(mode, key), body, message, headers), headapi.Object)

    async def patch(
        self,
        mode: str,
        key: str,
        values: Mapping[str, Any] | None = None,
        *,
        extras: Mapping[str, str | None] | None = None,
        children: Mapping[str, Any] | None = None,
        base: int | None = None,
        message: str = "",
    ) -> headapi.Object:
        """Change parts of one object, as a commit of its own: None takes a value away, what is not named stays."""
        body = headapi.ObjectPatch(
            values=dict(values or {}),
            extras=dict(extras or {}),
            children=dict(children or {}),
            revision=msgspec.UNSET if base is None else base,
        )
        headers = {"Content-Type": "application/merge-patch+json"}
        return _decode(await self._write("PATCH", _place(mode, key), body, message, headers), headapi.Object)

    async def create(
        self,
        mode: str,
        key: str,
        values: Mapping[str, Any] | None = None,
        *,
        type: str = "",
        extras: Mapping[str, str] | None = None,
        children: Mapping[str, Any] | None = None,
        message: str = "",
    ) -> headapi.Object:
        """A new object. Raises `Conflict` where there is one of that name."""
        body = headapi.ObjectNew(
            key=key,
            type=type or msgspec.UNSET,
            values=dict(values or {}),
            extras=dict(extras or {}),
            children=dict(children or {}),
        )
        return _decode(await self._write("POST", _place(mode), body, message), headapi.Object)

    async def delete(self, mode: str, key: str, *, base: int | None = None, message: str = "") -> None:
        """Remove an object. Raises `NotFound`."""
        seen = {} if base is None else {"revision": str(base)}
        await self._write("DELETE", _place(mode, key), None, message, query=seen)

    # Commits and history

    async def commit(
        self,
        edits: Sequence[headapi.Edit],
        message: str = "",
        *,
        force: bool = False,
        undoes: int = 0,
        nonce: str = "",
        history: str | None = None,
        batch: str = "",
        max_failed: int = 0,
        settle_s: float = 10.0,
    ) -> headapi.Revision | None:
        """Write edits as one revision, exactly once; None when they change nothing. With `batch` nodes get it in
        batches. Raises `Stale`, `Invalid`.

        `history` is that of the tree they were made on: `Conflict` if the head was restored from a backup since."""
        body = headapi.CommitRequest(
            edits=list(edits),
            message=message,
            force=force,
            undoes=undoes,
            nonce=nonce or self._nonce(),
            history=history,
            batch=batch,
            max_failed=max_failed,
            settle=round(settle_s),
        )
        return (await self._post("/commits", body, headapi.CommitResult, timeout_s=_COMMIT_S)).revision

    async def rollout(self) -> headapi.RolloutState:
        """How far the present roll-out is, or the last one. Raises `NotFound`."""
        return await self._get("/rollout", headapi.RolloutState)

    async def act_on_rollout(self, action: Literal["pause", "resume", "undo"]) -> headapi.RolloutState:
        """Pause, resume or undo the roll-out. Raises `NotFound`, `Conflict`."""
        body = headapi.RolloutAction(action=action)
        return await self._post("/rollout", body, headapi.RolloutState, is_repeatable=False)

    async def check(
        self, edits: Sequence[headapi.Edit], *, force: bool = False, undoes: int = 0, history: str | None = None
    ) -> Sequence[headapi.Change]:
        """What a commit would change, without doing it. Raises what it would raise."""
        body = headapi.CommitRequest(edits=list(edits), force=force, undoes=undoes, dry_run=True, history=history)
        return (await self._post("/commits", body, headapi.CommitResult)).changes

    async def revisions(
        self, limit: int = 20, *, path: Sequence[str] = (), before: int = 0
    ) -> Sequence[headapi.Revision]:
        """The newest revisions that touched something at or below a path; `before` leaves out later ones."""
        query = {"limit": str(limit)} | _path(path) | ({"continue": str(before)} if before else {})
        return (await self._get("/revisions", headapi.RevisionPage, query)).items

    async def revision(self, number: int) -> headapi.Revision:
        """One revision. Raises `NotFound`."""
        return await self._get(f"/revisions/{number}", headapi.Revision)

    async def progress(self, number: int) -> headapi.RevisionProgress:
        """Which of the nodes that a revision means something to have applied it. Raises `NotFound`."""
        return await self._get(f"/revisions/{number}/progress", headapi.RevisionProgress, timeout_s=_LONG_S)

    async def undo(
        self, number: int, message: str = "", *, force: bool = False, nonce: str = ""
    ) -> headapi.Revision | None:
        """Undo a revision, as a new revision. Raises `Conflict` naming what stands in the way."""
        body = headapi.UndoRequest(message=message, force=force, nonce=nonce or self._nonce())
        return (await self._post(f"/revisions/{number}/undo", body, headapi.CommitResult)).revision

    async def undo_changes(self, number: int, *, force: bool = False) -> Sequence[headapi.Change]:
        """What an undo would change, secrets as stars: a commit of it says `undoes`, so that the head knows which."""
        body = headapi.UndoRequest(force=force, dry_run=True)
        return (await self._post(f"/revisions/{number}/undo", body, headapi.CommitResult)).changes

    async def audit(self, path: Sequence[str] = (), limit: int = 100) -> Sequence[headapi.AuditEntry]:
        """Who changed which parameter when, newest first."""
        return (await self._get("/audit", headapi.AuditPage, {"limit": str(limit)} | _path(path))).items

    async def export(self, *, at: int | None = None, with_secrets: bool = False) -> str:
        """The tree as YAML."""
        query = ({} if at is None else {"at": str(at)}) | ({"secrets": "true"} if with_secrets else {})
        answer = await self._transport.ask(Request("GET", f"{_BASE}/export", query, timeout_s=_LONG_S))
        return answer.body.decode()

    async def import_(
        self, document: str, *, prune: bool = False, message: str = "", dry_run: bool = False, nonce: str = ""
    ) -> headapi.CommitResult:
        """Commit a YAML document; `prune` removes what it does not name."""
        query = _said(prune=prune, dryRun=dry_run) | ({"message": message} if message else {})
        headers = {"Content-Type": "application/yaml", _NONCE: nonce or self._nonce()}
        request = Request("POST", f"{_BASE}/import", query, headers, document.encode(), timeout_s=_LONG_S)
        return _decode(await self._transport.ask(request), headapi.CommitResult)

    # Plans and nodes

    async def plan(self, edits: Sequence[headapi.Edit], *, force: bool = False) -> headapi.PlanResult:
        """What a commit of edits would change on which node."""
        return await self._post("/plan", headapi.PlanRequest(edits=list(edits), force=force), headapi.PlanResult)

    async def plan_between(self, start: int, end: int | None = None) -> headapi.PlanResult:
        """What changed on which node between two revisions (to the present one without `end`)."""
        query = {"from": str(start)} | ({} if end is None else {"to": str(end)})
        return await self._get("/plan", headapi.PlanResult, query, timeout_s=_LONG_S)

    async def explain(self, node: str, about: str = "", *, at: int | None = None) -> headapi.ExplainResult:
        """What holds on a node, and why."""
        query = ({"about": about} if about else {}) | ({} if at is None else {"at": str(at)})
        return await self._get(f"/nodes/{_quoted(node)}/explain", headapi.ExplainResult, query)

    async def pending(self, node: str) -> headapi.PlanResult:
        """What a node has still to change; `revision` is the one that it has applied."""
        return await self._get(f"/nodes/{_quoted(node)}/pending", headapi.PlanResult, timeout_s=_LONG_S)

    async def desired(self, node: str, etag: str = "", *, at: int | None = None, wait_s: float = 0.0) -> Wanted | None:
        """What a node should be; None when that is what `etag` stands for. `wait_s` waits that long for another."""
        query = {} if at is None else {"at": str(at)}
        if wait_s > 0:
            query["wait"] = str(round(wait_s))
        headers = {"If-None-Match": f'"{etag}"'} if etag else {}
        path = f"{_BASE}/nodes/{_quoted(node)}/desired"
        answer = await self._transport.ask(Request("GET", path, query, headers, timeout_s=wait_s + _LONG_S))
        if answer.status == 304:
            return None
        return Wanted(answer.etag, _decode(answer, Desired))

    async def report(
        self,
        node: str,
        *,
        applied: int = 0,
        digest: str = "",
        actions: Sequence[headapi.Action] = (),
        failures: Sequence[headapi.Failure] = (),
        results: Sequence[headapi.Result] = (),
        tried: int = 0,
        errands: Sequence[headapi.ErrandTold] = (),
        booted: bool = False,
        version: str = "",
        checks: Sequence[str] | None = None,
        run: str = "",
        system: headapi.System | None = None,
    ) -> int:
        """Tell what a node did and measured; the head's present revision."""
        body = headapi.ReportRequest(
            applied=applied,
            tried=tried,
            digest=digest,
            actions=list(actions),
            failures=list(failures),
            results=list(results),
            errands=list(errands),
            booted=booted,
            version=version,
            checks=None if checks is None else list(checks),
            run=run,
            system=system,
        )
        # Told twice, a notice would be there twice: a report that may have arrived is not repeated.
        return (
            await self._post(f"/nodes/{_quoted(node)}/report", body, headapi.ReportResult, is_repeatable=False)
        ).revision

    async def nodes(self, names: Sequence[str] = ()) -> Sequence[headapi.NodeState]:
        """What is known of nodes, or of all of them."""
        listed = ",".join(names)
        query = {"names": listed} if 0 < len(listed) <= _LONGEST_NAMES else {}
        nodes = (await self._get("/nodes", headapi.NodeList, query)).items
        selected = set(names)
        return [node for node in nodes if not selected or node.node in selected]

    async def health(self, node: str, check: str = "") -> headapi.NodeHealth:
        """A node with the history of its checks."""
        return await self._get(f"/nodes/{_quoted(node)}/health", headapi.NodeHealth, {"check": check} if check else {})

    # What happens

    async def notices(self, limit: int = 100, *, host: str = "", before: int = 0) -> Sequence[headapi.Notice]:
        """The latest notices, newest first."""
        query = {"limit": str(limit)} | ({"host": host} if host else {}) | ({"before": str(before)} if before else {})
        return (await self._get("/notices", headapi.NoticePage, query)).items

    def events(
        self,
        after: str | int | None = None,
        *,
        types: Sequence[str] = (),
        on_link: Callable[[bool, str], None] | None = None,
    ) -> AsyncIterator[Event]:
        """Revisions, notices and results as they come, from now on or after an event's id (or a revision's number).

        It ends only by an error that another attempt cannot change. A lost connection is made again, to another head
        if need be, and goes on after the last event. `on_link(is_up, words)` is called on losses and recoveries.
        """
        return follow(self._transport, after, types, on_link)

    # Tokens

    async def tokens(self) -> Sequence[headapi.Token]:
        """Tokens without their texts."""
        return (await self._get("/tokens", headapi.TokenList)).items

    async def create_token(
        self,
        subject: str,
        name: str = "",
        *,
        kind: str = "user",
        days: int = 0,
        uses: int = 1,
        lasts_s: float = 0.0,
        replace: bool = False,
    ) -> headapi.TokenMade:
        """A new token for a user, a node or an enrolment; its text is returned only once."""
        asked = {"subject": subject, "name": name, "kind": kind, "days": days, "uses": uses, "replace": replace}
        body = msgspec.convert({**asked, "lasts": round(lasts_s)}, headapi.TokenRequest)
        return await self._post("/tokens", body, headapi.TokenMade, is_repeatable=False)

    async def revoke_token(self, id_: str) -> None:
        """Revoke a token. Raises `NotFound`."""
        await self._transport.ask(Request("DELETE", f"{_BASE}/tokens/{_quoted(id_)}", is_repeatable=False))

    # Enrolments

    async def enrol(self, csr: str, facts: headapi.Facts | None = None) -> headapi.EnrolmentAnswer:
        """Ask for the certificate of a node, with a token for that. The same request has the same answer."""
        body = headapi.EnrolmentRequest(csr=csr, facts=facts or headapi.Facts())
        return await self._post("/enrolments", body, headapi.EnrolmentAnswer)

    async def enrolment(self, id_: str, *, wait_s: float = 0.0) -> headapi.EnrolmentAnswer:
        """What became of an enrolment; `wait_s` waits that long for a decision."""
        query = {"wait": str(round(wait_s))} if wait_s > 0 else {}
        path = f"/enrolments/{_quoted(id_)}"
        return await self._get(path, headapi.EnrolmentAnswer, query, timeout_s=wait_s + _LONG_S)

    async def enrolments(self) -> Sequence[headapi.Enrolment]:
        """Machines that asked to be nodes, oldest first."""
        return (await self._get("/enrolments", headapi.EnrolmentList)).items

    async def decide_enrolment(self, name: str, *, approve: bool, text: str = "") -> headapi.Enrolment:
        """Approve or deny an enrolment that waits, by its id or its node. Raises `NotFound`, `Conflict`."""
        body = headapi.EnrolmentDecision(approve=approve, text=text)
        return await self._post(f"/enrolments/{_quoted(name)}", body, headapi.Enrolment, is_repeatable=False)

    async def renew_certificate(self, node: str, csr: str) -> headapi.CertificateAnswer:
        """The next certificate of a node, asked for with the present one. Raises `Conflict` when it is too early."""
        body = headapi.CertificateRequest(csr=csr)
        return await self._post(f"/nodes/{_quoted(node)}/certificate", body, headapi.CertificateAnswer)

    # Errands

    async def ask_errand(
        self,
        nodes: Sequence[str],
        kind: headapi.ErrandKind,
        *,
        lasts_s: float = 600.0,
        transfer: headapi.Transfer | None = None,
        kubeadm: headapi.Kubeadm | None = None,
        pull: headapi.Pull | None = None,
        care: headapi.Care | None = None,
    ) -> Sequence[headapi.ErrandState]:
        """Ask nodes to reboot, to reset, to switch off, to transfer their image, to run kubeadm, to pull container
        images, or to take care of a cluster, once."""
        body = headapi.ErrandRequest(
            nodes=list(nodes),
            kind=kind,
            lasts=round(lasts_s),
            transfer=transfer,
            kubeadm=kubeadm,
            pull=pull,
            care=care,
        )
        return (await self._post("/errands", body, headapi.ErrandList)).items

    async def errands(self, names: Sequence[str] = ()) -> Sequence[headapi.ErrandState]:
        """What nodes were asked to do once, and what became of it, oldest first."""
        listed = ",".join(names)
        query = {"names": listed} if 0 < len(listed) <= _LONGEST_NAMES else {}
        selected = set(names)
        items = (await self._get("/errands", headapi.ErrandList, query)).items
        return [item for item in items if not selected or item.node in selected]

    # Software images

    async def images(self) -> headapi.ImageList:
        """Software images and their trees on the head."""
        return await self._get("/images", headapi.ImageList)

    async def act_on_image(self, name: str, action: headapi.ImageAction) -> headapi.ImageResult:
        """Adopt, copy or remove the tree of an image, run a command in it, or change where its packages come from."""
        path = f"/images/{_quoted(name)}"
        timeout_s = action.timeout + _LONG_S
        return await self._post(path, action, headapi.ImageResult, is_repeatable=False, timeout_s=timeout_s)

    def transfer_image(
        self, node: str, id_: str, *, wait_s: float, idle_s: float = _IDLE_S
    ) -> AbstractAsyncContextManager[Duplex]:
        """The stream of a transfer that a node was asked for; it begins once the node has its turn."""
        path = f"{_BASE}/nodes/{_quoted(node)}/images/{_quoted(id_)}"
        return self._transport.duplex(Request("POST", path, timeout_s=wait_s, is_repeatable=False), idle_s=idle_s)

    def transfer_snapshot(
        self, node: str, id_: str, *, wait_s: float, idle_s: float = _IDLE_S
    ) -> AbstractAsyncContextManager[Duplex]:
        """The stream of a snapshot of etcd that a node was asked to give or to fetch."""
        path = f"{_BASE}/nodes/{_quoted(node)}/snapshots/{_quoted(id_)}"
        return self._transport.duplex(Request("POST", path, timeout_s=wait_s, is_repeatable=False), idle_s=idle_s)

    def agent_archive(self, node: str, digest: str) -> AbstractAsyncContextManager[Streamed]:
        """The archive of the agent that a node is to run, by its SHA-256."""
        return self._transport.stream(
            Request("GET", f"{_BASE}/nodes/{_quoted(node)}/agents/{digest}", timeout_s=_LONG_S)
        )

    # Turns

    async def take_turn(
        self, node: str, group: str, *, wait_s: float = 0.0, lasts_s: float = 300.0
    ) -> headapi.TurnAnswer:
        """Ask for the turn of a group, for at most `lasts_s`; `wait_s` waits that long for it."""
        body = headapi.TurnRequest(group=group, wait=round(wait_s), lasts=max(1, round(lasts_s)))
        path = f"/nodes/{_quoted(node)}/turns"
        return await self._post(path, body, headapi.TurnAnswer, timeout_s=wait_s + _LONG_S)

    async def end_turn(self, node: str, group: str, *, failed: bool = False, text: str = "") -> headapi.TurnState:
        """Give a turn back."""
        body = headapi.TurnEnd(failed=failed, text=text)
        return await self._post(f"/nodes/{_quoted(node)}/turns/{_quoted(group)}", body, headapi.TurnState)

    async def turns(self) -> Sequence[headapi.TurnState]:
        """Who has a turn, who waits, and whose failure stops the others."""
        return (await self._get("/turns", headapi.TurnList)).items

    async def release_turn(self, group: str) -> headapi.TurnState:
        """Let nodes go on that wait because another one failed. Raises `NotFound`."""
        path = f"{_BASE}/turns/{_quoted(group)}/release"
        return _decode(await self._transport.ask(Request("POST", path)), headapi.TurnState)

    # Kubernetes clusters

    async def cluster(self, name: str) -> headapi.ClusterState:
        """How a Kubernetes cluster stands: its checks and its applications. Raises `NotFound`."""
        return await self._get(f"/clusters/{_quoted(name)}", headapi.ClusterState)

    async def cluster_health(self, name: str, check: str = "") -> headapi.ClusterHealth:
        """A Kubernetes cluster with the history of its checks, or of one. Raises `NotFound`."""
        query = {"check": check} if check else {}
        return await self._get(f"/clusters/{_quoted(name)}/health", headapi.ClusterHealth, query)

    async def people(self, name: str) -> headapi.PeopleState:
        """Who may do what in a Kubernetes cluster. Raises `NotFound`."""
        return await self._get(f"/clusters/{_quoted(name)}/people", headapi.PeopleState)

    # Certificates

    async def certificates(self) -> Sequence[headapi.Certificate]:
        """The certificates of the site, of enrolled nodes, and those that were used; those that end first are first."""
        return (await self._get("/certificates", headapi.CertificateList)).items

    async def revocations(self) -> Sequence[headapi.Revocation]:
        """Client certificates that no longer count."""
        return (await self._get("/revocations", headapi.RevocationList)).items

    async def revoke_certificates(
        self, subject: str = "", *, kind: str = "user", fingerprint: str = ""
    ) -> headapi.Revocation:
        """Revoke all certificates that a user or a node has so far, or the one with a fingerprint."""
        sent = {"subject": subject or None, "kind": kind, "fingerprint": fingerprint}
        return await self._post("/revocations", msgspec.convert(sent, headapi.RevocationRequest), headapi.Revocation)

    async def authority(self) -> headapi.AuthorityState:
        """The authority that clients have to trust."""
        return await self._get("/authority", headapi.AuthorityState)

    async def rotate_authority(self, *, finish: bool = False) -> headapi.AuthorityState:
        """Begin to replace the authority, or finish that."""
        body = headapi.RotationRequest(finish=finish)
        return await self._post("/authority", body, headapi.AuthorityState, is_repeatable=False)

    async def join(self, name: str, proof: str = "") -> headapi.JoinAnswer:
        """The site's keys, for a new head node with a one-time token; with a `proof` it may be asked for again."""
        request = headapi.JoinRequest(name=name, proof=proof)
        return await self._post("/join", request, headapi.JoinAnswer, is_repeatable=bool(proof))

    # Inside

    async def _get(
        self, path: str, kind: type[T], query: Mapping[str, str] | None = None, *, timeout_s: float = 0.0
    ) -> T:
        return _decode(await self._transport.ask(Request("GET", _BASE + path, query or {}, timeout_s=timeout_s)), kind)

    async def _post(
        self,
        path: str,
        body: msgspec.Struct,
        kind: type[T],
        *,
        is_repeatable: bool = True,
        timeout_s: float = _LONG_S,
    ) -> T:
        request = Request(
            "POST",
            _BASE + path,
            headers={"Content-Type": _JSON},
            body=msgspec.json.encode(body),
            is_repeatable=is_repeatable,
            timeout_s=timeout_s,
        )
        return _decode(await self._transport.ask(request), kind)

    async def _write(
        self,
        method: str,
        path: str,
        body: Any,
        message: str,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Answer:
        sent = {_NONCE: self._nonce(), **(headers or {})}
        if body is not None:
            sent.setdefault("Content-Type", _JSON)
        query = {**(query or {}), **({"message": message} if message else {})}
        data = None if body is None else msgspec.json.encode(body)
        return await self._transport.ask(Request(method, _BASE + path, query, sent, data))


def _decode(answer: Answer, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
        raise errors.Unavailable(
            f"the head's response cannot be read: {wrong}", hint="does the head run another version?"
        ) from wrong


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _place(mode: str, key: str | None = None) -> str:
    return f"/objects/{_quoted(mode)}" + ("" if key is None else f"/{_quoted(key)}")


def _path(path: Sequence[str]) -> dict[str, str]:
    return {"path": "/".join(map(_quoted, path))} if path else {}


def _said(**flags: bool) -> dict[str, str]:
    return {name: "true" for name, value in flags.items() if value}
