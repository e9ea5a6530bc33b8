"""A node's disk that is damaged, full or read-only, through the whole daemon and the real CNI plugin.

Callers get one clear error, nothing that was acknowledged is lost, and the service goes on once the disk does.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
from collections.abc import Iterator

import pytest
from tests import servers
from tests.endurance import cninodes
from tests.waiting import DEADLINE_S, wait_until

pytestmark = pytest.mark.external

# Below and above 256 KB: the store file alone, and the journal.
SIZES = pytest.mark.parametrize("count", [40, 800], ids=["file", "journal"])


@pytest.fixture(scope="module")
def site() -> Iterator[cninodes.Site]:
    with cninodes.site(servers.shared.get("embedded")) as made:
        yield made


def filled(daemon: cninodes.NodeDaemon, count: int, more: int = 5) -> dict[str, str]:
    """A daemon that holds as much, and a few addresses that it gave itself."""
    content, held = cninodes.prefilled(daemon.site.pool, count)
    # Not synced: restoring a store with `cp` does not wait for the disk either.
    daemon.store.write_bytes(content)
    daemon.start()
    for number in range(more):
        held[f"new{number}_net0"] = daemon.must("ADD", f"new{number}").address
    return held


def assert_held(daemon: cninodes.NodeDaemon, held: dict[str, str]) -> None:
    for key in [*list(held)[:20], *list(held)[-20:]]:
        daemon.must("CHECK", key.partition("_")[0])


def assert_written(daemon: cninodes.NodeDaemon, held: dict[str, str]) -> None:
    assert daemon.stop() == 0
    assert daemon.entries() == held
    assert daemon.faults == []


def journal_of(daemon: cninodes.NodeDaemon) -> pathlib.Path:
    found = [path for path in daemon.disk.iterdir() if "journal" in path.name]
    assert len(found) == 1, found
    return found[0]


def gives_again(daemon: cninodes.NodeDaemon, held: dict[str, str], container: str) -> None:
    """An ADD succeeds, sooner or later; every refusal on the way says why."""

    def is_given() -> bool:
        answer = daemon.call("ADD", container)
        if answer.is_ok:
            assert answer.address not in held.values()
            held[f"{container}_net0"] = answer.address
        else:
            assert answer.document["msg"], answer
        return answer.is_ok

    wait_until(is_given, "an address is given")


def test_torn_end_of_the_journal_is_cut_off_and_said(site: cninodes.Site, tmp_path: pathlib.Path) -> None:
    daemon = cninodes.NodeDaemon(tmp_path, site)
    with daemon.ended():
        held = filled(daemon, 800)
        daemon.kill()
        journal = journal_of(daemon)
        lines = journal.read_bytes().splitlines(keepends=True)
        # A record that was being written when the power went: half of one like those before it.
        with journal.open("ab") as file:
            file.write(max(lines, key=len)[:-20])
        daemon.start()
        assert_held(daemon, held)
        assert "torn" in daemon.log
        gives_again(daemon, held, "after")
        assert_written(daemon, held)


@pytest.mark.parametrize("damage", ["flipped", "zeroes", "garbage"])
def test_corrupt_end_of_the_journal_loses_nothing_that_was_acknowledged(
    damage: str, site: cninodes.Site, tmp_path: pathlib.Path
) -> None:
    daemon = cninodes.NodeDaemon(tmp_path, site)
    with daemon.ended():
        held = filled(daemon, 800)
        wait_until(lambda: daemon.entries() == held, "the file follows the journal")
        daemon.kill()
        journal = journal_of(daemon)
        content = bytearray(journal.read_bytes())
        if damage == "flipped":
            content[-40] ^= 0x55
        elif damage == "zeroes":
            content[-100:] = bytes(100)
        else:
            content += os.urandom(300) + b"\n"
        journal.write_bytes(content)
        daemon.start()
        assert_held(daemon, held)
        assert "store." in daemon.log
        gives_again(daemon, held, "after")
        assert_held(daemon, held)
        assert_written(daemon, held)


def mounted(what: list[str], folder: pathlib.Path) -> None:
    folder.mkdir()
    if subprocess.run(["mount", *what, str(folder)], check=False, capture_output=True).returncode:
        pytest.skip("needs root to mount a small file system")


@contextlib.contextmanager
def small_disk(folder: pathlib.Path, size: str) -> Iterator[pathlib.Path]:
    mounted(["-t", "tmpfs", "-o", f"size={size}", "bedplate-test"], folder)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill_up(disk: pathlib.Path) -> pathlib.Path:
    """Leave not one byte."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            with contextlib.suppress(OSError):
                while file.write(b"\0" * size):
                    pass
    return ballast


