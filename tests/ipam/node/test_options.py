"""Flags: the original's with its defaults, ours beside them, every problem at once."""

from __future__ import annotations

import io
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests import programs

from bedplate import __version__
from bedplate.core import flags
from bedplate.ipam.node.options import GROUPS, Options, cri_path, path_problems, read
from bedplate.ipam.node.process import PROGRAM
from bedplate.program import process

NAMED = ["--node-name=n1"]
# The original's flags, and what they are when nobody says anything.
ORIGINAL: dict[str, Any] = {
    "node-name": "",
    "ippools-namespace": "kube-system",
    "bind-address": "unix:///var/lib/cni/nv-ipam/daemon.sock",
    "store-file": "/var/lib/cni/nv-ipam/store",
    "metrics-bind-address": ":8080",
    "health-probe-bind-address": ":8081",
    "kubeconfig": "",
    "cni-bin-dir": "/opt/cni/bin",
    "cni-nv-ipam-bin-file": "/nv-ipam",
    "cni-skip-nv-ipam-binary-copy": False,
    "cni-conf-dir": "/etc/cni/net.d/nv-ipam.d",
    "cni-skip-nv-ipam-config-creation": False,
    "cni-daemon-socket": "unix:///var/lib/cni/nv-ipam/daemon.sock",
    "cni-daemon-call-timeout": 5,
    "cni-log-file": "/var/log/nv-ipam-cni.log",
    "cni-log-level": "info",
    "cni-force-pool-name": False,
    "log-flush-frequency": 5.0,
    "log-json-info-buffer-size": "0",
    "log-json-split-stream": False,
    "log-text-info-buffer-size": "0",
    "log-text-split-stream": False,
    "logging-format": "text",
    "v": 0,
    "vmodule": (),
    "feature-gates": (),
    "version": "false",
}


def test_the_originals_flags_have_the_originals_defaults() -> None:
    ours = {one.name: value for one, value in Options().items()}
    assert {name: ours[name] for name in ORIGINAL} == ORIGINAL


@pytest.mark.external
def test_every_flag_of_the_originals_help_is_known() -> None:
    text = subprocess.run(
        [str(programs.original("ipam-node")), "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    theirs = set(re.findall(r"^ +(?:-\w, )?--([a-z-]+)", text.stdout, re.MULTILINE))
    assert len(theirs) > 20
    assert theirs <= {one.name for one, _ in Options().items()}


def test_a_daemonsets_command_line_is_understood() -> None:
    found = read(
        [
            "--node-name=n1",
            "--v=1",
            "--logging-format=json",
            "--bind-address=unix:///run/x.sock",
            "--store-file=/s/store",
            "--cni-daemon-socket=unix:///run/x.sock",
            "--cni-daemon-call-timeout=5",
            "--cni-bin-dir=/opt/cni/bin",
            "--cni-log-level=info",
            "--cni-log-file=/var/log/nv-ipam-cni.log",
            "--ippools-namespace=kube-system",
            "",
        ]
    )
    assert not found.problems
    assert (found.options.daemon.bind_address, found.options.globals.v) == ("unix:///run/x.sock", 1)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], "--node-name"),
        ([*NAMED, "--ippools-namespace="], "--ippools-namespace"),
        ([*NAMED, "--bind-address=http://x"], "--bind-address"),
        ([*NAMED, "--bind-address=unix://"], "--bind-address"),
        ([*NAMED, "--metrics-bind-address=8080"], "--metrics-bind-address"),
        ([*NAMED, "--health-probe-bind-address=:x"], "--health-probe-bind-address"),
        ([*NAMED, "--static-ip-check=perhaps"], "--static-ip-check"),
        ([*NAMED, "--cleaner=yes"], "--cleaner"),
        ([*NAMED, "--cleaner-interval=0s"], "--cleaner-interval"),
        ([*NAMED, "--cleaner-misses=1"], "--cleaner-misses"),
        ([*NAMED, "--cleaner-grace=-1s"], "--cleaner-grace"),
        ([*NAMED, "--cri-socket=tcp://x"], "--cri-socket"),
        ([*NAMED, "--bind-address=tcp://127.0.0.1:9092"], "--allow-tcp"),
        ([*NAMED, "--allowed-uids=root"], "--allowed-uids"),
        ([*NAMED, "--allowed-uids=-1"], "--allowed-uids"),
        ([*NAMED, "--feature-gates=Nonsense=true"], "--feature-gates"),
        ([*NAMED, "--logging-format=xml"], "--logging-format"),
        ([*NAMED, "--cni-log-level=foo"], "--cni-log-level"),
        ([*NAMED, "--log-json-info-buffer-size=zzz"], "--log-json-info-buffer-size"),
        ([*NAMED, "--log-text-info-buffer-size=-1"], "--log-text-info-buffer-size"),
        ([*NAMED, "--log-flush-frequency=0s"], "--log-flush-frequency"),
        ([*NAMED, "--feature-gates=ContextualLogging=false"], "ContextualLogging=false is not possible"),
        ([*NAMED, "--feature-gates=AllBeta=false"], "AllBeta=false is not possible"),
        (
            [*NAMED, "--feature-gates=LoggingAlphaOptions=false", "--log-json-split-stream"],
            "--log-json-split-stream: LoggingAlphaOptions=false forbids it",
        ),
        ([*NAMED, "--cni-daemon-call-timeout=soon"], "--cni-daemon-call-timeout"),
        ([*NAMED, "positional"], "positional"),
        ([*NAMED, "--no-such-flag"], "--no-such-flag"),
    ],
)
def test_a_mistake_is_named(words: list[str], named: str) -> None:
    problems = read(words).problems
    assert len(problems) == 1
    assert named in problems[0]


