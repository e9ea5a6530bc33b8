"""The way back into a site: credentials in the folder that work, offline, on SQLite and on an etcd."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from tests.apps import headprograms as heads
from tests.head.committing import commit_session
from tests.head.folder.serving import serving
from tests.store import etcd_cluster

from bedplate.core import errors
from bedplate.core.clock import ManualClock, SystemClock
from bedplate.head.access import USERS, Access
from bedplate.head.entities import SCHEMA
from bedplate.head.entities.site import User
from bedplate.head.folder import administration, administrator, backups, creation, pki, transfer
from bedplate.head.folder.datafolder import Etcd, Folder, Settings, open_head
from bedplate.head.folder.sitekeys import SiteKeys
from bedplate.head.objects import Obj
from bedplate.head.policy import Identity
from bedplate.head.service import Alone, Head, NotActive
from bedplate.head.tokens import Tokens
from bedplate.store.interface import Store
from bedplate.store.open import open_store


@pytest.fixture
async def folder(tmp_path: Path) -> Folder:
    return await creation.make(tmp_path / "site", name="basecm10", nodes=0)


async def by_credentials(folder: Folder, store: Store, head: Head) -> tuple[Identity | None, Identity | None]:
    """Who the folder's token and its certificate are for."""
    tokens = Tokens(store)
    await tokens.open()
    access = Access(lambda: head.tree, tokens)
    presented = pki.presented(folder.file("admin.crt"))
    assert presented is not None and presented.ends > SystemClock().now()
    return access.by_token(folder.admin_token()), access.by_certificate(presented.subject, presented.der)


async def require_access(folder: Folder, name: str = "admin") -> None:
    async with opened(folder) as (store, head):
        for identity in await by_credentials(folder, store, head):
            assert identity is not None and (identity.name, identity.role) == (name, "admin")


@asynccontextmanager
async def opened(folder: Folder) -> AsyncIterator[tuple[Store, Head]]:
    options = folder.store_options()
    async with open_store(options) as store, Head(store, SCHEMA, folder.vault()) as head:
        yield store, head


async def lock_out(folder: Folder) -> None:
    """As an earlier version allowed it, or somebody who edited the store: the rule is not asked."""
    async with opened(folder) as (_, head):
        session = head.session()
        session.set(("user", "admin"), "enabled", "no")
        session.set(("user", "admin"), "role", "auditor")
        session.set(("user", "admin"), "certificate", "0" * 64)
        from bedplate.head import policy

        keep, policy.keep_access = policy.keep_access, lambda *_: None  # type: ignore[assignment]
        try:
            await commit_session(head, session)
        finally:
            policy.keep_access = keep


async def test_an_administrator_is_recovered_offline_on_sqlite(folder: Folder) -> None:
    await lock_out(folder)
    async with opened(folder) as (store, head):
        assert await by_credentials(folder, store, head) == (None, None)
    recovered = await administration.recover_admin(folder, "admin")
    assert recovered == ("admin", 3)
    await require_access(folder)
    async with open_head(folder.path) as there:
        changed = {change.path[2] for change in (await there.head.read(3)).changes}
        assert changed == {"role", "enabled", "certificate"}
        assert (await there.head.read(3)).author == "bedplate head recover-admin"


async def test_an_administrator_is_recovered_offline_on_etcd(folder: Folder, etcd: etcd_cluster.Cluster) -> None:
    there = Etcd(tuple(f"http://{address}" if "//" not in address else address for address in etcd.endpoints))
    there = Etcd(there.endpoints, prefix=f"/{uuid.uuid4().hex}")
    own = transfer.Site.of(folder, "basecm10")
    async with open_store(folder.options_of(there)) as store:
        folder.remember(Settings("basecm10", etcd=there))
        with pytest.raises(errors.Invalid, match="contains no tree"):
            await administration.recover_admin(folder, "admin")
        await transfer.claim(store, own, folder.file("head.db"), lambda: None, SystemClock())
    await lock_out(folder)
    # A running daemon shares the lock.
    with folder.lock(is_shared=True):
        assert await administration.recover_admin(folder, "admin") == ("admin", 3)
    await require_access(folder)


