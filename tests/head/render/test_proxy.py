"""Kubernetes::ApiServerProxy: nginx over all API servers and the ingress (behaviours 128, 131), with a real nginx."""

from __future__ import annotations

import pathlib
import subprocess

import msgspec
import pytest
from tests import programs
from tests.head.render import rooms

from bedplate.api.desired import File
from bedplate.api.steps import Step, carry_out, notice, steps
from bedplate.head.desired import desired
from bedplate.head.objects import Obj
from bedplate.head.render import proxy
from bedplate.head.session import Session
from bedplate.head.tree import Tree

PROXY = ("device", "basecm10", "roles", "Kubernetes::ApiServerProxy")
MODULE = pathlib.Path("/usr/lib/nginx/modules/ngx_stream_module.so")
NODES = ["basecm10", *rooms.MASTERS, *rooms.WORKERS]


@pytest.fixture
def session() -> Session:
    return Session(rooms.full())


def enable_ingress(session: Session) -> None:
    session.set_extra(rooms.CLUSTER, "ingress_proxy_backend_port", "30443")
    session.set_extra(rooms.CLUSTER, "ingress_proxy_listen_port", "443")
    session.set_extra(rooms.CLUSTER, "ingress_proxy_enable", "true")


def listening(tree: Tree, node: str = "basecm10") -> list[str]:
    lines = rooms.file_of(tree, node, proxy.CONF).content.splitlines()
    return [line.split()[1].rstrip(";") for line in lines if line.strip().startswith("listen ")]


def notices(before: Tree, after: Tree, node: str = "basecm10") -> list[str]:
    return [text for step in steps(desired(before, node), desired(after, node)) if (text := notice(step))]


def test_the_port_is_spread_over_all_control_plane_nodes_with_passive_health(session: Session) -> None:
    session.set(("device", "node002"), "ip", "10.141.9.9")
    session.set(rooms.CLUSTER, "kubernetesapiserverproxyport", "6444")
    text = rooms.file_of(session.tree, "node004", proxy.CONF).content
    for host in ("10.141.0.1", "10.141.9.9", "10.141.0.3"):
        assert f"server {host}:6443 max_fails=3 fail_timeout=10s;" in text
    assert listening(session.tree, "node004") == ["6444"]


def test_a_new_control_plane_node_is_told_to_all_proxies(session: Session) -> None:
    before = session.tree
    session.append(("configurationoverlay", rooms.MASTER), "nodes", "node007")
    actions = rooms.planned(before, session)
    for node in NODES:
        assert rooms.verbs(actions, node, "file", proxy.CONF) == ["change", "test"]
        assert rooms.verbs(actions, node, "service", "nginx") == ["reload"]


def test_item_128_extras_open_a_listener_and_taking_them_back_closes_it(session: Session) -> None:
    before = session.tree
    enable_ingress(session)
    after = session.tree
    assert listening(after) == ["10443", "443"]
    file = rooms.file_of(after, "basecm10", proxy.CONF)
    assert "server 10.141.0.1:30443" in file.content
    assert file.ports == (10443, 443), "the agent looks whether another program has them"
    actions = rooms.planned(before, session)
    for node in NODES:
        assert rooms.verbs(actions, node, "file", proxy.CONF) == ["change", "test"]
        assert rooms.verbs(actions, node, "service", "nginx") == ["reload"]
    assert notices(before, after) == ["Service nginx was reloaded"]
    session.set_extra(rooms.CLUSTER, "ingress_proxy_enable", "false")
    assert listening(session.tree) == ["10443"]
    assert notices(after, session.tree) == ["Service nginx was reloaded"]


def test_item_128_a_commit_in_the_role_with_the_extras_reloads_once(session: Session) -> None:
    """Whether the extras are committed before the role or with it, the node sees one change of one file."""
    before = session.tree
    enable_ingress(session)
    session.set(PROXY, "revision", "ingress")
    assert notices(before, session.tree) == ["Service nginx was reloaded"]
    after = session.tree
    session.set(PROXY, "revision", "again")
    assert notices(after, session.tree) == []


def test_the_port_of_the_ingress_is_the_applications_before_the_extra(session: Session) -> None:
    enable_ingress(session)
    place = (*rooms.CLUSTER, "app_groups", "system", "applications", "ingress_controller", "environment")
    path = session.add(place, "CM_KUBE_INGRESS_HTTPS_PORT")
    session.set(path, "value", "31000")
    assert "server 10.141.0.1:31000" in rooms.file_of(session.tree, "basecm10", proxy.CONF).content


@pytest.mark.parametrize(
    ("extra", "text", "said"),
    [
        ("ingress_proxy_listen_port", "https", "is not a port"),
        ("ingress_proxy_backend_port", "70000", "is not a port"),
        ("ingress_proxy_listen_port", "10443", "is already used by kube-default-api"),
    ],
)
def test_an_extra_that_makes_no_sense_leaves_the_ingress_out(
    session: Session, extra: str, text: str, said: str
) -> None:
    enable_ingress(session)
    session.set_extra(rooms.CLUSTER, extra, text)
    assert listening(session.tree) == ["10443"]
    assert any(said in warning for warning in desired(session.tree, "basecm10").warnings)


