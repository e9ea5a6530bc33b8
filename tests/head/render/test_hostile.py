"""Whatever text people put into rows: rendering does not fail, and no value becomes a line of its own."""

from __future__ import annotations

import json
import re
import shlex
import tomllib

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.head.render import rooms
from tests.head.render.test_etcd import ROLE as ETCD

from bedplate.core import errors
from bedplate.head.desired import desired
from bedplate.head.explain import explain
from bedplate.head.objects import Obj
from bedplate.head.render import RENDERERS, docker, etcd, firewall, generic, kubelet
from bedplate.head.schema.entity import Field, Path
from bedplate.head.session import Session

text = st.one_of(
    st.text(max_size=12),
    st.text(alphabet="ab =:;,#'\"\\$%{}\n\t/-0", max_size=12),
    st.sampled_from(
        ["a\nETCD_X=1", "x\n[Service]\nExecStart=/bin/sh", "'; rm -rf /", "$hostname", "${spool}", "10.0.0.1"]
    ),
)
PLACES: list[Path] = [
    ETCD,
    rooms.DOCKER,
    rooms.KUBELET,
    rooms.CLUSTER,
    ("etcd", "kube-default"),
    ("device", "node001"),
    ("device", "basecm10"),
    (*rooms.CONTAINERD, "configurations", "containerd-cri"),
    (*rooms.CONTAINERD, "environments", "sandbox_image"),
    (*rooms.FIREWALL, "open_ports", "0"),
]


def fields() -> list[tuple[Path, str]]:
    tree = rooms.full()
    return [
        (place, row.shell)
        for place in PLACES
        for row in tree.schema.of(tree.get(place)).rows
        if isinstance(row, Field) and not row.readonly
    ]


@settings(max_examples=150)
@given(st.lists(st.tuples(st.sampled_from(fields()), text), min_size=1, max_size=6))
def test_any_value_is_rendered_where_it_belongs(values: list[tuple[tuple[Path, str], str]]) -> None:
    session = Session(rooms.full())
    session.add_indexed((*rooms.KUBELET, "options"), ["kube-apiserver.yaml", "", "v", "1"])
    for (place, parameter), value in values:
        try:
            session.set(place, parameter, value)
        except errors.Invalid:
            continue
    for node in ("node001", "node004", "node006", "basecm10"):
        desired(session.tree, node)
        explain(session.tree, node, "", RENDERERS)
    _check(session)


@settings(max_examples=60)
@given(text, text)
def test_any_flag_stays_one_word(key: str, value: str) -> None:
    session = Session(rooms.full())
    path = session.add_indexed((*rooms.KUBELET, "options"), ["kube-apiserver.yaml", "", "v", "1"])
    try:
        session.set(path, "value", value)
        session.set(path, "key", key or "v")
    except errors.Invalid:
        pass
    found = rooms.file_of(session.tree, "node001", f"{kubelet.PATCHES}/kube-apiserver0+json.json").content
    assert [patch["op"] for patch in json.loads(found)] == ["add"]


def _check(session: Session) -> None:
    files = {
        file.path: file.content
        for node in ("node001", "node004", "node006", "basecm10")
        for file in desired(session.tree, node).files
    }
    for path in (etcd.CONF, etcd.MEMBERS):
        assert all(line.startswith(("ETCD_", "CM_ETCD_CLIENTS=")) for line in files.get(path, "").splitlines())
    if docker.CONF in files:
        assert json.loads(files[docker.CONF])["storage-driver"] == "overlay2"
        lines = files[docker.UNIT].splitlines()
        assert lines[0] == "[Service]"
        assert all(re.match('Environment="?DOCKER_|ExecStart=', line) for line in lines[1:])
    assert len(files[kubelet.ENVIRONMENT].splitlines()) == 1
    tomllib.loads(files[generic.CONTAINERD_CONF])
    for line in files.get(firewall.SHOREWALL, "").splitlines():
        assert line.startswith(("#", "ACCEPT\t", "DROP\t", "REJECT\t", "DNAT\t"))
    for line in files.get("/etc/profile.d/bedplate.sh", "").splitlines()[:1]:
        assert line.startswith("export ")
    script = files.get("/etc/profile.d/bedplate.sh", "")
    assert [word for word in shlex.split(script) if word == "export"]


def test_references_to_what_is_gone_are_survived() -> None:
    session = Session(rooms.full())
    for place in (
        ("kubernetes", "default"),
        ("etcd", "kube-default"),
        ("network", "internalnet"),
        ("category", "docker"),
    ):
        session.put(place, None)
    for node in session.tree.mode("device"):
        desired(session.tree, node)


def test_a_device_without_anything_is_rendered() -> None:
    session = Session(rooms.full())
    session.put(("device", "bare"), Obj("PhysicalNode", "bare"))
    assert desired(session.tree, "bare").files == ()