async def test_another_user_can_be_made_the_administrator(folder: Folder) -> None:
    assert await administration.recover_admin(folder, "anna") == ("anna", 2)
    await require_access(folder, "anna")
    assert await administration.recover_admin(folder, "anna") == ("anna", 0), "who is one needs no revision"
    with pytest.raises(errors.Invalid):
        await administration.recover_admin(folder, "../anna")
    await require_access(folder, "anna")


async def test_a_folder_in_use_is_left_alone(folder: Folder) -> None:
    async with open_head(folder.path):
        with pytest.raises(errors.Unavailable, match="in use") as refused:
            await administration.recover_admin(folder, "admin")
        assert "stop the daemon" in refused.value.hint


def test_recover_admin_as_a_program(tmp_path: Path) -> None:
    data = heads.init(tmp_path / "site", "--nodes", "0")
    before = (data / "admin.token").read_text()
    said = heads.bedplate("head", "recover-admin", "--data", data).stdout
    assert "admin is an enabled administrator, as before" in said and "admin.token" in said
    assert (data / "admin.token").read_text() != before
    said = heads.bedplate("head", "recover-admin", "anna", "--data", data).stdout
    assert "anna is an enabled administrator, since revision 2" in said


# After a restore


async def restored(folder: Folder, tmp_path: Path, *, with_keys: bool = True) -> tuple[Folder, backups.Content]:
    await backups.backup(folder, tmp_path / "b.tar.gz", with_keys=with_keys)
    content = await backups.restore(tmp_path / "b.tar.gz", tmp_path / "new", keys=None if with_keys else folder.path)
    return Folder.find(tmp_path / "new"), content


async def test_credentials_that_work_are_kept_by_a_restore(folder: Folder, tmp_path: Path) -> None:
    new, content = await restored(folder, tmp_path)
    assert content.recovered is None
    assert new.admin_token() == folder.admin_token()
    await require_access(new)


async def test_a_restore_after_everybody_was_locked_out_lets_an_administrator_in(
    folder: Folder, tmp_path: Path
) -> None:
    await lock_out(folder)
    new, content = await restored(folder, tmp_path)
    assert content.recovered == ("admin", 3) and content.revision == 2
    await require_access(new)


async def test_a_restore_without_keys_writes_credentials_that_work(folder: Folder, tmp_path: Path) -> None:
    new, content = await restored(folder, tmp_path, with_keys=False)
    assert content.recovered == ("admin", 0)
    await require_access(new)


async def test_a_restore_gives_the_folder_to_an_administrator_who_is_enabled(folder: Folder, tmp_path: Path) -> None:
    async with open_head(folder.path) as there:
        session = there.head.session()
        session.put(("user", "anna"), Obj("User", "anna", {"role": "admin"}))
        session.set(("user", "admin"), "enabled", "no")
        await commit_session(there.head, session)
    new, content = await restored(folder, tmp_path)
    assert content.recovered == ("anna", 0), "who was disabled on purpose stays disabled"
    await require_access(new, "anna")


async def test_a_restore_replaces_a_revoked_token_and_a_certificate_at_its_end(folder: Folder, tmp_path: Path) -> None:
    for token in await administration.list_tokens(folder):
        await administration.revoke_token(folder, token.id)
    old = SystemClock().now() - timedelta(days=400)
    pki.Authority.load(folder.path).client("admin", USERS, old).write(folder.path, "admin")
    new, content = await restored(folder, tmp_path)
    assert content.recovered == ("admin", 0)
    await require_access(new)


def test_the_program_says_whose_credentials_a_restore_made(tmp_path: Path) -> None:
    data = heads.init(tmp_path / "site", "--nodes", "0")
    heads.bedplate("head", "backup", tmp_path / "b.tar.gz", "--data", data)
    words = ("head", "restore", tmp_path / "b.tar.gz", "--data", tmp_path / "new", "--keys", data)
    assert "new credentials of admin" in heads.bedplate(*words).stdout


@pytest.fixture
async def older(tmp_path: Path) -> Folder:
    """A folder of an hour ago: certificates count in seconds, and of two authorities of one second neither is later."""
    clock = ManualClock()
    clock.jump((SystemClock().now() - clock.now()).total_seconds() - 3600)
    return await creation.make(tmp_path / "site", name="basecm10", nodes=0, clock=clock)


