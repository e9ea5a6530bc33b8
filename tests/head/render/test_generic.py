"""Generic roles: containerd's drop-ins (behaviours 123 to 126), read by a real containerd where there is one."""

from __future__ import annotations

import pathlib
import subprocess
import tomllib

import pytest
from tests import programs
from tests.head.render import rooms

from bedplate.api.steps import Step, carry_out, notice, steps
from bedplate.head.desired import desired
from bedplate.head.entities.roles import GenericRoleEnvironment
from bedplate.head.explain import explain
from bedplate.head.objects import Obj, Secret
from bedplate.head.render import RENDERERS, generic
from bedplate.head.session import Session

CRI = (*rooms.CONTAINERD, "configurations", "containerd-cri")
CRI_PATH = f"{generic.CONTAINERD_DROPINS}/cri.toml"
NODE = "node004"


@pytest.fixture
def session() -> Session:
    return Session(rooms.full())


def test_item_123_the_main_file_imports_the_drop_ins(session: Session) -> None:
    for text in (rooms.file_of(session.tree, NODE, path).content for path in (generic.CONTAINERD_CONF, CRI_PATH)):
        assert tomllib.loads(text)["version"] == 2
    main = tomllib.loads(rooms.file_of(session.tree, NODE, generic.CONTAINERD_CONF).content)
    assert main["imports"] == ["/cm/local/apps/containerd/var/etc/conf.d/*.toml"]


def test_item_123_drop_ins_have_mode_owner_and_folder(session: Session) -> None:
    for parameter, text in [("filemask", "640"), ("username", "containerd"), ("groupname", "adm")]:
        session.set(CRI, parameter, text)
    file = rooms.file_of(session.tree, NODE, CRI_PATH)
    assert (file.mode, file.owner, file.group, file.folder_mode) == ("0640", "containerd", "adm", "0755")
    session.set(CRI, "filemaskdirectory", "0700")
    assert rooms.file_of(session.tree, NODE, CRI_PATH).folder_mode == "0700"
    session.set(CRI, "createdirectory", "no")
    assert rooms.file_of(session.tree, NODE, CRI_PATH).folder_mode == ""


@pytest.mark.parametrize(("action", "verbs"), [("RESTART", ["restart"]), ("RELOAD", ["reload"]), ("NONE", [])])
def test_item_123_a_written_file_triggers_the_service_action(session: Session, action: str, verbs: list[str]) -> None:
    session.set(CRI, "serviceactiononwrite", action)
    before = session.tree
    session.set(CRI, "content", "version = 2\n")
    assert rooms.verbs(rooms.planned(before, session), NODE, "service", "containerd") == verbs
    done = steps(desired(before, NODE), desired(session.tree, NODE))
    assert [step.verb for step in done if step.kind == "service"] == verbs


def test_item_123_another_action_alone_triggers_none(session: Session) -> None:
    before = session.tree
    session.set(CRI, "serviceactiononwrite", "RELOAD")
    session.set(CRI, "servicestoponfailure", "no")
    assert {action.kind for action in rooms.planned(before, session)} == {"role"}
    assert steps(desired(before, NODE), desired(session.tree, NODE)) == []


def test_item_123_a_removed_configuration_removes_its_file(session: Session) -> None:
    before = session.tree
    session.remove(CRI)
    actions = rooms.planned(before, session)
    assert rooms.verbs(actions, NODE, "file", CRI_PATH) == ["remove"]
    assert rooms.verbs(actions, NODE, "service", "containerd") == ["restart"]
    done = steps(desired(before, NODE), desired(session.tree, NODE))
    assert [(step.kind, step.verb) for step in done] == [("file", "remove"), ("service", "restart")]
    assert [text for step in done if (text := notice(step))] == ["Service containerd was restarted"]


def test_item_124_a_disabled_configuration_is_left_as_it_is(session: Session) -> None:
    before = session.tree
    session.set(CRI, "disabled", "yes")
    state = desired(session.tree, NODE)
    assert CRI_PATH in state.unmanaged
    assert all(file.path != CRI_PATH for file in state.files)
    actions = rooms.planned(before, session)
    assert rooms.verbs(actions, NODE, "file", CRI_PATH) == ["release"]
    assert rooms.verbs(actions, NODE, "service", "containerd") == []
    assert [step.verb for step in steps(desired(before, NODE), state)] == ["release"]


@pytest.mark.parametrize(("stops", "verbs"), [("yes", ["stop"]), ("no", [])])
def test_item_124_a_file_that_cannot_be_written_stops_the_service_where_asked(
    session: Session, stops: str, verbs: list[str]
) -> None:
    session.set(CRI, "servicestoponfailure", stops)
    before = session.tree
    session.set(CRI, "content", "version = 2\n")

    def act(step: Step) -> str | None:
        return "no space left on device" if (step.name, step.verb) == (CRI_PATH, "write") else None

    outcome = carry_out(desired(before, NODE), desired(session.tree, NODE), act)
    assert [step.verb for step in outcome.done if step.kind == "service"] == verbs
    assert [(failed.step.name, failed.why) for failed in outcome.failed] == [(CRI_PATH, "no space left on device")]
    again = steps(outcome.held, desired(session.tree, NODE))
    assert ("service", "start" if verbs else "restart") in [(step.kind, step.verb) for step in again]


