"""etcd with several members, with TLS, killed and started again while a store writes and watches."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import pathlib
import signal
from collections.abc import Iterator

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests import programs
from tests.store import etcd_cluster
from tests.store.watching import take, take_until
from tests.waiting import until

from bedplate.core import errors
from bedplate.store.etcd import EtcdOptions, EtcdStore, watch
from bedplate.store.interface import NoQuorum, OutcomeUnknown, Put

pytestmark = pytest.mark.external


@pytest.fixture
def single(tmp_path: pathlib.Path) -> Iterator[etcd_cluster.Cluster]:
    yield from started(tmp_path / "etcd", 1)


@pytest.fixture
def three(tmp_path: pathlib.Path) -> Iterator[etcd_cluster.Cluster]:
    yield from started(tmp_path / "etcd", 3)


def started(folder: pathlib.Path, members: int, tls: etcd_cluster.Tls | None = None) -> Iterator[etcd_cluster.Cluster]:
    with programs.etcd(folder, members=members, tls=tls) as cluster:
        yield cluster


async def write_on(store: EtcdStore, outcomes: dict[str, object], stop: asyncio.Event, writer: int) -> None:
    number = 0
    while not stop.is_set():
        key = f"/{writer}/{number}"
        try:
            outcomes[key] = await store.commit([Put(f"{key}/{part}", b"", 0) for part in "ab"])
        except errors.Unavailable as error:
            outcomes[key] = error
            await asyncio.sleep(0.01)
        number += 1


async def check(store: EtcdStore, outcomes: dict[str, object]) -> int:
    """Acknowledged commits are there once; refused ones are not; those in doubt are whole or absent."""
    kept = {entry.key: entry for entry in (await store.list("/")).entries}
    acknowledged = 0
    for key, outcome in outcomes.items():
        parts = [kept.get(f"{key}/{part}") for part in "ab"]
        assert (parts[0] is None) == (parts[1] is None), f"half of {key}"
        if isinstance(outcome, int):
            acknowledged += 1
            assert [entry and entry.revision for entry in parts] == [outcome, outcome]
        elif not isinstance(outcome, OutcomeUnknown):
            assert parts == [None, None], f"{key} was refused with {outcome!r} but is there"
    return acknowledged


async def reaches(outcomes: dict[str, object], more: int) -> None:
    """Wait until so many further commits are acknowledged."""
    target = more + sum(isinstance(outcome, int) for outcome in outcomes.values())
    await until(lambda: sum(isinstance(outcome, int) for outcome in outcomes.values()) >= target)


async def run_through(cluster: etcd_cluster.Cluster, disturb: object) -> None:
    outcomes: dict[str, object] = {}
    stop = asyncio.Event()
    async with EtcdStore(EtcdOptions(cluster.endpoints, timeout_s=20)) as store:
        start = await store.revision()
        seen: list[int] = []

        async def read() -> None:
            async for batch in store.watch("/", after=start):
                seen.extend(event.revision for event in batch)

        reading = asyncio.create_task(read())
        writing = [asyncio.create_task(write_on(store, outcomes, stop, writer)) for writer in range(6)]
        try:
            await reaches(outcomes, 50)
            await disturb(outcomes)  # type: ignore[operator]
            await reaches(outcomes, 50)
        finally:
            stop.set()
            await asyncio.gather(*writing)
        assert await check(store, outcomes) >= 100
        last = await store.commit([Put("/last", b"")])
        await until(lambda: seen and seen[-1] >= last)
        reading.cancel()
        assert seen == [revision for revision in range(start + 1, last) for _ in "ab"] + [last]


async def test_member_killed_and_started_while_writing(single: etcd_cluster.Cluster) -> None:
    async def disturb(outcomes: dict[str, object]) -> None:
        for _ in range(3):
            await asyncio.to_thread(single.kill, 0)
            await asyncio.sleep(0.2)
            await asyncio.to_thread(single.start, 0)
            await reaches(outcomes, 20)

    await run_through(single, disturb)


async def test_each_of_three_members_killed_in_turn_while_writing(three: etcd_cluster.Cluster) -> None:
    async def disturb(outcomes: dict[str, object]) -> None:
        for member in range(3):
            await asyncio.to_thread(three.kill, member)
            await reaches(outcomes, 20)
            await asyncio.to_thread(three.start, member)
            await reaches(outcomes, 20)

    await run_through(three, disturb)


async def test_without_a_majority_nothing_is_written_until_it_is_back(three: etcd_cluster.Cluster) -> None:
    async with EtcdStore(EtcdOptions(three.endpoints, timeout_s=5)) as store:
        start = await store.commit([Put("/a", b"1")])
        for member in (0, 1):
            await asyncio.to_thread(three.kill, member)
        with pytest.raises(errors.Unavailable):
            await store.commit([Put("/a", b"2", start)])
        with pytest.raises(NoQuorum, match="1 of 3 members answer"):
            await store.get("/a")
        with pytest.raises(NoQuorum, match="1 of 3 members answer"):
            await store.check()
        for member in (0, 1):
            await asyncio.to_thread(three._launch, member)
        for member in (0, 1):
            await asyncio.to_thread(three.wait, member)
        async with asyncio.timeout(120):
            while True:
                try:
                    assert await store.get("/a") is not None
                    break
                except errors.Unavailable:
                    continue
        await store.commit([Put("/b", b"")])


async def test_member_that_hangs_leaves_the_outcome_unknown_and_others_serve(
    three: etcd_cluster.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_SILENCE_S", 1.0)
    monkeypatch.setattr(watch, "_ANSWER_S", 1.0)
    async with EtcdStore(EtcdOptions(three.endpoints, timeout_s=6)) as store:
        await store.commit([Put("/a", b"1")])
        now = await store.revision()
        reading = asyncio.create_task(take_until(store.watch("/", after=now), now + 1))
        await asyncio.sleep(0.2)
        # The member in use, which is not the first one if that was slow to answer before.
        used = store._connection._current % len(three.endpoints)
        three.signal(used, signal.SIGSTOP)
        try:
            with pytest.raises(OutcomeUnknown):
                await store.commit([Put("/a", b"2")])
            async with asyncio.timeout(120):
                while True:
                    try:
                        entry = await store.get("/a")
                        break
                    except errors.Unavailable:
                        continue
            assert entry is not None
            while True:
                try:
                    await store.commit([Put("/b", b"")])
                    break
                except errors.Unavailable:
                    continue
            assert (await reading)[0].key in ("/a", "/b")
        finally:
            three.signal(used, signal.SIGCONT)


async def test_mutual_tls(tmp_path: pathlib.Path) -> None:
    tls = make_certificates(tmp_path)
    for cluster in started(tmp_path / "etcd", 1, tls):
        options = EtcdOptions(
            cluster.endpoints,
            ca_file=str(tls.ca),
            cert_file=str(tls.client_cert),
            key_file=str(tls.client_key),
            timeout_s=20,
        )
        async with EtcdStore(options) as store:
            start = await store.revision()
            await store.commit([Put("/a", b"1")])
            assert len(await take(store.watch("/", after=start), 1)) == 1
        other = make_certificates(tmp_path / "other")
        for ca, cert, key in (
            (other.ca, tls.client_cert, tls.client_key),
            (tls.ca, other.client_cert, other.client_key),
            (tls.ca, None, None),
        ):
            refused = EtcdOptions(
                cluster.endpoints,
                ca_file=str(ca),
                cert_file=str(cert or ""),
                key_file=str(key or ""),
                timeout_s=2,
            )
            with pytest.raises(errors.Unavailable):
                async with EtcdStore(refused):
                    pass


async def test_missing_certificate_file_is_named() -> None:
    with pytest.raises(errors.Invalid, match=r"nowhere\.crt"):
        async with EtcdStore(EtcdOptions(["https://127.0.0.1:1"], ca_file="nowhere.crt")):
            pass


def make_certificates(folder: pathlib.Path) -> etcd_cluster.Tls:
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.datetime.now(datetime.UTC)

    def make(name: str, issuer: tuple[x509.Name, ec.EllipticCurvePrivateKey] | None) -> ec.EllipticCurvePrivateKey:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        addresses = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer[0] if issuer else subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
            .add_extension(addresses, critical=False)
            .sign(issuer[1] if issuer else key, hashes.SHA256())
        )
        (folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        (folder / f"{name}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return key

    authority = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca")]), make("ca", None))
    make("server", authority)
    make("client", authority)
    return etcd_cluster.Tls(
        *(folder / name for name in ("ca.crt", "server.crt", "server.key", "client.crt", "client.key"))
    )