@pytest.mark.parametrize("steps", [1, 2], ids=["under way", "done"])
@pytest.mark.parametrize("is_older", [False, True], ids=["newer keys", "older keys"])
async def test_keys_of_the_same_site_fit_a_backup_from_the_other_side_of_a_rotation(
    older: Folder, tmp_path: Path, steps: int, is_older: bool
) -> None:
    folder = older
    old = Path(shutil.copytree(folder.path, tmp_path / "keys"))
    if not is_older:
        await backups.backup(folder, tmp_path / "b.tar.gz", with_keys=False)
    for step in range(steps):
        await administration.rotate_authority(folder, finish=step == 1)
    if is_older:
        await backups.backup(folder, tmp_path / "b.tar.gz", with_keys=False)
    await backups.restore(tmp_path / "b.tar.gz", tmp_path / "new", keys=old if is_older else folder.path)
    new = Folder.find(tmp_path / "new")
    assert new.file("ca.crt").read_bytes() == folder.file("ca.crt").read_bytes(), "what was replaced stays replaced"
    assert new.file("ca-next.key").exists() == (steps == 1)
    assert pki.is_issued_by(new.file("server.crt"), new.file("ca.crt"))
    await require_access(new)
    if steps == 1:
        await administration.rotate_authority(new, finish=True)
        await require_access(new)


async def test_a_backup_from_the_middle_of_a_rotation_does_not_bring_the_former_authority_back(
    older: Folder, tmp_path: Path
) -> None:
    folder = older
    await administration.rotate_authority(folder, finish=False)
    await backups.backup(folder, tmp_path / "b.tar.gz", with_keys=False)
    await administration.rotate_authority(folder, finish=True)
    await backups.restore(tmp_path / "b.tar.gz", tmp_path / "new", keys=folder.path)
    new = Folder.find(tmp_path / "new")
    async with serving(new):
        assert (await administration.status(new)).revision == 1
    assert new.file("ca.crt").read_bytes() == folder.file("ca.crt").read_bytes()
    assert not new.file("ca-next.key").exists()


@pytest.mark.parametrize("is_named", [True, False], ids=["of today", "of an earlier version"])
async def test_keys_of_another_site_do_not_fit(folder: Folder, tmp_path: Path, is_named: bool) -> None:
    other = await creation.make(tmp_path / "other", name="basecm10", nodes=0)
    if not is_named:
        digest = transfer.digest_of_key
        transfer.digest_of_key = lambda key: ""  # type: ignore[assignment]
    try:
        await backups.backup(folder, tmp_path / "b.tar.gz", with_keys=False)
    finally:
        if not is_named:
            transfer.digest_of_key = digest
    with pytest.raises(errors.Invalid, match="belong to another site"):
        await backups.restore(tmp_path / "b.tar.gz", tmp_path / "new", keys=other.path)
    assert not (tmp_path / "new").exists()
    await backups.restore(tmp_path / "b.tar.gz", tmp_path / "new", keys=folder.path)


# The certificate in the folder is issued again


async def renew(folder: Folder, store: Store, head: Head, clock: ManualClock) -> bool:
    tokens = Tokens(store, clock=clock)
    await tokens.open()
    keys = SiteKeys(folder, store, folder.vault(), clock)
    return await administrator.renew(folder.path, head, tokens, keys, clock)


async def test_the_certificate_is_renewed_for_its_owner_before_it_ends_and_not_otherwise(folder: Folder) -> None:
    clock = ManualClock()
    await administration.recover_admin(folder, "anna", clock=clock)
    async with opened(folder) as (store, head):
        clock.jump(timedelta(days=330).total_seconds())
        assert not await renew(folder, store, head, clock)
        clock.jump(timedelta(days=10).total_seconds())
        assert await renew(folder, store, head, clock)
        assert not await renew(folder, store, head, clock)
        assert head.revision == 2, "no user names a fingerprint: there is nothing to commit"
    presented = pki.presented(folder.file("admin.crt"))
    assert presented is not None and presented.subject["commonName"] == ["anna"]
    assert presented.ends > clock.now() + timedelta(days=360)


async def pin(folder: Folder) -> str:
    """Let the administrator's object name the certificate in the folder; its fingerprint."""
    fingerprint = administration.fingerprint_of(folder.file("admin.crt"))
    async with open_head(folder.path) as there:
        session = there.head.session()
        session.set(("user", "admin"), "certificate", fingerprint)
        await commit_session(there.head, session)
    return fingerprint