def assert_refused(daemon: cninodes.NodeDaemon, command: str, container: str, why: str) -> None:
    answer = daemon.call(command, container)
    assert not answer.is_ok
    said = f"{answer.document['msg']} {answer.document.get('details', '')}"
    assert why.lower() in said.lower(), said
    assert daemon.is_alive


@pytest.mark.root
@SIZES
def test_full_disk_is_said_and_recovered_from(count: int, site: cninodes.Site, tmp_path: pathlib.Path) -> None:
    with small_disk(tmp_path / "small", "4m") as disk:
        daemon = cninodes.NodeDaemon(tmp_path / "node", site, disk=disk)
        with daemon.ended():
            held = filled(daemon, count)
            wait_until(lambda: daemon.entries() == held, "the file is up to date")
            ballast = fill_up(disk)
            # A journal goes on in the last page that it has.
            wait_until(lambda: not add(daemon, held), "an ADD is refused")
            for number in range(3):
                assert_refused(daemon, "ADD", f"refused{number}", "no space left")
            assert_held(daemon, held)

            # A crash on the full disk changes nothing.
            daemon.kill()
            daemon.start()
            assert_held(daemon, held)
            ballast.unlink()
            gives_again(daemon, held, "after")
            daemon.must("DEL", "new0")
            del held["new0_net0"]
            assert_held(daemon, held)
            assert_written(daemon, held)


def add(daemon: cninodes.NodeDaemon, held: dict[str, str]) -> bool:
    container = f"late{len(held)}"
    answer = daemon.call("ADD", container)
    if answer.is_ok:
        held[f"{container}_net0"] = answer.address
    return answer.is_ok


class Image:
    """An ext4 file system in a file, which can be made to go read-only as it does when its disk fails."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.image, self.folder = folder / "image", folder / "mounted"
        with self.image.open("wb") as file:
            file.truncate(16 << 20)
        if subprocess.run(["mkfs.ext4", "-q", "-F", str(self.image)], check=False, capture_output=True).returncode:
            pytest.skip("needs mkfs.ext4")
        mounted(["-o", "loop,errors=remount-ro", str(self.image)], self.folder)

    def fail(self) -> None:
        source = ["findmnt", "-n", "-o", "SOURCE", str(self.folder)]
        device = subprocess.run(source, check=True, capture_output=True, text=True).stdout.strip()
        trigger = pathlib.Path("/sys/fs/ext4", pathlib.Path(device).name, "trigger_fs_error")
        if not os.access(trigger, os.W_OK):
            pytest.skip("needs a kernel that can simulate a failing disk")
        trigger.write_text("a test")

    def remount(self) -> None:
        self.unmount()
        self.folder.rmdir()
        mounted(["-o", "loop,errors=remount-ro", str(self.image)], self.folder)

    def unmount(self) -> None:
        subprocess.run(["umount", str(self.folder)], check=True)


@contextlib.contextmanager
def ext4(folder: pathlib.Path) -> Iterator[Image]:
    image = Image(folder)
    try:
        yield image
    finally:
        if os.path.ismount(image.folder):
            image.unmount()


@pytest.mark.root
@SIZES
def test_disk_that_goes_read_only_is_said_and_loses_nothing(
    count: int, site: cninodes.Site, tmp_path: pathlib.Path
) -> None:
    with ext4(tmp_path) as image:
        daemon = cninodes.NodeDaemon(tmp_path / "node", site, disk=image.folder)
        with daemon.ended():
            held = filled(daemon, count)
            image.fail()
            for number in range(3):
                assert_refused(daemon, "ADD", f"refused{number}", "read-only file system")
            assert_refused(daemon, "DEL", "new0", "read-only file system")
            assert_held(daemon, held)
            daemon.kill()
            image.remount()
            daemon.start()
            assert_held(daemon, held)
            gives_again(daemon, held, "after")
            assert_written(daemon, held)


@pytest.mark.root
def test_start_on_a_read_only_disk_ends_with_the_reason(site: cninodes.Site, tmp_path: pathlib.Path) -> None:
    with small_disk(tmp_path / "small", "4m") as disk:
        daemon = cninodes.NodeDaemon(tmp_path / "node", site, disk=disk)
        content, held = cninodes.prefilled(site.pool, 40)
        daemon.store.write_bytes(content)
        with daemon.ended():
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
            daemon.launch()
            assert daemon.process is not None
            assert daemon.process.wait(DEADLINE_S) != 0
            assert "Read-only file system" in daemon.log
            assert "Traceback" not in daemon.log
            subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
            daemon.start()
            assert_held(daemon, held)
            assert_written(daemon, held)
