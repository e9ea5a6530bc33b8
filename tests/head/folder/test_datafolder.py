"""Making, keeping and restoring a head's data folder, as its program and its modules do it, without a daemon."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import tarfile
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from cryptography import x509
from tests.apps import headprograms as heads
from tests.head.committing import commit, undo
from tests.waiting import DEADLINE_S

from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.head.daemon import Daemon, Options
from bedplate.head.folder import administration, backups, creation, datafolder, pki
from bedplate.head.folder.datafolder import Etcd, Folder, Settings, open_head
from bedplate.head.objects import Obj, Secret
from bedplate.head.session import Edit
from bedplate.head.tokens import Tokens
from bedplate.store.sqlite import Damaged, SqliteStore
from bedplate.ui import web

FILES = {"head.db", "secrets.key", "ca.crt", "ca.key", "server.crt", "server.key", "admin.crt", "admin.key"}
FILES |= {"admin.token", "head.yaml"}


async def made(data: Path, nodes: int = 2) -> Folder:
    return await creation.make(data, name="basecm10", nodes=nodes)


async def add_images(folder: Folder, *names: str) -> None:
    async with open_head(folder.path) as opened:
        for name in names:
            await commit(opened.head, [Edit("softwareimage", name, None, Obj("SoftwareImage", name))], "admin")


def test_init_makes_everything_says_what_is_next_and_touches_nothing_twice(tmp_path: Path) -> None:
    data = tmp_path / "deep" / "site"
    said = heads.bedplate("head", "init", "--data", data, "--name", "base", "--nodes", "3").stdout
    assert "head serve" in said and "cmsh --data" in said and str(data) in said
    assert {one.name for one in data.iterdir()} == FILES
    before = {one: (one.read_bytes(), one.stat().st_mtime_ns) for one in data.iterdir()}
    refused = heads.bedplate("head", "init", "--data", data, "--name", "other", code=5)
    assert "nothing was changed" in refused.stderr and "head serve" in refused.stderr
    assert before == {one: (one.read_bytes(), one.stat().st_mtime_ns) for one in data.iterdir()}


async def test_keys_and_tokens_are_their_owners_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        folder = await made(tmp_path / "site")
    finally:
        os.umask(old)
    modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in folder.path.iterdir()}
    private = {"head.db", "secrets.key", "ca.key", "server.key", "admin.key", "admin.token"}
    assert {name: modes[name] for name in private} == dict.fromkeys(private, 0o600)
    assert stat.S_IMODE(folder.path.stat().st_mode) & 0o077 == 0


async def test_the_first_revision_is_the_administrators_and_holds_the_nodes(tmp_path: Path) -> None:
    folder = await made(tmp_path / "site", nodes=3)
    async with open_head(folder.path) as opened:
        assert opened.head.revision == 1
        assert (await opened.head.read(1)).author == "admin"
        assert sorted(opened.head.tree.mode("device")) == ["basecm10", "node001", "node002", "node003"]
        tokens = Tokens(opened.store)
        await tokens.open()
        found = tokens.find(folder.admin_token())
        assert found is not None and found.subject == "admin"


@pytest.mark.parametrize("content", ["notes.txt", "secrets.key", ".hidden"])
async def test_a_folder_with_something_in_it_is_refused_and_kept(tmp_path: Path, content: str) -> None:
    data = tmp_path / "site"
    data.mkdir()
    (data / content).write_text("mine")
    with pytest.raises(errors.AlreadyExists, match="not empty"):
        await made(data)
    assert [one.name for one in data.iterdir()] == [content] and (data / content).read_text() == "mine"


async def test_a_failed_init_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise errors.Invalid("the disk is full")

    monkeypatch.setattr(pki.Authority, "server", broken)
    with pytest.raises(errors.Invalid, match="disk is full"):
        await made(tmp_path / "site")
    assert not (tmp_path / "site").exists()
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(errors.Invalid):
        await made(empty)
    assert list(empty.iterdir()) == []


async def test_a_file_in_the_way_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.Invalid, match="file"):
        await made(tmp_path / "file" / "site")


async def test_certificates_are_the_authoritys_and_name_the_host(tmp_path: Path) -> None:
    folder = await creation.make(tmp_path / "site", name="base", nodes=0, hosts=["head.example.org", "192.0.2.7"])
    authority = x509.load_pem_x509_certificate(folder.file("ca.crt").read_bytes())
    for name in ("server", "admin"):
        x509.load_pem_x509_certificate(folder.file(f"{name}.crt").read_bytes()).verify_directly_issued_by(authority)
    server = x509.load_pem_x509_certificate(folder.file("server.crt").read_bytes())
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    held = {str(one.value) for one in names}
    assert {"localhost", "127.0.0.1", "::1", "base", "head.example.org", "192.0.2.7"} <= held
    assert "0.0.0.0" not in held


def test_a_silent_resolver_does_not_keep_a_head_from_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def silent(*_: object) -> str:
        released.wait(DEADLINE_S)
        return ""

    monkeypatch.setattr("socket.getfqdn", silent)
    try:
        assert {"localhost", "127.0.0.1", "x"} <= set(pki.host_names("x"))
        assert not released.is_set()
    finally:
        released.set()


def test_a_server_certificate_is_made_anew_before_its_end_or_for_a_new_name(tmp_path: Path) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    authority = pki.Authority.make("base", now)
    authority.server(["a", "b"], "base", now).write(tmp_path, "server")
    file = tmp_path / "server.crt"
    assert not pki.lacks(file, ["a"], now)
    assert pki.lacks(file, ["a", "c"], now)
    assert pki.lacks(file, ["a"], now + timedelta(days=340))
    assert pki.lacks(tmp_path / "missing.crt", [], now)


async def test_only_one_at_a_time_opens_the_folder_and_the_other_learns_who(tmp_path: Path) -> None:
    folder = await made(tmp_path / "site")
    async with open_head(folder.path):
        with pytest.raises(errors.Unavailable, match=f"in use by process {os.getpid()}"):
            async with open_head(folder.path):
                raise AssertionError
        holder = folder.holder()
        assert holder is not None and holder.pid == str(os.getpid()) and folder.daemon_url() == ""
    assert folder.holder() is None
    with folder.lock():
        folder.announce("https://127.0.0.1:1")
        assert folder.daemon_url() == "https://127.0.0.1:1"
        with pytest.raises(errors.Unavailable, match=r"serves it at https://127\.0\.0\.1:1") as refused, folder.lock():
            raise AssertionError
        assert "--url https://127.0.0.1:1" in refused.value.hint
    assert folder.daemon_url() == "", "an address that nobody serves any more is not given out"


async def test_of_several_daemons_on_a_folder_one_that_lives_is_named(tmp_path: Path) -> None:
    folder = await made(tmp_path / "site")
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with folder.lock(is_shared=True):
        folder.announce("https://127.0.0.1:1")
        with folder.file("lock").open("a") as lock:
            lock.write(f"{gone.pid} https://127.0.0.1:2\n")
        assert folder.daemon_url() == "https://127.0.0.1:1"
        folder.announce("https://127.0.0.1:3")
        assert folder.file("lock").read_text() == f"{os.getpid()} https://127.0.0.1:3\n"


async def test_daemons_on_an_etcd_share_the_folder_and_no_shell_opens_it(tmp_path: Path) -> None:
    folder = await made(tmp_path / "site")
    with folder.lock(is_shared=True), folder.lock(is_shared=True), pytest.raises(errors.Unavailable), folder.lock():
        raise AssertionError
    settings = msgspec.structs.replace(folder.settings, url="https://base:8081", etcd=Etcd(("http://127.0.0.1:2379",)))
    folder.remember(settings)
    assert folder.settings == settings
    with pytest.raises(errors.Invalid, match="kept in an etcd") as refused:
        async with open_head(folder.path):
            raise AssertionError
    assert "--url https://base:8081" in refused.value.hint


async def test_a_missing_key_is_not_replaced_by_a_new_one(tmp_path: Path) -> None:
    folder = await made(tmp_path / "site")
    folder.file("secrets.key").unlink()
    with pytest.raises(errors.Invalid, match=r"secrets\.key cannot be read"):
        async with open_head(folder.path):
            raise AssertionError
    assert not folder.file("secrets.key").exists()


@pytest.mark.parametrize("content", ["missing", "empty", "no revision"])
async def test_a_folder_without_its_database_is_an_error_and_never_a_new_site(tmp_path: Path, content: str) -> None:
    folder = await made(tmp_path / "site")
    folder.file("head.db").unlink()
    if content == "empty":
        folder.file("head.db").touch()
    elif content == "no revision":
        async with SqliteStore(folder.file("head.db")):
            pass
    before = sorted(path.name for path in folder.path.iterdir())
    refusal = f"head.db is {content}" if content != "no revision" else "holds no revision"
    with pytest.raises((Damaged, errors.Invalid), match=refusal):
        async with open_head(folder.path):
            raise AssertionError
    refusal = refusal if content != "missing" else "holds no tree"
    with pytest.raises((Damaged, errors.Invalid), match=refusal):
        await Daemon(folder, Options(bind="127.0.0.1", port=0), web.serve).run()
    left = {path.name for path in folder.path.iterdir()} - {"lock", "head.db.lock"}
    assert left == set(before) - {"lock", "head.db.lock"}
    if content != "missing":
        size = folder.file("head.db").stat().st_size
        assert (size == 0) == (content == "empty")


def test_the_shell_and_the_commands_say_that_the_database_is_missing(tmp_path: Path) -> None:
    data = heads.init(tmp_path / "site", "--nodes", "0")
    (data / "head.db").unlink()
    for words in (["head", "status"], ["head", "token", "list"], ["head", "recover-admin"]):
        refused = heads.bedplate(*words, "--data", data, code=1)
        assert "head.db is missing" in refused.stderr and "backup" in refused.stderr
    assert not (data / "head.db").exists()


def test_what_is_no_folder_of_a_head_is_said_so(tmp_path: Path) -> None:
    refused = heads.bedplate("head", "status", "--data", tmp_path, code=4)
    assert "is not a data folder of a head" in refused.stderr and "head init" in refused.stderr


def test_the_folder_around_that_of_a_head_names_it(tmp_path: Path) -> None:
    (tmp_path / "head").mkdir()
    (tmp_path / "head/head.yaml").touch()
    with pytest.raises(errors.NotFound) as refused:
        Folder.find(tmp_path)
    assert refused.value.hint == f"there is one in it: --data {tmp_path / 'head'}"


def test_damaged_settings_are_named(tmp_path: Path) -> None:
    (tmp_path / "head.yaml").write_text("name: [")
    with pytest.raises(errors.Invalid, match=r"head\.yaml cannot be read"):
        _ = Folder.find(tmp_path).settings


# Joining


async def test_a_joined_folder_has_the_sites_keys_and_a_certificate_of_its_own(tmp_path: Path) -> None:
    one = await made(tmp_path / "a")
    one.remember(Settings("basecm10", etcd=Etcd(("http://127.0.0.1:2379",))))
    other = await creation.join(tmp_path / "b", one.path, name="basecm11")
    for name in creation.SHARED:
        assert other.file(name).read_bytes() == one.file(name).read_bytes()
    assert other.file("server.key").read_bytes() != one.file("server.key").read_bytes()
    assert stat.S_IMODE(other.file("ca.key").stat().st_mode) == 0o600
    assert not other.file("head.db").exists()
    assert other.settings.name == "basecm11" and other.settings.etcd == one.settings.etcd
    with pytest.raises(errors.Invalid, match="already"):
        await creation.join(tmp_path / "c", one.path, name="basecm10")
    assert not (tmp_path / "c").exists()


# Backups


async def test_a_backup_without_keys_says_nothing_and_is_restored_with_the_sites_keys(tmp_path: Path) -> None:
    folder = await made(tmp_path / "site")
    secret = Obj("KubeCluster", "default", {"kube_ca_key": Secret("very secret text")})
    async with open_head(folder.path) as opened:
        await commit(opened.head, [Edit("etcd", "kube-default", None, Obj("EtcdCluster", "kube-default"))], "admin")
        await commit(opened.head, [Edit("kubernetes", "default", None, secret)], "admin", "with a secret")
        before = {(mode, obj.key): (obj, obj.revision) for mode, obj in opened.head.tree.objects()}
    file = tmp_path / "backup.tar.gz"
    content = await backups.backup(folder, file, with_keys=False)
    assert (content.name, content.revision, content.has_keys) == ("basecm10", 3, False)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with tarfile.open(file) as tar:
        assert sorted(tar.getnames()) == ["ca.crt", "manifest.json", "records"]
        texts = b"".join(tar.extractfile(one).read() for one in tar)  # type: ignore[union-attr]
    assert b"very secret text" not in texts and folder.admin_token().rsplit("_", 1)[1].encode() not in texts

    with pytest.raises(errors.Invalid, match="contains no keys"):
        await backups.restore(file, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    restored = await backups.restore(file, tmp_path / "new", keys=folder.path)
    assert restored.revision == 3 and restored.tokens == 1
    async with open_head(tmp_path / "new") as opened:
        assert {(mode, obj.key): (obj, obj.revision) for mode, obj in opened.head.tree.objects()} == before
        assert [one.message for one in await opened.head.log(3)] == ["with a secret", "", "first tree of basecm10"]
        await undo(opened.head, 3, "admin")
        assert opened.head.revision == 4


async def test_a_backup_with_keys_stands_alone(tmp_path: Path) -> None:
    folder = await made(tmp_path / "site")
    await backups.backup(folder, tmp_path / "all.tar.gz", with_keys=True)
    content = await backups.restore(tmp_path / "all.tar.gz", tmp_path / "new")
    assert content.has_keys
    new = Folder.find(tmp_path / "new")
    assert {one.name for one in new.path.iterdir()} == FILES
    assert new.admin_token() == folder.admin_token()
    assert stat.S_IMODE(new.file("ca.key").stat().st_mode) == 0o600


async def test_a_backup_is_taken_while_the_head_is_open_and_holds_what_was_committed(tmp_path: Path) -> None:
    folder = await made(tmp_path / "site")
    async with open_head(folder.path) as opened:
        await commit(opened.head, [Edit("softwareimage", "x", None, Obj("SoftwareImage", "x"))], "admin")
        content = await backups.backup(folder, tmp_path / "live.tar.gz", with_keys=True)
        await commit(opened.head, [Edit("softwareimage", "y", None, Obj("SoftwareImage", "y"))], "admin")
    assert content.revision == 2
    assert not [one for one in folder.path.iterdir() if one.name.startswith(".backup")]
    await backups.restore(tmp_path / "live.tar.gz", tmp_path / "new")
    async with open_head(tmp_path / "new") as opened:
        assert "x" in opened.head.tree.mode("softwareimage") and "y" not in opened.head.tree.mode("softwareimage")


async def test_nothing_is_overwritten_by_a_backup_or_a_restore(tmp_path: Path) -> None:
    folder = await made(tmp_path / "site")
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(errors.AlreadyExists):
        await backups.backup(folder, tmp_path / "taken", with_keys=True)
    assert (tmp_path / "taken").read_text() == "mine"
    await backups.backup(folder, tmp_path / "good.tar.gz", with_keys=True)
    with pytest.raises(errors.AlreadyExists, match="already"):
        await backups.restore(tmp_path / "good.tar.gz", folder.path)
    with pytest.raises(errors.Invalid, match="does not exist"):
        await backups.backup(folder, tmp_path / "missing" / "x", with_keys=True)


@pytest.mark.parametrize("damage", ["cut", "bytes", "records", "manifest", "revision"])
async def test_a_damaged_backup_is_refused_and_leaves_no_folder(tmp_path: Path, damage: str) -> None:
    folder = await made(tmp_path / "site")
    await add_images(folder, "one", "two")
    good, bad = tmp_path / "good.tar.gz", tmp_path / "bad.tar.gz"
    await backups.backup(folder, good, with_keys=True)
    if damage == "cut":
        bad.write_bytes(good.read_bytes()[:-200])
    elif damage == "bytes":
        bad.write_bytes(b"no archive at all")
    else:
        rewrite(good, bad, damage)
    with pytest.raises(errors.Invalid):
        await backups.restore(bad, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def rewrite(good: Path, bad: Path, damage: str) -> None:
    """With one member changed; `revision` also corrects the digest, so that only the log can tell."""
    import hashlib

    with tarfile.open(good) as tar:
        members = {one.name: tar.extractfile(one).read() for one in tar}  # type: ignore[union-attr]
    if damage == "records":
        members["records"] = members["records"].replace(b"\n", b" \n", 1)
    elif damage == "manifest":
        members["manifest.json"] = b"{}"
    else:
        lines = members["records"].splitlines(keepends=True)
        members["records"] = b"".join(line for line in lines if b"revisions/000000000002" not in line)
        manifest = msgspec.json.decode(members["manifest.json"])
        manifest["records"] -= 1
        manifest["digests"]["records"] = hashlib.sha256(members["records"]).hexdigest()
        members["manifest.json"] = msgspec.json.encode(manifest)
    bad.write_bytes(backups._packed(members))


async def test_another_sites_keys_are_refused(tmp_path: Path) -> None:
    folder, other = await made(tmp_path / "site"), await made(tmp_path / "other")
    await backups.backup(folder, tmp_path / "b.tar.gz", with_keys=False)
    with pytest.raises(errors.Invalid, match="another site"):
        await backups.restore(tmp_path / "b.tar.gz", tmp_path / "new", keys=other.path)


def test_backup_and_restore_as_programs(tmp_path: Path) -> None:
    data = heads.init(tmp_path / "site", "--nodes", "1")
    said = heads.bedplate("head", "backup", tmp_path / "b.tar.gz", "--data", data, "--with-keys").stdout
    assert "revisions 1 to 1" in said
    said = heads.bedplate("head", "restore", tmp_path / "b.tar.gz", "--data", tmp_path / "new").stdout
    assert "revisions 1 to 1" in said and "1 tokens" in said
    assert "not running" in heads.bedplate("head", "status", "--data", tmp_path / "new").stdout


# Tokens and certificates without a daemon


async def test_tokens_are_made_listed_and_revoked_without_a_daemon(tmp_path: Path) -> None:
    folder = await made(tmp_path / "site")
    about, text = await administration.create_token(folder, "node001", kind="node", name="agent", days=3)
    assert about.subject == "node001" and about.expires and text.startswith("bph_")
    assert {one.subject for one in await administration.list_tokens(folder)} == {"admin", "node001"}
    await administration.revoke_token(folder, about.id)
    assert [one.subject for one in await administration.list_tokens(folder)] == ["admin"]
    with pytest.raises(errors.NotFound, match="no user 'eve'"):
        await administration.create_token(folder, "eve", kind="user", name="", days=0)


async def test_a_certificate_names_its_owner_and_overwrites_nothing(tmp_path: Path) -> None:
    folder = await made(tmp_path / "site")
    issued = await administration.issue_certificate(
        folder, "olga", tmp_path, is_node=False, days=9, clock=ManualClock()
    )
    certificate = x509.load_pem_x509_certificate(issued.certificate.read_bytes())
    assert (
        "CN=olga" in certificate.subject.rfc4514_string() and "bedplate:users" in certificate.subject.rfc4514_string()
    )
    assert issued.fingerprint == pki.fingerprint(issued.certificate.read_bytes()) and issued.ends.startswith(
        "2026-01-10"
    )
    assert stat.S_IMODE(issued.key.stat().st_mode) == 0o600
    with pytest.raises(errors.AlreadyExists):
        await administration.issue_certificate(folder, "olga", tmp_path, is_node=False, days=9)
    for name in ("../x", ".x", "a/b"):
        with pytest.raises(errors.Invalid):
            await administration.issue_certificate(folder, name, tmp_path, is_node=True, days=9)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
async def test_a_folder_that_cannot_be_written_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refusing(path: object, flags: int, mode: int = 0o777) -> int:
        raise OSError(number, os.strerror(number))

    folder = await made(tmp_path / "site")
    monkeypatch.setattr(datafolder.os, "open", refusing)
    with pytest.raises(errors.Invalid, match=f"cannot be written: {os.strerror(number)}") as refused, folder.lock():
        pass
    assert "as its owner" in refused.value.hint
    with pytest.raises(errors.Invalid, match=f"cannot be read: {os.strerror(number)}"):
        folder.holder()


async def test_a_folder_for_thousands_of_nodes_is_made_without_a_warning(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    await creation.make(tmp_path / "data", name="basecm10", nodes=2000)
    assert "warning" not in capfd.readouterr().err