async def test_a_user_who_names_a_fingerprint_is_given_that_of_the_renewed_certificate(folder: Folder) -> None:
    clock = ManualClock()
    pki.Authority.load(folder.path).client("admin", USERS, clock.now()).write(folder.path, "admin")
    former = await pin(folder)
    clock.jump(timedelta(days=340).total_seconds())
    async with opened(folder) as (store, head):
        assert await renew(folder, store, head, clock)
        named = User.certificate.value(head.tree.get(("user", "admin")))
        assert named == administration.fingerprint_of(folder.file("admin.crt")) != former
        assert (await head.read(3)).author == "bedplate head"


@pytest.mark.parametrize("way", ["by name", "by fingerprint", "another authority"])
@pytest.mark.parametrize("is_served", [False, True], ids=["without a daemon", "with a daemon"])
async def test_an_administrator_who_names_a_fingerprint_is_never_locked_out(
    folder: Folder, way: str, is_served: bool
) -> None:
    former = await pin(folder)

    async def replace() -> None:
        if way == "another authority":
            await administration.rotate_authority(folder, finish=False)
            await administration.rotate_authority(folder, finish=True)
        elif way == "by name":
            await administration.revoke_certificates(folder, "admin")
        else:
            await administration.revoke_certificates(folder, fingerprint=former)

    if is_served:
        async with serving(folder):
            await replace()
            assert (await administration.status(folder)).revision == 3, "its own credential works, at once"
    else:
        await replace()
    assert administration.fingerprint_of(folder.file("admin.crt")) != former
    await require_access(folder)


async def test_another_head_takes_the_renewed_certificate_from_the_store(folder: Folder, tmp_path: Path) -> None:
    clock = ManualClock()
    pki.Authority.load(folder.path).client("admin", USERS, clock.now()).write(folder.path, "admin")
    await pin(folder)
    other = await creation.join(tmp_path / "two", folder.path, name="basecm11")
    clock.jump(timedelta(days=340).total_seconds())
    async with opened(folder) as (store, head):
        head.standing = Passive()
        before = other.file("admin.crt").read_bytes()
        with pytest.raises(NotActive):
            await renew(other, store, head, clock)
        assert other.file("admin.crt").read_bytes() == before
        head.standing = Alone("", "")
        assert await renew(folder, store, head, clock)
        head.standing = Passive()
        assert await renew(other, store, head, clock)
        for name in ("admin.crt", "admin.key"):
            assert other.file(name).read_bytes() == folder.file(name).read_bytes()
        assert not await renew(other, store, head, clock)


class Passive(Alone):
    def __init__(self) -> None:
        super().__init__("another", "https://another")
        self.is_active = False

    def refuse_writes(self) -> None:
        raise NotActive(self.active_name, self.active_url)


async def test_certificates_are_revoked_without_a_daemon_and_the_folders_own_is_issued_again(tmp_path: Path) -> None:
    folder = await creation.make(tmp_path / "site", name="basecm10", nodes=1)
    own = folder.file("admin.crt").read_bytes()
    await administration.revoke_certificates(folder, "node001", kind="node")
    assert folder.file("admin.crt").read_bytes() == own
    await administration.revoke_certificates(
        folder, fingerprint=administration.fingerprint_of(folder.file("admin.crt"))
    )
    assert folder.file("admin.crt").read_bytes() != own
    async with open_head(folder.path) as opened:
        tokens = Tokens(opened.store)
        await tokens.open()
        access = Access(lambda: opened.head.tree, tokens)
        presented = pki.presented(folder.file("admin.crt"))
        assert presented is not None
        assert access.by_certificate(presented.subject, presented.der) is not None
        (tmp_path / "old.crt").write_bytes(own)
        revoked = pki.presented(tmp_path / "old.crt")
        assert revoked is not None
        assert access.by_certificate(revoked.subject, revoked.der) is None
    revocations = await administration.list_revocations(folder)
    assert {(item.kind, item.subject) for item in revocations} == {("node", "node001"), ("", "")}
    with pytest.raises(errors.Invalid, match="cannot be read as a certificate"):
        administration.fingerprint_of(folder.file("admin.key"))
