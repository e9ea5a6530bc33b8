"""What only the etcd backend promises: resuming watches, shared revisions, `sync`, limits, quota, sign-in."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import subprocess
import uuid
from collections.abc import AsyncIterator, Iterator

import grpc  # type: ignore[import-untyped]
import pytest
from tests import programs
from tests.store import etcd_cluster
from tests.store.proxy import Relay
from tests.store.watching import take, take_until
from tests.waiting import DEADLINE_S

from bedplate.core import errors
from bedplate.store.etcd import EtcdOptions, EtcdStore
from bedplate.store.etcd.translate import Verdict, judge
from bedplate.store.etcdpb import bedplate_etcd_pb2 as pb
from bedplate.store.interface import Compacted, Event, OutcomeUnknown, Put, StoreFull


def options(cluster: etcd_cluster.Cluster, prefix: str = "", timeout_s: float = 30.0) -> EtcdOptions:
    return EtcdOptions(cluster.endpoints, prefix=prefix or f"/{uuid.uuid4().hex}", timeout_s=timeout_s)


@contextlib.asynccontextmanager
async def relayed(etcd: etcd_cluster.Cluster) -> AsyncIterator[tuple[Relay, EtcdStore, EtcdStore]]:
    """A store behind a relay, and one of the same prefix that talks to etcd directly."""
    prefix = f"/{uuid.uuid4().hex}"
    async with Relay(etcd.endpoints[0]) as relay:
        behind = EtcdStore(EtcdOptions([relay.endpoint], prefix=prefix, timeout_s=30))
        async with behind, EtcdStore(options(etcd, prefix)) as direct:
            yield relay, behind, direct


async def test_watch_resumes_after_cuts_without_gap_or_repetition(etcd: etcd_cluster.Cluster) -> None:
    async with relayed(etcd) as (relay, behind, direct):
        start = await direct.revision()
        watch = behind.watch("/", after=start)
        seen: list[Event] = []

        async def write() -> None:
            for n in range(300):
                await direct.commit([Put(f"/{n % 5}/a", str(n).encode()), Put(f"/{n % 5}/b", str(n).encode())])
                if n % 30 == 29:
                    relay.cut()
                    await asyncio.sleep(0.02)

        writing = asyncio.create_task(write())
        seen = await take_until(watch, start + 300)
        await writing
        assert relay.cuts == 10
        assert [event.revision for event in seen] == [start + 1 + n // 2 for n in range(600)]


async def test_watch_cut_off_past_compaction_gets_compacted(etcd: etcd_cluster.Cluster) -> None:
    async with relayed(etcd) as (relay, behind, direct):
        watch = behind.watch("/", after=await direct.revision())
        await direct.commit([Put("/a", b"")])
        await take(watch, 1)
        relay.closed = True
        relay.cut()
        for _ in range(10):
            revision = await direct.commit([Put("/a", b"")])
        await direct.compact(revision)
        relay.closed = False
        with pytest.raises(Compacted):
            await take(watch, 1)


async def test_quiet_watch_that_knows_its_progress_survives_compaction(etcd: etcd_cluster.Cluster) -> None:
    async with relayed(etcd) as (relay, behind, direct), EtcdStore(options(etcd)) as other:
        watch = behind.watch("/", after=await direct.revision())
        reading = asyncio.create_task(take(watch, 1))
        for _ in range(20):
            revision = await other.commit([Put("/noise", b"")])
        async with asyncio.timeout(DEADLINE_S):
            assert await behind.sync() >= revision
        await direct.compact(revision)
        relay.cut()
        await direct.commit([Put("/a", b"")])
        assert [event.key for event in await reading] == ["/a"]


async def test_sync_returns_after_readers_have_dealt_with_all_before_it(etcd: etcd_cluster.Cluster) -> None:
    async with EtcdStore(options(etcd)) as store:
        other = EtcdStore(options(etcd, store._translator._prefix.decode()))
        memory: dict[str, bytes] = {}

        async def read() -> None:
            async for batch in store.watch("/", after=start):
                await asyncio.sleep(0)
                memory.update({event.key: event.entry.value for event in batch if event.entry})

        async with other:
            start = await store.revision()
            reading = asyncio.create_task(read())
            await asyncio.sleep(0)
            for n in range(50):
                revision = await other.commit([Put("/a", str(n).encode())])
                async with asyncio.timeout(DEADLINE_S):
                    assert await store.sync() >= revision
                assert memory["/a"] == str(n).encode()
            reading.cancel()


async def test_stores_of_two_prefixes_share_revisions_but_not_keys(etcd: etcd_cluster.Cluster) -> None:
    async with EtcdStore(options(etcd)) as one, EtcdStore(options(etcd)) as two:
        start = await one.revision()
        first = await one.commit([Put("/a", b"1")])
        await two.commit([Put("/a", b"2")])
        third = await one.commit([Put("/a", b"3", first)])
        assert (first, third) == (start + 1, start + 3)
        assert [event.revision for event in await take(one.watch("/", after=start), 2)] == [first, third]
        assert [entry.value for entry in (await two.list("/")).entries] == [b"2"]


async def test_long_list_is_one_revision_though_read_in_parts(etcd: etcd_cluster.Cluster) -> None:
    async with EtcdStore(options(etcd)) as store:
        for part in range(45):
            await store.commit([Put(f"/{part * 100 + n:05}", b"") for n in range(100)])
        page = await store.list("/")
        assert len(page.entries) == 4500 and not page.more and page.remaining == 0
        page = await store.list("/", limit=4100)
        assert len(page.entries) == 4100 and page.more and page.remaining == 400


async def test_history_larger_than_one_message_comes_whole(etcd: etcd_cluster.Cluster) -> None:
    async with EtcdStore(options(etcd)) as store:
        start = await store.revision()
        for n in range(12):
            await store.commit([Put(f"/{n}/{part}", b"x" * 130_000) for part in range(7)])
        watch = store.watch("/", after=start)
        seen = 0
        while seen < 84:
            batch = await take(watch, 1)
            assert len(batch) % 7 == 0
            seen += len(batch)


async def test_request_above_the_limits_is_invalid(etcd: etcd_cluster.Cluster) -> None:
    async with EtcdStore(options(etcd)) as store:
        with pytest.raises(errors.Invalid):
            await store.commit([Put("/a", b"x" * 4_000_000)])
        with pytest.raises(errors.Invalid):
            await store.commit([Put(f"/{n}", b"") for n in range(200)])
        assert (await store.list("/")).entries == []


async def test_nothing_listens_is_unavailable() -> None:
    with pytest.raises(errors.Unavailable, match=r"127\.0\.0\.1:1"):
        async with EtcdStore(EtcdOptions(["http://127.0.0.1:1"], timeout_s=1)):
            pass


async def test_dead_endpoint_is_passed_over(etcd: etcd_cluster.Cluster) -> None:
    async with EtcdStore(EtcdOptions(["http://127.0.0.1:1", *etcd.endpoints], prefix=f"/{uuid.uuid4().hex}")) as store:
        start = await store.commit([Put("/a", b"")])
        assert await store.revision() == start


async def test_write_whose_answer_is_lost_has_an_unknown_outcome_and_is_not_repeated(
    etcd: etcd_cluster.Cluster,
) -> None:
    """The relay dies while commits fly: each of them was done once, or not at all, and those in doubt say so."""
    async with relayed(etcd) as (relay, behind, direct):
        outcomes: dict[str, object] = {}

        async def write(writer: int) -> None:
            for n in range(40):
                key = f"/{writer}/{n}"
                try:
                    outcomes[key] = await behind.commit([Put(key, b"", 0)])
                except errors.Unavailable as error:
                    outcomes[key] = error

        async def cut() -> None:
            for _ in range(8):
                await asyncio.sleep(0.02)
                relay.cut()

        await asyncio.gather(cut(), *(write(writer) for writer in range(10)))
        kept = {entry.key: entry for entry in (await direct.list("/")).entries}
        assert len(outcomes) == 400
        for key, outcome in outcomes.items():
            if isinstance(outcome, int):
                assert kept[key].revision == kept[key].created == outcome
            elif not isinstance(outcome, OutcomeUnknown):
                assert key not in kept


@pytest.mark.external
async def test_used_up_quota_is_store_full_and_reads_go_on(tmp_path: pathlib.Path) -> None:
    with cluster_or_skip(tmp_path / "etcd", "--quota-backend-bytes=4194304") as cluster:
        async with EtcdStore(options(cluster)) as store:
            acked = 0
            with pytest.raises((StoreFull, OutcomeUnknown)) as refusal:
                while True:
                    await store.commit([Put(f"/{acked:04}", b"x" * 100_000)])
                    acked += 1
            assert acked > 5
            in_doubt = isinstance(refusal.value, OutcomeUnknown)
            assert len((await store.list("/")).entries) == acked + in_doubt
            with pytest.raises(StoreFull):
                await store.commit([Put("/later", b"x" * 100_000, 0)])
            assert await store.get("/later") is None
            await store.compact(await store.revision())
            etcdctl(cluster, "defrag")
            etcdctl(cluster, "alarm", "disarm")


@pytest.mark.parametrize(
    ("put", "stored", "outcome"),
    [
        (Put("/a", b"ours", 0), b"ours", OutcomeUnknown),
        (Put("/a", b"ours", 0), None, StoreFull),
        (Put("/a", b"ours", 0), b"written after ours", OutcomeUnknown),
        (Put("/a", b"ours", 7), b"before", StoreFull),
        (Put("/a", b"same", 7), b"same", StoreFull),
        (Put("/a", b"ours"), b"ours", OutcomeUnknown),
        (Put("/a", b"ours"), b"before", StoreFull),
    ],
)
async def test_no_space_answered_for_a_commit_that_is_stored_is_an_unknown_outcome(
    put: Put, stored: bytes | None, outcome: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = EtcdStore(EtcdOptions(["127.0.0.1:1"], prefix="/x"))
    pairs = [] if stored is None else [pb.KeyValue(key=b"/x/a", value=stored, mod_revision=7)]

    async def ask(method: str, *_: object, **__: object) -> object:
        if method.endswith("/Txn"):
            raise StoreFull("etcd has exhausted its quota", hint="compact it")
        return pb.RangeResponse(kvs=pairs)

    monkeypatch.setattr(store._connection, "ask", ask)
    with pytest.raises(outcome) as raised:
        await store.commit([put])
    assert type(raised.value) is outcome


@pytest.mark.external
async def test_signs_in_with_a_password(tmp_path: pathlib.Path) -> None:
    with cluster_or_skip(tmp_path / "etcd", "--auth-token-ttl=1") as cluster:
        for words in ("user add root:secret", "user grant-role root root", "auth enable"):
            etcdctl(cluster, *words.split())
        good = EtcdOptions(cluster.endpoints, user="root", password="secret", timeout_s=30)
        async with EtcdStore(good) as store:
            first = await store.commit([Put("/a", b"1")])
            await asyncio.sleep(3)  # longer than the token lives when unused; the server's clock cannot be moved
            assert await store.commit([Put("/a", b"2", first)]) == first + 1
            assert len(await take(store.watch("/", after=first), 1)) == 1
        for user, password in (("root", "wrong"), ("", "")):
            bad = EtcdOptions(cluster.endpoints, user=user, password=password, timeout_s=30)
            with pytest.raises(errors.Denied):
                async with EtcdStore(bad):
                    pass


@contextlib.contextmanager
def cluster_or_skip(folder: pathlib.Path, *arguments: str) -> Iterator[etcd_cluster.Cluster]:
    with programs.etcd(folder, arguments=("--unsafe-no-fsync", *arguments)) as cluster:
        yield cluster


def etcdctl(cluster: etcd_cluster.Cluster, *words: str) -> None:
    program = etcd_cluster.program().with_name("etcdctl")
    if not program.exists():
        pytest.skip("no etcdctl beside etcd")
    subprocess.run(
        [program, f"--endpoints={cluster.endpoints[0]}", *words], check=True, capture_output=True, timeout=60
    )


@pytest.mark.parametrize(
    ("code", "text", "read", "write"),
    [
        ("UNAVAILABLE", "etcdserver: no leader", "ELSEWHERE", "ELSEWHERE"),
        ("UNAVAILABLE", "etcdserver: leader changed", "ELSEWHERE", "UNKNOWN"),
        ("UNAVAILABLE", "etcdserver: request timed out", "ELSEWHERE", "UNKNOWN"),
        ("UNAVAILABLE", "etcdserver: server stopped", "ELSEWHERE", "UNKNOWN"),
        ("UNAVAILABLE", "Socket closed", "ELSEWHERE", "UNKNOWN"),
        ("UNAVAILABLE", "failed to connect to all addresses; last error: refused", "ELSEWHERE", "ELSEWHERE"),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", "ELSEWHERE", "UNKNOWN"),
        ("CANCELLED", "etcdserver: request canceled", "ELSEWHERE", "UNKNOWN"),
        ("UNKNOWN", "something new", "ELSEWHERE", "UNKNOWN"),
        ("INTERNAL", "stream reset", "ELSEWHERE", "UNKNOWN"),
        ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded", "FULL", "FULL"),
        ("RESOURCE_EXHAUSTED", "etcdserver: too many requests", "BUSY", "BUSY"),
        ("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted", "COMPACTED", "COMPACTED"),
        ("OUT_OF_RANGE", "etcdserver: mvcc: required revision is a future revision", "FUTURE", "FUTURE"),
        ("INVALID_ARGUMENT", "etcdserver: request is too large", "TOO_LARGE", "TOO_LARGE"),
        ("INVALID_ARGUMENT", "etcdserver: authentication failed, invalid user ID or password", "DENIED", "DENIED"),
        ("UNAUTHENTICATED", "etcdserver: invalid auth token", "SIGN_IN", "SIGN_IN"),
        ("PERMISSION_DENIED", "etcdserver: permission denied", "DENIED", "DENIED"),
        ("DATA_LOSS", "etcdserver: corrupt cluster", "BROKEN", "BROKEN"),
    ],
)
def test_answers_are_judged(code: str, text: str, read: str, write: str) -> None:
    status = grpc.StatusCode[code]
    assert judge(status, text, writes=False) is Verdict[read]
    assert judge(status, text, writes=True) is Verdict[write]
