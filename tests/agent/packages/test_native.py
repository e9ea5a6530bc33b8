"""Package managers: the command lines that are run, and what their answers mean."""

from __future__ import annotations

from tests.agent.machines import Commands

from bedplate.agent.commands import Ended
from bedplate.agent.packages.native import APT, DNF, ZYPPER, Native


def tails(commands: Commands) -> list[str]:
    return [" ".join([command[0], *command[-3:]]) for command in commands.ran]


async def test_apt_installs_without_a_question_and_waits_for_its_lock() -> None:
    commands = Commands()
    assert await Native(APT, commands).install("nginx") is None
    (command,) = commands.ran
    assert command[-2:] == ["install", "nginx"]
    assert {"-y", "DPkg::Lock::Timeout=600", "Dpkg::Options::=--force-confold"} <= set(command)


async def test_old_lists_of_packages_are_fetched_once() -> None:
    commands = Commands()
    commands.answers["apt-get"] = Ended(100, "", "W: x\nE: Unable to locate package cm-etcd\n")
    why = await Native(APT, commands).install("cm-etcd")
    assert why == "apt-get: E: Unable to locate package cm-etcd"
    assert [command[-1] for command in commands.ran] == ["cm-etcd", "update", "cm-etcd"]


async def test_what_is_installed_is_read_whatever_the_exit_code() -> None:
    commands = Commands()
    commands.answers["dpkg-query"] = Ended(1, "nginx\tinstalled\nold\tconfig-files\n", "no packages found: none")
    assert await Native(APT, commands).installed(["nginx", "old", "none", "nginx=1.2"]) == {"nginx", "nginx=1.2"}


async def test_only_what_is_there_is_removed() -> None:
    commands = Commands()
    commands.answers["dpkg-query"] = Ended(0, "kubelet\tinstalled\n")
    apt = Native(APT, commands)
    assert await apt.remove("kubelet=1.31.1-1.1") is None
    assert tails(commands)[-1] == "apt-get DPkg::Lock::Timeout=600 purge kubelet"
    commands.answers["dpkg-query"] = Ended(1, "")
    count = len(commands.ran)
    assert await apt.remove("kubelet") is None
    assert len(commands.ran) == count + 1


async def test_dnf_and_zypper_are_called_by_their_own_words() -> None:
    commands = Commands()
    commands.answers["rpm"] = Ended(0, "nginx\tinstalled\n")
    for manager in (DNF, ZYPPER):
        native = Native(manager, commands)
        await native.install("nginx")
        await native.remove("nginx")
    assert [" ".join(command) for command in commands.ran] == [
        "dnf -y -q --setopt=exit_on_lock=False install nginx",
        "rpm -q --qf %{NAME}\tinstalled\n nginx",
        "dnf -y -q --setopt=exit_on_lock=False --noautoremove remove nginx",
        "zypper --non-interactive --quiet install --no-recommends --auto-agree-with-licenses nginx",
        "rpm -q --qf %{NAME}\tinstalled\n nginx",
        "zypper --non-interactive --quiet remove nginx",
    ]


async def test_what_is_not_the_name_of_a_package_never_reaches_a_command() -> None:
    commands = Commands()
    for name in ("-o=x", "a b", "", "$(x)", "../x"):
        assert await Native(APT, commands).install(name) is not None
        assert await Native(APT, commands).installed([name]) == set()
    assert commands.ran == []


async def test_a_version_is_asked_for_in_the_words_of_each_manager_and_held_packages_may_change() -> None:
    commands = Commands()
    for manager in (APT, DNF, ZYPPER):
        assert await Native(manager, commands).upgrade("kubelet", "1.35.4") is None
        assert await Native(manager, commands).upgrade("kubelet", "1.35.4", only_fetch=True) is None
    lines = [" ".join(command) for command in commands.ran]
    assert lines[0].endswith("install --allow-change-held-packages kubelet=1.35.4-*")
    assert lines[1].endswith("install --allow-change-held-packages --download-only kubelet=1.35.4-*")
    assert lines[2].endswith("install --disableexcludes=all kubelet-1.35.4")
    assert lines[3].endswith("install --disableexcludes=all --downloadonly kubelet-1.35.4")
    assert lines[4].endswith("install --no-recommends --auto-agree-with-licenses kubelet-1.35.4")
    assert lines[5].endswith("install --download-only --no-recommends --auto-agree-with-licenses kubelet-1.35.4")


async def test_what_is_not_a_version_never_reaches_a_command() -> None:
    commands = Commands()
    for version in ("", "1.35; reboot", "--force", "../1"):
        assert "is not a version of a package" in (await Native(APT, commands).upgrade("kubelet", version) or "")
    assert commands.ran == []


async def test_packages_that_their_repository_excludes_from_updates_are_asked_for() -> None:
    commands = Commands()
    for manager in (DNF, APT, ZYPPER):
        await Native(manager, commands).install("kubelet")
    dnf, apt, zypper = (" ".join(command) for command in commands.ran)
    assert dnf.endswith("install --disableexcludes=all kubelet")
    assert apt.endswith("install --allow-change-held-packages kubelet")
    assert zypper.endswith("--auto-agree-with-licenses kubelet")
