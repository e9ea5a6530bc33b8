"""One simulated machine carries out the steps from one desired state to the next, in memory."""

from __future__ import annotations

from typing import Any

import pytest

from bedplate.api.desired import BEGIN, END, Check, Desired, File, Service
from bedplate.api.steps import Outcome, Step, carry_out, notice
from bedplate.sim.device import DISK, GPU, LOAD, NTP, Device, Reading, Refusal, nothing_fails, read_check

PROXY = "/etc/nginx/nginx.conf"


def proxy(content: str, **more: Any) -> File:
    values: dict[str, Any] = {"services": ("nginx",), "action": "RELOAD", "test": ("nginx", "-t", "-c", "{}"), **more}
    return File(path=PROXY, content=content, **values)


def state(*files: File, services: tuple[str, ...] = ("nginx",), **more: Any) -> Desired:
    return Desired(node="node001", files=files, services=tuple(Service(name=name) for name in services), **more)


def settle(device: Device, wanted: Desired, refuse: Refusal = nothing_fails) -> Outcome:
    outcome = carry_out(device.held, wanted, lambda step: device.do(step, wanted, refuse))
    device.held = outcome.held
    return outcome


def test_a_new_machine_gets_its_files_and_starts_its_services() -> None:
    device = Device("node001", 0)
    settle(device, state(proxy("one")))
    assert device.files == {PROXY: "one"}
    assert device.services == {"nginx": "running"}


def test_a_changed_file_reloads_its_service_as_the_state_says() -> None:
    device = Device("node001", 0)
    settle(device, state(proxy("one")))
    outcome = settle(device, state(proxy("two")))
    assert device.files[PROXY] == "two"
    assert [notice(step) for step in outcome.done if notice(step)] == ["Service nginx was reloaded"]


def test_item_131_a_configuration_that_its_test_refuses_is_never_loaded() -> None:
    device = Device("node001", 0)
    settle(device, state(proxy("good")))

    def test_fails(node: str, step: Step, file: File | None) -> str | None:
        is_wrong = step.verb == "test" and file is not None and "wrong" in file.content
        return 'unknown directive "wrong"' if is_wrong else None

    outcome = settle(device, state(proxy("wrong")), test_fails)
    assert device.files[PROXY] == "good"
    assert [(one.step.verb, one.why) for one in outcome.failed] == [("test", 'unknown directive "wrong"')]
    assert not [step for step in outcome.done if step.kind == "service"]
    settle(device, state(proxy("good again")), test_fails)
    assert device.files[PROXY] == "good again"


def test_item_124_a_file_that_cannot_be_written_stops_its_service_where_it_says_so() -> None:
    device = Device("node001", 0)
    settle(device, state(proxy("one", stop_on_failure=True)))

    def is_full(node: str, step: Step, file: File | None) -> str | None:
        return "no space left on device" if step.verb == "write" else None

    settle(device, state(proxy("two", stop_on_failure=True)), is_full)
    assert device.files[PROXY] == "one"
    assert device.services == {"nginx": "stopped"}


def test_what_others_wrote_around_a_block_stays_when_the_block_goes() -> None:
    device = Device("node001", 0, files={"/etc/hosts": "127.0.0.1 localhost\n"})
    settle(device, state(File(path="/etc/hosts", content="10.0.0.1 head", block=True), services=()))
    assert device.files["/etc/hosts"] == f"127.0.0.1 localhost\n{BEGIN}\n10.0.0.1 head\n{END}\n"
    settle(device, state(services=()))
    assert device.files == {"/etc/hosts": "127.0.0.1 localhost\n"}


def test_a_file_that_goes_is_removed_and_a_service_that_goes_is_stopped() -> None:
    device = Device("node001", 0)
    settle(device, state(proxy("one")))
    settle(device, state(services=()))
    assert device.files == {}
    assert device.services == {"nginx": "stopped"}


def test_checks_are_run_when_they_are_due() -> None:
    device = Device("node001", 0)
    settle(device, state(checks=(Check(name=LOAD, interval_s=30), Check(name=NTP, interval_s=60))))
    assert [one.check for one in device.readings(1000.0)] == [LOAD, NTP]
    assert device.readings(1010.0) == []
    assert [one.check for one in device.readings(1031.0)] == [LOAD]


def test_a_machine_without_gpus_measures_none() -> None:
    device = Device("node001", 0)
    settle(device, state(checks=(Check(name=GPU),)))
    assert device.readings(1000.0) == []
    settle(device, state(checks=(Check(name=GPU),), labels={"nvidia.com/gpu.present": "true"}))
    assert [one.check for one in device.readings(2000.0)] == [GPU]


HOUR = [float(60 * minute) for minute in range(240)]
MEASURED = (DISK, LOAD, GPU, NTP)


@pytest.mark.parametrize("check", MEASURED)
def test_a_value_is_the_same_when_asked_again_and_moves_with_time(check: str) -> None:
    first = [read_check(4, check, now_s) for now_s in HOUR]
    assert first == [read_check(4, check, now_s) for now_s in HOUR]
    assert len({one.value for one in first}) > 20


def test_most_pass_some_fail_and_every_fault_ends() -> None:
    for check in (*MEASURED, "Docker", "KubernetesNodesStatus"):
        for node in range(30):
            said = [read_check(node, check, now_s).status for now_s in HOUR]
            assert said.count("PASS") > len(said) // 2, (check, node)
    hot = [read_check(5, GPU, now_s) for now_s in HOUR]
    full = [read_check(3, DISK, now_s) for now_s in HOUR]
    for found in (hot, full):
        failed = [one for one in found if one.status == "FAIL"]
        assert failed and failed[0].value is not None and "is the limit" in failed[0].info
        assert len(failed) < len(found)


def test_a_check_without_a_value_fails_on_some_node_at_some_time() -> None:
    faults = [
        (node, check)
        for node in range(40)
        for check in ("Docker", "KubernetesNodesStatus", "KubernetesChildNode")
        if any(read_check(node, check, now_s) == Reading("FAIL", None, "no answer") for now_s in HOUR)
    ]
    assert faults
    assert {node % 10 for node, _ in faults} == {7}