def test_all_mistakes_are_named_at_once() -> None:
    assert len(read(["x", "--bind-address=x", "--cleaner=x"]).problems) == 4


@pytest.mark.parametrize("written", ["/run/containerd/containerd.sock", "unix:///run/containerd/containerd.sock"])
def test_the_runtimes_socket_is_an_address_or_a_path(written: str) -> None:
    assert not read([*NAMED, f"--cri-socket={written}"]).problems
    assert cri_path(written) == "/run/containerd/containerd.sock"


def _words(folder: Path, *more: str) -> list[str]:
    return [
        *NAMED,
        f"--store-file={folder}/store",
        f"--cni-bin-dir={folder}",
        f"--cni-conf-dir={folder}",
        f"--cni-log-file={folder}/log",
        *more,
    ]


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ((), []),
        (("--store-file=/none/store",), ["--store-file"]),
        (("--cni-bin-dir=/none",), ["--cni-bin-dir"]),
        (("--cni-bin-dir=/none", "--cni-skip-nv-ipam-binary-copy"), []),
        (("--cni-conf-dir=/none",), ["--cni-conf-dir"]),
        (("--cni-conf-dir=/none", "--cni-skip-nv-ipam-config-creation"), []),
        (("--cni-log-file=/none/x.log",), ["--cni-log-file"]),
    ],
)
def test_missing_files_and_folders_are_named(tmp_path: Path, more: tuple[str, ...], named: list[str]) -> None:
    found = list(path_problems(read(_words(tmp_path, *more)).options, tmp_path))
    assert [one.split(":")[0] for one in found] == named


def test_a_missing_plugin_is_named_unless_it_is_not_wanted(tmp_path: Path) -> None:
    assert list(path_problems(read(_words(tmp_path)).options, None))
    assert not list(path_problems(read(_words(tmp_path, "--cni-skip-nv-ipam-binary-copy")).options, None))


def run(*words: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()

    def runner(main: Any) -> None:
        main.close()
        raise AssertionError("it must not run")

    return process.run(PROGRAM, words, {}, runner, out, err), out.getvalue(), err.getvalue()


def test_help_shows_every_flag_in_its_group_with_examples() -> None:
    code, out, err = run("--help")
    assert (code, err) == (0, "")
    assert "Examples:" in out
    for group in GROUPS:
        assert f"{group.title} flags:" in out
        for one in flags.flags_of(group.kind):
            assert f"--{one.name}" in out
    assert run("-h")[1] == out


def test_version_is_shown() -> None:
    assert run("--version") == (0, f"ipam-node v{__version__}\n", "")


def test_a_wrong_command_line_fails_with_all_that_is_wrong(tmp_path: Path) -> None:
    code, out, err = run(*_words(tmp_path, "--cni-log-file=/none/x", "word", "--cleaner=x"))
    assert (code, out) == (1, "")
    assert err.count("Error: ") >= 3
    assert "ipam-node --help" in err
