"""systemd as the agent drives it: which commands are run, and what their answers mean."""

from __future__ import annotations

from pathlib import Path

from tests.agent.machines import Commands

from bedplate.agent.commands import Ended
from bedplate.agent.services.systemd import Systemd, is_pid_1

SHOWN = """\
Id=etcd.service
LoadState=loaded
ActiveState=active
SubState=running
MainPID=77
InvocationID=abc
NRestarts=2
Result=success

Id=none.service
LoadState=not-found
ActiveState=inactive
MainPID=0
InvocationID=

Id=bad.service
LoadState=loaded
ActiveState=failed
MainPID=0
InvocationID=x
Result=exit-code
"""


async def test_services_are_started_and_reloaded_by_systemctl() -> None:
    commands = Commands()
    systemd = Systemd(commands)
    assert await systemd.start("etcd") is None
    assert await systemd.reload("nginx") is None
    assert await systemd.reload_units() is None
    assert commands.ran == [
        ["systemctl", "--no-ask-password", "reset-failed", "--", "etcd.service"],
        ["systemctl", "--no-ask-password", "start", "--", "etcd.service"],
        ["systemctl", "--no-ask-password", "reload-or-restart", "--", "nginx.service"],
        ["systemctl", "daemon-reload"],
    ]


async def test_what_systemctl_says_is_told() -> None:
    commands = Commands()
    commands.answers["systemctl"] = Ended(1, "", "Job for etcd.service failed.\nSee journalctl.\n")
    assert await Systemd(commands).restart("etcd") == "exit code 1: Job for etcd.service failed.; See journalctl."


async def test_a_unit_that_is_not_there_is_stopped_already() -> None:
    commands = Commands()
    commands.answers["systemctl"] = Ended(5, "", "Failed to stop none.service: Unit none.service not loaded.\n")
    assert await Systemd(commands).stop("none") is None
    assert await Systemd(commands).start("none") is not None


async def test_states_of_several_units_come_from_one_command() -> None:
    commands = Commands()
    commands.answers["systemctl"] = Ended(0, SHOWN)
    statuses = await Systemd(commands).status(["etcd", "none", "bad"])
    assert statuses["etcd"][:5] == ("etcd", "running", 77, "abc", 2)
    assert (statuses["none"].condition, statuses["bad"].condition, statuses["bad"].why) == (
        "missing",
        "failed",
        "exit-code",
    )
    assert len(commands.ran) == 1
    commands.answers["systemctl"] = Ended(1, "", "Failed to connect to bus")
    assert (await Systemd(commands).status(["etcd"]))["etcd"].condition == "unknown"
    assert await Systemd(commands).status([]) == {}


def test_systemd_is_known_by_its_folder(tmp_path: Path) -> None:
    assert is_pid_1(str(tmp_path))
    assert not is_pid_1(str(tmp_path / "none"))
