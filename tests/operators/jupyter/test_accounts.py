"""/etc/passwd and /etc/group of kernels: per flavour, and always with the user."""

from __future__ import annotations

import pytest

from bedplate.operators.jupyter import accounts
from bedplate.operators.jupyter.kernel import KernelSpec

SPEC = KernelSpec(username="john", uid=1042, gid=1100, homedir="/home/john")


@pytest.mark.parametrize("flavor", ["", *accounts.FLAVORS])
def test_every_flavor_gives_root_nobody_and_the_user(flavor: str) -> None:
    spec = KernelSpec(username="john", uid=1042, gid=1100, homedir="/home/john", image_os_flavor=flavor)
    lines = [line.split(":") for line in accounts.passwd(spec).splitlines()]
    assert all(len(fields) == 7 for fields in lines)
    assert lines[-1] == ["john", "x", "1042", "1100", "", "/home/john", "/bin/bash"]
    assert {"root", "nobody"} <= {fields[0] for fields in lines}
    groups = [line.split(":") for line in accounts.group(spec).splitlines()]
    assert all(len(fields) == 4 for fields in groups)
    assert groups[-1] == ["john", "x", "1100", ""]
    for table in (lines, groups):
        assert len({fields[0] for fields in table}) == len({fields[2] for fields in table}) == len(table)


def test_flavors_differ_where_the_systems_do() -> None:
    def nobody(flavor: str) -> str:
        text = accounts.passwd(KernelSpec(uid=1, gid=1, image_os_flavor=flavor))
        return next(line for line in text.splitlines() if line.startswith("nobody:"))

    assert nobody("centos7").startswith("nobody:x:99:99:")
    assert nobody("rhel8").startswith("nobody:x:65534:65534:")
    assert nobody("sles12").startswith("nobody:x:65534:65533:")
    assert nobody("ubuntu2404").endswith(":/nonexistent:/usr/sbin/nologin")


def test_a_system_account_with_the_users_name_or_number_gives_way() -> None:
    spec = KernelSpec(username="mail", uid=65534, gid=12, image_os_flavor="rhel8")
    lines = accounts.passwd(spec).splitlines()
    assert [line for line in lines if line.split(":")[0] == "mail"] == ["mail:x:65534:12::/home/mail:/bin/bash"]
    assert not any(line.startswith("nobody:") for line in lines)
    assert [line for line in accounts.group(spec).splitlines() if ":12:" in line] == ["mail:x:12:"]


def test_literal_contents_win() -> None:
    spec = KernelSpec(uid=5, gid=6, image_os_flavor="rhel8", etc_passwd="me:x:5:6::/:/bin/sh", etc_group="us:x:6:\n")
    assert accounts.passwd(spec) == "me:x:5:6::/:/bin/sh\n"
    assert accounts.group(spec) == "us:x:6:\n"


def test_without_a_name_the_account_is_jupyter_and_its_shell_can_be_chosen() -> None:
    assert accounts.passwd(KernelSpec(uid=7, gid=8, usershell="/bin/zsh")).splitlines()[-1] == (
        "jupyter:x:7:8::/home/jupyter:/bin/zsh"
    )