def test_item_125_variables_of_the_role_are_put_into_drop_ins(session: Session) -> None:
    session.set(CRI, "content", 'a = "$sandbox_image"\nb = "${sandbox_image}"\nc = "$$HOME $other"\n')
    image = "registry.k8s.io/pause:3.9"
    text = rooms.file_of(session.tree, NODE, CRI_PATH).content
    assert text == f'a = "{image}"\nb = "{image}"\nc = "$HOME $other"\n'
    assert any("no value for other" in warning for warning in desired(session.tree, NODE).warnings)


def test_item_126_snippets_are_in_the_effective_exclude_list(session: Session) -> None:
    path = session.add((*rooms.CONTAINERD, "exclude_list_snippets"), "mine")
    session.set(path, "excludelist", "/data/a,/data/b")
    session.set(path, "modefull", "yes")
    state = desired(session.tree, NODE)
    assert state.excludes["sync"] == ("/data/a", "/data/b", "/var/lib/containerd")
    assert state.excludes["full"] == ("/data/a", "/data/b")
    session.set(path, "disabled", "yes")
    assert desired(session.tree, NODE).excludes["sync"] == ("/var/lib/containerd",)


def test_item_126_containers_data_is_kept_even_without_a_snippet(session: Session) -> None:
    session.remove((*rooms.CONTAINERD, "exclude_list_snippets", "containerd"))
    assert desired(session.tree, NODE).excludes["update"] == ("/var/lib/containerd",)
    assert [fact.name for fact, _ in explain(session.tree, NODE, "", RENDERERS) if fact.kind == "exclude"] == [
        "sync:/var/lib/containerd",
        "update:/var/lib/containerd",
    ]


def test_a_file_with_a_secret_variable_is_secret_and_no_other(session: Session) -> None:
    login = session.add((*rooms.CONTAINERD, "environments"), "login")
    session.set(login, "secretvalue", "hunter2")
    session.set(CRI, "content", 'a = "${login}"\n')
    file = rooms.file_of(session.tree, NODE, CRI_PATH)
    assert (file.content, file.secret) == ('a = "hunter2"\n', True)
    assert not rooms.file_of(session.tree, NODE, generic.CONTAINERD_CONF).secret
    assert not desired(session.tree, NODE).warnings
    session.set(login, "nodeenvironment", "yes")
    assert "hunter2" not in str(desired(session.tree, NODE).environment)
    entry = Obj("GenericRoleEnvironment", "login", {"secret_value": Secret("a"), "node_environment": True})
    assert "cannot be exported" in GenericRoleEnvironment.problems(entry, None)[0]  # type: ignore[arg-type]


def test_nodes_with_the_runtime_of_nvidia_get_its_toolkit(session: Session) -> None:
    nvidia = (*rooms.CONTAINERD, "configurations", "nvidia-cri")
    assert "cm-nvidia-container-toolkit" in desired(session.tree, NODE).packages
    session.set(nvidia, "disabled", "yes")
    assert "cm-nvidia-container-toolkit" not in desired(session.tree, NODE).packages


def test_a_drop_in_that_repeats_the_one_before_it_is_read_as_meant(session: Session) -> None:
    nvidia = (*rooms.CONTAINERD, "configurations", "nvidia-cri")
    own = rooms.file_of(session.tree, NODE, CRI_PATH).content
    table = '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]\nruntime_type = "io.containerd.runc.v2"\n'
    session.set(nvidia, "content", own + table)
    assert not desired(session.tree, NODE).warnings


def test_any_generic_role_renders_its_files(session: Session) -> None:
    role = session.add(("device", "node007", "roles"), "generic::netq")
    session.set(role, "services", "netq-agent")
    session.set(role, "datanode", "yes")
    path = session.add((*role, "configurations"), "conf")
    session.set(path, "filename", "/etc/netq.yml")
    state = desired(session.tree, "node007")
    assert [(file.path, file.services, file.stop_on_failure) for file in state.files] == [
        ("/etc/netq.yml", ("netq-agent",), True)
    ]
    assert [service.name for service in state.services] == ["netq-agent"]
    assert state.data_node


def test_drop_ins_that_containerd_would_not_read_as_meant_are_warned_about(session: Session) -> None:
    assert not desired(session.tree, NODE).warnings
    nvidia = (*rooms.CONTAINERD, "configurations", "nvidia-cri")
    session.set(nvidia, "content", '[plugins."io.containerd.grpc.v1.cri".containerd]\nsnapshotter = "overlayfs"\n')
    (warning,) = desired(session.tree, NODE).warnings
    assert "containerd-cri and nvidia-cri" in warning
    assert "io.containerd.grpc.v1.cri" in warning
    session.set(nvidia, "content", "[plugins")
    (warning,) = desired(session.tree, NODE).warnings
    assert "nvidia-cri" in warning
    assert "not TOML" in warning


@pytest.mark.external
def test_a_real_containerd_reads_main_file_and_drop_ins(session: Session, tmp_path: pathlib.Path) -> None:
    program = programs.on_path("containerd")
    (tmp_path / "conf.d").mkdir()
    for file in desired(session.tree, NODE).files:
        if "/containerd/" in file.path:
            relative = file.path.removeprefix("/cm/local/apps/containerd/var/etc/")
            text = file.content.replace("/cm/local/apps/containerd/var/etc", str(tmp_path))
            (tmp_path / relative).write_text(text)
    done = subprocess.run(
        [program, "--config", tmp_path / "config.toml", "config", "dump"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    cri = tomllib.loads(done.stdout)["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["sandbox_image"] == "registry.k8s.io/pause:3.9"
