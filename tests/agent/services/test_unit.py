"""Unit files: words, variables, drop-ins, spans, as systemd reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bedplate.agent.files import Root
from bedplate.agent.services import unit
from bedplate.agent.services.unit import UnitProblem, parse, seconds, split

ETCD = """\
[Unit]
Description=etcd
After=network.target a.service
Requires=a.service
[Service]
Type=notify
Environment=ETCD_NAME=%H "ONE=two words" \\
ETCD_X=three
EnvironmentFile=-/etc/default/%p
ExecStart=/usr/bin/etcd $ARGS --name=${ETCD_NAME} '--quoted=a b' "c\\x20d" $$HOME
ExecReload=-/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=1min 5s
LimitNOFILE=65536
NoNewPrivileges=yes
; a comment
[Install]
WantedBy=multi-user.target
"""


def test_a_unit_is_read() -> None:
    etcd = parse("etcd", [ETCD])
    assert (etcd.type, etcd.restart, etcd.restart_s, etcd.open_files) == ("notify", "on-failure", 65.0, "65536")
    assert etcd.after == ("network.target", "a.service")
    assert etcd.requires == ("a.service",)
    assert etcd.ignored == ("Description", "NoNewPrivileges")


def test_the_environment_comes_from_words_and_files() -> None:
    etcd = parse("etcd", [ETCD])
    read = {
        "/etc/default/etcd": 'ONE=1\n# no\nQUOTED="a \\"b\\" \\$c"\nSINGLE=\'x "y"\'\nLONG=a\\\nb\nbad name=1\n'
    }.get
    variables = unit.environment(etcd, read)
    assert {key: variables[key] for key in ("ONE", "QUOTED", "SINGLE", "LONG", "ETCD_X")} == {
        "ONE": "1",
        "QUOTED": 'a "b" $c',
        "SINGLE": 'x "y"',
        "LONG": "ab",
        "ETCD_X": "three",
    }
    assert "bad name" not in variables


def test_a_missing_environment_file_is_a_problem_unless_it_may_be_missing() -> None:
    assert unit.environment(parse("etcd", [ETCD]), lambda path: None)["ONE"] == "two words"
    strict = parse("x", ["[Service]\nExecStart=/bin/x\nEnvironmentFile=/etc/none\n"])
    with pytest.raises(UnitProblem, match="/etc/none does not exist"):
        unit.environment(strict, lambda path: None)


def test_a_command_has_its_variables_replaced() -> None:
    etcd = parse("etcd", [ETCD])
    environ = {"ARGS": "-a -b", "ETCD_NAME": "n 1"}
    assert unit.command(etcd.start[0], etcd, environ) == (
        ("/usr/bin/etcd", "-a", "-b", "--name=n 1", "--quoted=a b", "c d", "$HOME"),
        False,
    )
    assert unit.command(etcd.start[0], etcd, {}).words[1] == "--name="
    assert unit.command(etcd.reload[0], etcd, {}) == (("/bin/kill", "-HUP", "$MAINPID"), True)


def test_a_drop_in_adds_and_replaces() -> None:
    drop = "[Service]\nExecStart=\nExecStart=/usr/bin/dockerd --debug\nEnvironmentFile=/b\n"
    docker = parse("docker", ["[Service]\nExecStart=/usr/bin/dockerd -H fd://\nEnvironmentFile=/a\n", drop])
    assert docker.start == ("/usr/bin/dockerd --debug",)
    assert docker.environment_files == ("/a", "/b")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[Service]\n", "no ExecStart"),
        ("[Service]\nExecStart=/a\nExecStart=/b\n", "more than one"),
        ("[Service]\nType=odd\nExecStart=/a\n", "Type=odd"),
        ("[Service]\nExecStart=/a\nRestartSec=soon\n", "time span"),
    ],
)
def test_what_is_wrong_with_a_unit_is_named(text: str, problem: str) -> None:
    with pytest.raises(UnitProblem, match=problem):
        parse("x", [text])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("90", 90.0),
        ("1min 30s", 90.0),
        ("500ms", 0.5),
        ("2h", 7200.0),
        ("infinity", -1.0),
        ("1.5 s", 1.5),
        ("3us", 3e-6),
    ],
)
def test_spans_are_read(text: str, value: float) -> None:
    assert seconds(text) == pytest.approx(value)


def test_a_quotation_without_an_end_is_a_problem() -> None:
    with pytest.raises(UnitProblem, match="no end"):
        split("'a b")
    assert split("a ''  \"b c\"d") == ["a", "", "b cd"]


def test_units_are_found_in_their_folders_and_drop_ins_in_all(tmp_path: Path) -> None:
    for path, text in {
        "lib/systemd/system/app.service": "[Service]\nExecStart=/bin/vendor\n",
        "etc/systemd/system/app.service.d/20-b.conf": "[Service]\nUser=b\n",
        "usr/lib/systemd/system/app.service.d/10-a.conf": "[Service]\nUser=a\nGroup=g\n",
        "usr/lib/systemd/system/app.service.d/20-b.conf": "[Service]\nUser=hidden\n",
        "etc/systemd/system/app.service.d/readme": "[Service]\nUser=no\n",
        "lib/systemd/system/tty@.service": "[Service]\nExecStart=/bin/tty %i\n",
    }.items():
        place = tmp_path / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    root = Root(str(tmp_path))
    app = unit.load(root, "app")
    assert app is not None
    assert (app.start, app.user, app.group) == (("/bin/vendor",), "b", "g")
    tty = unit.load(root, "tty@one")
    assert tty is not None
    assert unit.command(tty.start[0], tty, {}).words == ("/bin/tty", "one")
    assert unit.load(root, "none") is None
