"""From one desired state to the next: the order of steps, and what follows when one fails."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.api.desired import Desired, File, Flag, Service, Taint
from bedplate.api.steps import Step, carry_out, notice, steps, walk

MAIN = File(path="/etc/main", content="1", services=("a",), action="RESTART", stop_on_failure=True)
SIDE = File(path="/etc/side", content="1", services=("a", "b"), action="RELOAD", test=("check", "{}"))
UNIT = File(path="/etc/systemd/system/a.service.d/x.conf", content="1", services=("a",), action="RESTART")
FIRST = Desired(
    node="n",
    files=(MAIN, SIDE),
    packages=("p",),
    services=(Service(name="a"), Service(name="b")),
    labels={"l": "1"},
    flags=(Flag(manifest="m.yaml", container="m", key="k"),),
    taints=(Taint(key="t", effect="NoSchedule"),),
)


def changed(*files: File) -> Desired:
    held = {file.path: file for file in FIRST.files}
    held.update((file.path, file) for file in files)
    return msgspec.structs.replace(FIRST, files=tuple(held[path] for path in sorted(held)))


def with_content(file: File, content: str = "2") -> File:
    return msgspec.structs.replace(file, content=content)


def words(found: list[Step] | tuple[Step, ...]) -> list[str]:
    return [f"{step.verb} {step.kind} {step.name}" for step in found]


def failing(*texts: str) -> Callable[[Step], str | None]:
    return lambda step: "broken" if f"{step.verb} {step.kind} {step.name}" in texts else None


def test_a_new_node_does_everything_in_order() -> None:
    assert words(steps(None, FIRST)) == [
        "install package p",
        "write file /etc/main",
        "test file /etc/side",
        "write file /etc/side",
        "start service a",
        "start service b",
        "set flag m.yaml:m:k",
        "set label l",
        "set taint t:NoSchedule",
    ]


def test_nothing_is_done_twice() -> None:
    assert steps(FIRST, FIRST) == []
    assert steps(FIRST, msgspec.structs.replace(FIRST, revision=9)) == []


def test_a_restart_makes_a_reload_needless() -> None:
    assert words(steps(FIRST, changed(with_content(MAIN), with_content(SIDE))))[-2:] == [
        "restart service a",
        "reload service b",
    ]


def test_a_new_mode_is_a_change() -> None:
    assert words(steps(FIRST, changed(msgspec.structs.replace(MAIN, mode="0600")))) == [
        "write file /etc/main",
        "restart service a",
    ]


def test_what_is_done_about_a_file_may_change_without_doing_it() -> None:
    quiet = msgspec.structs.replace(MAIN, action="RELOAD", services=("b",), stop_on_failure=False, folder_mode="0700")
    assert steps(FIRST, changed(quiet)) == []
    assert carry_out(FIRST, changed(quiet), failing()).held == changed(quiet)


def test_units_are_read_again_before_services_act() -> None:
    assert words(steps(FIRST, changed(UNIT))) == [
        f"write file {UNIT.path}",
        "reload units units systemd",
        "restart service a",
    ]


def test_everything_is_taken_back_services_first() -> None:
    assert words(steps(FIRST, Desired(node="n", unmanaged=("/etc/side",)))) == [
        "stop service a",
        "stop service b",
        "remove file /etc/main",
        "release file /etc/side",
        "clear flag m.yaml:m:k",
        "clear label l",
        "clear taint t:NoSchedule",
        "remove package p",
    ]


def test_a_service_that_is_not_autostarted_is_left_alone() -> None:
    state = Desired(node="n", services=(Service(name="a", autostart=False),))
    assert steps(None, state) == []


def test_only_services_are_told_to_people() -> None:
    assert notice(Step("service", "nginx", "reload")) == "Service nginx was reloaded"
    assert notice(Step("file", "/x", "write")) == ""


def test_a_refused_file_is_kept_as_it_was_and_its_services_are_left_alone() -> None:
    wanted = changed(with_content(SIDE))
    outcome = carry_out(FIRST, wanted, failing("test file /etc/side"))
    assert outcome.done == ()
    assert outcome.held.files == FIRST.files
    assert words(steps(outcome.held, wanted))[0] == "test file /etc/side"


def test_a_service_is_not_started_without_the_file_that_was_refused() -> None:
    outcome = carry_out(None, FIRST, failing("test file /etc/side"))
    assert not [step for step in outcome.done if step.kind == "service"]
    assert words(steps(outcome.held, FIRST)) == [
        "test file /etc/side",
        "write file /etc/side",
        "start service a",
        "start service b",
    ]


def test_a_service_that_died_is_started_with_the_file_it_had() -> None:
    dead = msgspec.structs.replace(FIRST, services=())
    outcome = carry_out(dead, changed(with_content(SIDE)), failing("test file /etc/side"))
    assert words(outcome.done) == ["start service a", "start service b"]
    assert outcome.held.services == FIRST.services


def test_a_file_that_cannot_be_written_stops_its_services_where_it_says_so() -> None:
    wanted = changed(with_content(MAIN), with_content(SIDE))
    outcome = carry_out(FIRST, wanted, failing("write file /etc/main"))
    assert "stop service a" in words(outcome.done)
    assert "restart service a" not in words(outcome.done)
    assert "reload service b" in words(outcome.done)
    assert words(steps(outcome.held, wanted)) == ["write file /etc/main", "start service a"]


def test_a_failed_reload_is_tried_again_with_its_file() -> None:
    wanted = changed(with_content(SIDE))
    outcome = carry_out(FIRST, wanted, failing("reload service a"))
    assert words(steps(outcome.held, wanted)) == [
        "test file /etc/side",
        "write file /etc/side",
        "reload service a",
        "reload service b",
    ]


@pytest.mark.parametrize("lost", words(steps(None, FIRST)))
def test_whatever_fails_is_tried_again(lost: str) -> None:
    outcome = carry_out(None, FIRST, failing(lost))
    assert [f"{failed.step.verb} {failed.step.kind} {failed.step.name}" for failed in outcome.failed] == [lost]
    again = carry_out(outcome.held, FIRST, failing())
    assert lost in words(again.done)
    assert again.held == FIRST


@pytest.mark.parametrize("lost", words(steps(FIRST, Desired(node="n"))))
def test_whatever_could_not_be_taken_back_is_still_there(lost: str) -> None:
    outcome = carry_out(FIRST, Desired(node="n"), failing(lost))
    assert lost in words(steps(outcome.held, Desired(node="n")))


def test_steps_can_be_carried_out_one_at_a_time() -> None:
    going = walk(None, FIRST)
    seen = [next(going)]
    with pytest.raises(StopIteration) as end:
        while True:
            seen.append(going.send(None))
    assert end.value.value.done == tuple(seen)


files = st.builds(
    File,
    path=st.sampled_from(["/a", "/b", "/etc/systemd/system/u"]),
    content=st.sampled_from("xy"),
    services=st.sampled_from([(), ("s",), ("s", "t")]),
    action=st.sampled_from(["NONE", "RESTART", "RELOAD"]),
    test=st.sampled_from([(), ("true",)]),
    stop_on_failure=st.booleans(),
)
states = st.builds(
    Desired,
    node=st.just("n"),
    files=st.lists(files, max_size=3, unique_by=lambda file: file.path).map(
        lambda found: tuple(sorted(found, key=lambda file: file.path))
    ),
    packages=st.sampled_from([(), ("p",)]),
    services=st.sampled_from([(), (Service(name="s"),), (Service(name="s"), Service(name="t"))]),
    labels=st.dictionaries(st.sampled_from("lm"), st.sampled_from("12")),
)


@given(states, states, st.lists(st.booleans(), max_size=12))
def test_after_failures_the_next_attempt_gets_there(before: Desired, after: Desired, failures: list[bool]) -> None:
    left = list(failures)
    outcome = carry_out(before, after, lambda step: "broken" if left and left.pop() else None)
    assert bool(outcome.failed) == any(failures[::-1][: len(outcome.done) + len(outcome.failed)])
    again = carry_out(outcome.held, after, lambda step: None)
    assert again.held == after
    assert carry_out(again.held, after, lambda step: "nothing is left to do").failed == ()


def test_repositories_and_their_keys_are_written_before_packages_are_installed() -> None:
    paths = ("/etc/apt/keyrings/k.asc", "/etc/apt/sources.list.d/kubernetes.list", "/etc/yum.repos.d/kubernetes.repo")
    after = changed(*(File(path=path, content="1") for path in paths))
    order = words(steps(None, after))
    assert order[:4] == [*(f"write file {path}" for path in paths), "install package p"]
    assert [line for line in order if line.startswith("write file")] == [
        *(f"write file {path}" for path in paths),
        "write file /etc/main",
        "write file /etc/side",
    ]
    assert words(steps(after, after)) == []
    # What goes is removed after the last package is installed, as any other file.
    assert words(steps(after, FIRST)) == [f"remove file {path}" for path in paths]