def test_without_control_plane_nodes_nothing_listens(session: Session) -> None:
    session.remove(("configurationoverlay", rooms.MASTER))
    assert listening(session.tree) == []
    assert any("no control plane node" in warning for warning in desired(session.tree, "basecm10").warnings)


def test_an_external_cluster_is_reached_at_its_address(session: Session) -> None:
    session.set(rooms.CLUSTER, "external", "yes")
    session.set(rooms.CLUSTER, "kubernetesapiserver", "https://api.example.com:8443")
    assert "server api.example.com:8443 " in rooms.file_of(session.tree, "basecm10", proxy.CONF).content


def test_a_host_that_would_break_the_file_is_not_written(session: Session) -> None:
    session.set(rooms.CLUSTER, "external", "yes")
    session.put(rooms.CLUSTER, session.tree.get(rooms.CLUSTER).with_value("kubernetes_api_server", "https://a;b{}:1"))
    assert "a;b" not in rooms.file_of(session.tree, "basecm10", proxy.CONF).content


def test_a_head_node_serves_every_cluster_it_has_the_role_for(session: Session) -> None:
    session.put(("kubernetes", "second"), Obj("KubeCluster", "second", {"kubernetes_api_server_proxy_port": 10444}))
    role = Obj("KubernetesApiServerProxyRole", "Kubernetes::ApiServerProxy", {"kubernetes_cluster": "second"})
    plane = Obj("KubeletRole", "kubelet", {"kubernetes_cluster": "second", "control_plane": True})
    session.put(
        ("configurationoverlay", "kube-second"),
        Obj(
            "ConfigurationOverlay",
            "kube-second",
            {"nodes": ("node007",), "all_head_nodes": True},
            children={"roles": {role.key: role, plane.key: plane}},
        ),
    )
    assert listening(session.tree) == ["10443", "10444"]
    assert listening(session.tree, "node007") == ["10444"]


def test_ipv6_servers_are_bracketed(session: Session) -> None:
    session.set(("device", "node001"), "ip", "fd00::1")
    text = rooms.file_of(session.tree, "basecm10", proxy.CONF).content
    assert "server [fd00::1]:6443" in text
    assert "listen [::]:10443;" in text


# A real nginx


def nginx_test(text: str, folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Let nginx read a configuration whose paths begin with the folder."""
    program = programs.on_path("nginx")
    if not MODULE.exists():
        pytest.skip("nginx has no stream module (make setup)")
    for name in ("etc/nginx/modules-enabled", "run", "var/log/nginx"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "etc/nginx/modules-enabled/50-stream.conf").write_text(f"load_module {MODULE};\n")
    (folder / "candidate.conf").write_text(text)
    return subprocess.run(
        [program, "-t", "-c", folder / "candidate.conf", "-p", folder], capture_output=True, text=True, timeout=120
    )


def rebased(file: File, folder: pathlib.Path) -> File:
    """The file with the folder before its paths."""
    text = file.content
    for path in ("/etc/nginx/", "/usr/share/nginx/", "/run/", "/var/log/nginx/"):
        text = text.replace(f" {path}", f" {folder}{path}")
    return msgspec.structs.replace(file, content=text)


@pytest.mark.external
def test_item_131_a_real_nginx_accepts_what_is_rendered(session: Session, tmp_path: pathlib.Path) -> None:
    enable_ingress(session)
    file = rebased(rooms.file_of(session.tree, "basecm10", proxy.CONF), tmp_path)
    assert file.content == proxy.nginx_conf(proxy.listeners(session.tree, "default", []), str(tmp_path))
    done = nginx_test(file.content, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "test is successful" in done.stderr


@pytest.mark.external
def test_item_131_what_nginx_refuses_is_never_loaded_and_told(session: Session, tmp_path: pathlib.Path) -> None:
    before = desired(session.tree, "basecm10")
    enable_ingress(session)
    after = desired(session.tree, "basecm10")
    files = tuple(
        msgspec.structs.replace(file, content=file.content.replace("proxy_pass", "proxy_gass"))
        if file.path == proxy.CONF
        else file
        for file in after.files
    )
    broken = msgspec.structs.replace(after, files=files)
    asked: list[Step] = []

    def act(step: Step) -> str | None:
        asked.append(step)
        if (step.name, step.verb) != (proxy.CONF, "test"):
            return None
        file = next(file for file in broken.files if file.path == step.name)
        done = nginx_test(rebased(file, tmp_path).content, tmp_path)
        return None if done.returncode == 0 else done.stderr

    outcome = carry_out(before, broken, act)
    assert [(step.kind, step.verb) for step in asked] == [("file", "test")]
    (failed,) = outcome.failed
    assert 'unknown directive "proxy_gass"' in failed.why
    assert outcome.held.files == before.files
    assert [step.verb for step in steps(outcome.held, after)] == ["test", "write", "reload"]
