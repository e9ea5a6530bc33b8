"""The agent as a program: it follows a head, keeps what holds, tells what it did, and goes on without a head."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.agent.machines import FakeHead, Machine, desired, elapse, passing
from tests.ui.rest.serving import Served, served
from tests.waiting import until

from bedplate.agent import loop, news, state
from bedplate.agent.commands import Ended
from bedplate.agent.images import Done
from bedplate.agent.kubeadm import Kubeadm
from bedplate.agent.link import Link, Login
from bedplate.agent.loop import Agent
from bedplate.agent.node import Pace
from bedplate.agent.observe import Edits
from bedplate.agent.power import boot_id
from bedplate.api.desired import Check, Errand, File, Service
from bedplate.api.headapi import Result
from bedplate.client import Unauthorized, Wanted
from bedplate.core import errors
from bedplate.core.backoff import Backoff
from bedplate.core.clock import ManualClock

CONF = File(path="/etc/app/app.conf", content="one\n", services=("app",), action="RESTART")
QUICK = Pace(poll_s=60.0, drift_s=1000.0, retry_s=0.05, longest_retry_s=0.05, gather_s=0.0, alive_s=1000.0)


def with_content(content: str, file: File = CONF) -> File:
    return msgspec.structs.replace(file, content=content)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "node")


@contextlib.asynccontextmanager
async def running(machine: Machine, head: Any, **options: Any) -> AsyncIterator[Agent]:
    agent = Agent(machine.effects, head, rng=random.Random(1), **{"pace": QUICK, **options})
    task = asyncio.create_task(agent.run())
    try:
        yield agent
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_the_node_becomes_what_the_head_says_and_the_head_knows_it(machine: Machine) -> None:
    head = FakeHead(desired(CONF, services=["app"]))
    async with running(machine, head):
        await until(lambda: head.applied == 1)
        assert machine.at(CONF.path).read_text() == "one\n"
        # What starts with a machine is not told.
        assert head.told() == []
        head.commit(desired(with_content("two"), services=["app"]))
        await until(lambda: head.applied == 2)
        assert machine.at(CONF.path).read_text() == "two"
        assert head.told() == ["service app was restarted"]
        assert head.reports[-1].digest == head.state.digest


async def test_after_a_restart_nothing_is_done_twice(machine: Machine) -> None:
    head = FakeHead(desired(CONF, services=["app"]))
    async with running(machine, head):
        await until(lambda: head.applied == 1)
    again = Machine(machine.folder)
    again.services.running["app"] = 7
    async with running(again, head):
        await until(lambda: head.polls >= 3)
        assert again.services.did == []


async def test_what_failed_is_told_once_and_tried_again(machine: Machine) -> None:
    machine.services.broken["app"] = "exit code 1"
    head = FakeHead(desired(CONF, services=["app"]))
    async with running(machine, head):
        await until(lambda: head.told() == ["service app could not be started"])
        await until(lambda: machine.services.did.count("start app") >= 3)
        assert head.applied == 0
        del machine.services.broken["app"]
        await until(lambda: head.applied == 1)
        assert head.told() == ["service app could not be started", "service app was started"]


async def test_what_the_machine_does_without_for_now_is_tried_again_with_each_look_at_packages(
    machine: Machine,
) -> None:
    tries = list[int]()

    async def again() -> None:
        tries.append(len(tries))

    machine.effects = dataclasses.replace(machine.effects, again=again)
    head = FakeHead(desired(CONF, services=["app"]))
    pace = dataclasses.replace(QUICK, drift_s=0.02)
    async with running(machine, head, pace=dataclasses.replace(pace, packages_s=0.05)):
        await until(lambda: len(tries) >= 3)
    tries.clear()
    async with running(machine, head, pace=dataclasses.replace(pace, packages_s=1e6)):
        await until(lambda: bool(tries))
        machine.services.running.pop("app")
        await until(lambda: machine.services.did.count("start app") >= 2)
    assert len(tries) == 1, "a look at services alone does not try it"


async def test_what_fails_again_with_another_revision_is_told_again(machine: Machine) -> None:
    """Whoever committed it waits for this node: that it was tried in vain is news, although the reason is not."""
    machine.services.broken["app"] = "exit code 1"
    head = FakeHead(desired(CONF, services=["app"]))
    async with running(machine, head):
        await until(lambda: [report.tried for report in head.reports if report.failures] == [1])
        head.commit(desired(with_content("two"), services=["app"]))
        await until(lambda: [report.tried for report in head.reports if report.failures] == [1, 2])
        assert machine.at(CONF.path).read_text() == "two"


async def test_a_revision_that_cannot_even_be_written_down_is_told_as_tried(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk with the agent's own state is full: whoever committed it learns that from this node, too."""
    head = FakeHead(desired(CONF))
    async with running(machine, head):
        await until(lambda: head.applied == 1)

        def full(*_: object) -> None:
            raise state.StateProblem("no space left on device", hint="free space")

        monkeypatch.setattr(machine.effects.state, "save_held", full)
        head.commit(desired(with_content("two")))
        await until(lambda: [report.tried for report in head.reports if report.failures] == [2])
        monkeypatch.undo()
        await until(lambda: head.applied == 2)


async def test_no_poll_is_longer_than_others_while_what_failed_waits_for_its_next_try(machine: Machine) -> None:
    """The head refuses longer ones; and what is tried again seldom is not tried with every poll."""
    clock, waits = ManualClock(), list[float]()
    machine.services.broken["app"] = "exit code 1"
    head = FakeHead(desired(CONF, services=["app"]))
    is_polling = asyncio.Event()

    class Timed:
        """The head, with polls that take their time by the clock."""

        async def desired(self, etag: str, wait_s: float) -> Wanted | None:
            if etag == head.state.etag:
                waits.append(wait_s)
                is_polling.set()
                await clock.sleep(wait_s)
                is_polling.clear()
            return await head.desired(etag, 0.0)

        def __getattr__(self, name: str) -> Any:
            return getattr(head, name)

    pace = Pace(poll_s=120.0, drift_s=1e6, retry_s=30.0, longest_retry_s=600.0, gather_s=0.0, alive_s=1e6)
    async with running(machine, Timed(), clock=clock, pace=pace):
        for number, span_s in enumerate((30, 60, 120, 240, 480), start=1):
            for _ in range(0, span_s, 30):
                await is_polling.wait()
                assert machine.services.did.count("start app") == number
                await clock.advance(30)
        await is_polling.wait()
        assert waits == [30.0, 60.0, 120.0, *[120.0] * 2, *[120.0] * 4, 120.0]


async def test_without_a_head_the_last_state_is_kept(machine: Machine) -> None:
    head = FakeHead(desired(CONF, services=["app"]))
    async with running(machine, head):
        await until(lambda: head.applied == 1)
    head.failing = errors.Unavailable("the head is away")
    again = Machine(machine.folder)
    again.put(CONF.path, "by hand")
    async with running(again, head) as agent:
        await agent.settled.wait()
        await until(lambda: "start app" in again.services.did)
        assert again.at(CONF.path).read_text() == "one\n"
        head.failing = None
        await until(lambda: head.told() == [f"file {CONF.path} was restored"])


async def test_why_there_is_no_head_is_logged_once_for_each_reason(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is restarted, and refuses this node then, is no longer one that cannot be reached."""
    clock, said, hints = ManualClock(), list[str](), list[str]()

    class Log:
        def warning(self, event: str, *, error: str, hint: str) -> None:
            said.append(error)
            hints.append(hint)

    monkeypatch.setattr(loop, "_LOG", Log())
    head = FakeHead(desired(CONF))
    head.failing = errors.Unavailable("the head cannot be reached")
    async with running(machine, head, clock=clock):
        await until(lambda: head.polls == 1)
        refusals = (
            errors.Denied("there is no device of that name", hint="ask an administrator"),
            Unauthorized("the certificate was revoked", hint="sign in again"),
        )
        for reason in (head.failing, *refusals):
            head.failing, polls = reason, head.polls

            async def advances(polls: int = polls) -> bool:
                await clock.advance(60)
                return head.polls > polls + 2

            await until(advances)
    assert said == ["the head cannot be reached", "there is no device of that name", "the certificate was revoked"]
    # A machine cannot sign in.
    assert hints[:2] == ["", "ask an administrator"] and "bedplate-agent enrol" in hints[2]


async def test_results_of_the_time_without_a_head_are_told_later_with_their_age(tmp_path: Path) -> None:
    clock = ManualClock()
    machine = Machine(tmp_path / "node")
    head = FakeHead(desired(checks=(Check(name="load", interval_s=60.0),)))

    def results() -> list[Result]:
        return [result for report in head.reports for result in report.results if result.check == "load"]

    async with running(machine, head, clock=clock) as agent:
        await passing(clock, lambda: head.applied == 1)
        head.reports.clear()
        head.failing = errors.Unavailable("the head is away")
        await passing(clock, lambda: [one.check for _, one in agent._news.outbox.results].count("load") >= 3)
        assert head.reports == []
        head.failing = None
        await passing(clock, lambda: len(results()) >= 3)
        assert results()[0].age_s > 60
        assert results()[-1].age_s < results()[0].age_s - 60


async def test_item_218_a_file_changed_by_hand_is_put_right_and_told(tmp_path: Path) -> None:
    clock = ManualClock()
    machine = Machine(tmp_path / "node")
    head = FakeHead(desired(CONF, services=["app"]))
    async with running(machine, head, clock=clock, pace=Pace()):
        await elapse(clock, 1)
        await until(lambda: head.applied == 1)
        machine.put(CONF.path, "by hand", 0o600)
        await passing(clock, lambda: machine.at(CONF.path).read_text() == "one\n")
        assert machine.at(CONF.path).stat().st_mode & 0o777 == 0o644
        await elapse(clock, 1)
        assert head.told() == [f"file {CONF.path} was restored", "service app was restarted"]
        text = next(report.actions[0].text for report in head.reports if report.actions)
        assert text.startswith("it was changed by hand (20")


@pytest.mark.parametrize(("policy", "verb"), [("report", "left"), ("keep", "kept")])
async def test_item_218_a_change_by_hand_may_be_left(tmp_path: Path, policy: Any, verb: str) -> None:
    clock = ManualClock()
    machine = Machine(tmp_path / "node", edits=Edits(policy))
    head = FakeHead(desired(CONF, services=["app"]))
    async with running(machine, head, clock=clock, pace=Pace()):
        await elapse(clock, 1)
        await until(lambda: head.applied == 1)
        machine.put(CONF.path, "by hand")
        await passing(clock, lambda: head.told() == [f"file {CONF.path} was {verb}"])
        head.reports.clear()
        results: list[Result] = []

        def is_checked() -> bool:
            reported = [result for report in head.reports for result in report.results]
            results[:] = [result for result in reported if result.check == "ManagedFilesOk"]
            return bool(results)

        await passing(clock, is_checked)
        assert machine.at(CONF.path).read_text() == "by hand"
        assert head.told() == []
        assert results[-1].status == ("FAIL" if policy == "report" else "PASS")
        assert (CONF.path in results[-1].info) == (policy == "report")
        head.commit(desired(with_content("two"), services=["app"]))
        await passing(clock, lambda: head.applied == 2)
        assert machine.at(CONF.path).read_text() == ("two" if policy == "report" else "by hand")


async def test_the_head_says_what_is_done_about_changes_by_hand(tmp_path: Path) -> None:
    clock = ManualClock()
    machine = Machine(tmp_path / "node")
    head = FakeHead(desired(CONF, settings={"hand_edit_paths": f"{CONF.path}=KEEP"}))
    async with running(machine, head, clock=clock, pace=Pace()):
        await elapse(clock, 1)
        await until(lambda: head.applied == 1)
        machine.put(CONF.path, "by hand")
        await elapse(clock, 31)
        head.commit(desired(with_content("two"), settings={"hand_edit_paths": f"{CONF.path}=KEEP"}))
        await until(lambda: machine.state.held().applied == 2)
        await elapse(clock, 2)
        assert machine.at(CONF.path).read_text() == "by hand"
        assert head.told() == [f"file {CONF.path} was kept"]
        # What is to be restored from now on is restored with the same commit.
        head.commit(desired(with_content("two"), settings={"hand_edits": "RESTORE"}))
        await until(lambda: machine.at(CONF.path).read_text() == "two")


async def test_all_reports_of_an_agent_carry_one_number_and_another_after_a_start(machine: Machine) -> None:
    head = FakeHead(desired(CONF, services=["app"]))
    runs = []
    for seed in (1, 2):
        agent = Agent(machine.effects, head, rng=random.Random(seed), pace=QUICK)
        task = asyncio.create_task(agent.run())
        before = len(head.reports)
        await until(lambda before=before: len(head.reports) > before)
        agent._news.is_due.set()
        await until(lambda before=before: len(head.reports) > before + 1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        runs.append({report.run for report in head.reports[before:]})
    assert [len(each) for each in runs] == [1, 1] and runs[0] != runs[1] and "" not in runs[0] | runs[1]


async def test_a_service_that_died_is_started_again_each_time_after_a_longer_while(tmp_path: Path) -> None:
    clock = ManualClock()
    machine = Machine(tmp_path / "node")
    head = FakeHead(desired(services=["app"]))
    async with running(machine, head, clock=clock, pace=Pace()):
        await elapse(clock, 1)
        await until(lambda: head.applied == 1)
        for _ in range(40):
            machine.services.running.clear()
            await elapse(clock, 30)
        starts = machine.services.did.count("start app") - 1
        assert 4 <= starts <= 8
        assert "service app was started" in head.told()


async def test_a_service_that_cannot_be_started_again_is_tried_each_time_after_a_longer_while(tmp_path: Path) -> None:
    clock = ManualClock()
    machine = Machine(tmp_path / "node")
    head = FakeHead(desired(services=["app"]))
    async with running(machine, head, clock=clock, pace=Pace()):
        await elapse(clock, 1)
        await until(lambda: head.applied == 1)
        machine.services.running.clear()
        machine.services.broken["app"] = "exit code 1"
        for _ in range(40):
            await elapse(clock, 30)
        assert 4 <= machine.services.did.count("start app") - 1 <= 8
        assert "service app could not be started" in head.told()


async def test_a_service_that_stays_sick_is_restarted_each_time_after_a_longer_while(tmp_path: Path) -> None:
    clock = ManualClock()
    machine = Machine(tmp_path / "node")
    sick = Service(name="app", sickness_script="/opt/check", sickness_interval=30)
    machine.commands.answers[str(machine.at("/opt/check"))] = Ended(2, "", "no answer")
    head = FakeHead(msgspec.structs.replace(desired(), services=(sick,)))
    async with running(machine, head, clock=clock, pace=Pace()):
        await elapse(clock, 1)
        await until(lambda: head.applied == 1)
        for _ in range(40):
            await elapse(clock, 30)
        assert 4 <= machine.services.did.count("restart app") <= 8
        assert "service app was restarted" in head.told()


async def test_a_member_that_died_is_started_without_waiting_for_a_turn(machine: Machine) -> None:
    """The others of its cluster may be waiting for it; a head that gives turns may be away."""
    taken: list[str] = []

    class Counted:
        def take(self, serial: str, service: str) -> contextlib.AbstractAsyncContextManager[object]:
            taken.append(serial)
            return contextlib.nullcontext()

    machine.effects = dataclasses.replace(machine.effects, turns=Counted())
    member = Service(name="etcd", serial="etcd:kube")
    head = FakeHead(msgspec.structs.replace(desired(), services=(member,)))
    async with running(machine, head, pace=dataclasses.replace(QUICK, drift_s=0.02)):
        await until(lambda: head.applied == 1)
        assert taken == ["etcd:kube"]
        machine.services.running.clear()
        await until(lambda: machine.services.did.count("start etcd") == 2)
    assert taken == ["etcd:kube"]


@pytest.mark.parametrize("module", [loop, news])
async def test_after_an_answer_of_the_head_the_next_try_comes_soon_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, module: Any
) -> None:
    waits: list[float] = []

    class Noted(Backoff):
        def next(self) -> float:
            waits.append(super().next())
            return waits[-1]

    monkeypatch.setattr(module, "Backoff", Noted)
    clock, head = ManualClock(), FakeHead(desired(CONF))
    async with running(machine, head, clock=clock) as agent:
        await passing(clock, lambda: head.applied == 1)
        for revision in (2, 3):
            waits.clear()
            head.failing = errors.Unavailable("the head is away")
            head.wake()
            agent._news.is_due.set()
            await passing(clock, lambda: len(waits) >= 6)
            assert waits[0] <= 2.0 < 20.0 < waits[5]
            head.failing = None
            head.commit(desired(with_content(f"{revision}")))
            await passing(clock, lambda revision=revision: head.applied == revision)


async def test_results_from_before_the_clock_was_set_are_told_without_an_age(machine: Machine) -> None:
    """A machine without a clock of its own starts in 1970; a head refuses ages of half a century, and with them all
    that is told beside them."""
    head = FakeHead(desired(checks=()))
    agent = Agent(machine.effects, head)
    machine.state.open()
    news = agent._news
    now_s = agent._node.clock.now().timestamp()
    for measured_s in (100.0, now_s - 1000.0, now_s + 1000.0):
        news.outbox.results.append((measured_s, Result("load", "PASS", 1.0)))
    await news._report()
    (report,) = head.reports
    assert [round(result.age_s, -2) for result in report.results] == [0.0, 1000.0, 0.0]


async def test_a_credential_that_cannot_be_read_costs_no_news(machine: Machine, tmp_path: Path) -> None:
    """It is put right, and then the head learns what happened meanwhile."""
    (tmp_path / "ca.crt").write_text("not a certificate")
    login = Login("node001", ("https://127.0.0.1:9",), ca_file=str(tmp_path / "ca.crt"))
    machine.state.open()
    async with Link(login) as link:
        agent = Agent(machine.effects, link)
        agent._news.acted("file", "/etc/motd", "restored")
        with pytest.raises(errors.Denied, match=r"ca\.crt cannot be read"):
            await agent._news._report()
        assert [action.name for action in agent._news.outbox.actions] == ["/etc/motd"]


async def test_of_what_could_not_be_told_the_newest_is_kept(machine: Machine) -> None:
    kept = Agent(machine.effects, FakeHead(desired()))._news
    kept.measured([Result("load", "PASS", float(number)) for number in range(1100)])
    for number in range(600):
        kept.acted("file", f"/{number}", "restored")
    assert [result.value for _, result in kept.outbox.results] == [float(number) for number in range(100, 1100)]
    assert [action.name for action in kept.outbox.actions] == [f"/{number}" for number in range(100, 600)]


async def test_what_could_not_be_told_is_told_by_the_next_agent(machine: Machine) -> None:
    head = FakeHead(desired(CONF))
    async with running(machine, head):
        await until(lambda: head.applied == 1)
    head.failing = errors.Unavailable("the head is away")
    machine.put(CONF.path, "by hand")
    second = Machine(machine.folder)
    async with running(second, head):
        await until(lambda: bool(second.state.outbox().actions))
    head.failing = None
    async with running(Machine(machine.folder), head):
        await until(lambda: head.told() == [f"file {CONF.path} was restored"], describe=head.told)


async def test_a_full_disk_is_told_and_the_state_stays(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    head = FakeHead(desired(CONF))
    async with running(machine, head):
        await until(lambda: head.applied == 1)
        write = machine.state._write

        def full(name: str, content: bytes) -> None:
            from bedplate.agent.state import StateProblem

            raise StateProblem("the agent's state cannot be used: no space left on device", hint="free space")

        monkeypatch.setattr(machine.state, "_write", full)
        head.commit(desired(with_content("two")))
        await until(lambda: any("could not be written" in word for word in head.told()))
        assert machine.at(CONF.path).read_text() == "one\n"
        monkeypatch.setattr(machine.state, "_write", write)
        await until(lambda: head.applied == 2)
        assert machine.at(CONF.path).read_text() == "two"


async def test_a_report_that_the_head_refuses_does_not_block_the_next(machine: Machine) -> None:
    head = FakeHead(desired(CONF, services=["app"]))
    refused = []
    report = head.report

    async def strict(request: Any) -> int:
        if request.actions and not refused:
            refused.append(request)
            raise errors.Invalid("no")
        return await report(request)

    head.report = strict  # type: ignore[method-assign]
    async with running(machine, head):
        await until(lambda: head.applied == 1)
        head.commit(desired(with_content("two"), services=["app"]))
        await until(lambda: bool(refused))
        head.commit(desired(with_content("three"), services=["app"]))
        await until(lambda: head.applied == 3)


async def test_an_interrupted_change_is_finished_even_without_a_head(machine: Machine) -> None:
    head = FakeHead(desired(CONF, services=["app"]))
    async with running(machine, head):
        await until(lambda: head.applied == 1)
    second = desired(with_content("two"), services=["app"], revision=2)
    await machine.applier.apply(head.state, second, second.digest)
    machine.state.close()
    machine.put(CONF.path, "one\n")
    (Path(machine.state.folder) / "journal").write_bytes(
        (Path(machine.state.folder) / "journal").read_bytes().split(b"\n")[0] + b"\n"
    )
    head.failing = errors.Unavailable("away")
    again = Machine(machine.folder)
    async with running(again, head) as agent:
        await agent.recovered.wait()
        assert again.at(CONF.path).read_text() == "two"
        assert (agent.held.applied, agent.held.etag, agent.held.is_whole) == (2, second.digest, True)


async def test_a_request_is_accepted_carried_out_once_and_told(machine: Machine) -> None:
    head = FakeHead(desired(services=["app"], errands=(Errand(id="e1", kind="reboot"),)))
    async with running(machine, head):
        await until(lambda: head.applied == 1)
    async with running(Machine(machine.folder), head):
        await until(lambda: head.polls >= 3)
    again = Machine(machine.folder)
    again.services.running["app"] = 1
    async with running(again, head):
        # The head still has the request, with another state.
        head.commit(desired(with_content("two"), services=["app"], errands=head.state.errands))
        await until(lambda: head.applied == 2)
    told = [(item.id, item.state) for report in head.reports for item in report.errands]
    assert told == [("e1", "accepted"), ("e1", "done")]
    assert "stop app" not in again.services.did


async def test_a_node_becomes_what_it_should_be_before_kubeadm_makes_it_part_of_a_cluster(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been asked because of what it said before its role went: by now it has no packages."""
    seen: list[tuple[str, bool]] = []

    async def run(self: Kubeadm, work: Errand, tell: Any) -> Done:
        seen.append((work.action, machine.at(CONF.path).exists()))
        return Done(text="is done")

    monkeypatch.setattr(Kubeadm, "run", run)
    head = FakeHead(desired())
    async with running(machine, head):
        await until(lambda: head.applied == 1)
        join = Errand(id="e1", kind="kubeadm", action="join", cluster="x")
        head.commit(desired(CONF, services=["app"], errands=(join,)))
        await until(lambda: head.applied == 2)
        reset = Errand(id="e2", kind="kubeadm", action="reset", cluster="x")
        head.commit(desired(errands=(reset,)))
        await until(lambda: head.applied == 3)
    # What takes a node out of a cluster needs them still.
    assert seen == [("join", True), ("reset", True)]


@pytest.mark.parametrize("lost_state", ["accepted", "done"])
async def test_a_request_is_carried_out_once_and_told_whichever_report_is_lost(
    machine: Machine, lost_state: str
) -> None:
    head = FakeHead(desired(services=["app"]))
    async with running(machine, head):
        await until(lambda: head.applied == 1)
        machine.services.did.clear()
        report, done_before = head.report, list[list[str]]()

        async def lost(request: Any) -> int:
            if not done_before and any(item.state == lost_state for item in request.errands):
                done_before.append(list(machine.services.did))
                raise errors.Unavailable("the head is away")
            return await report(request)

        head.report = lost  # type: ignore[method-assign]
        head.commit(desired(services=["app"], errands=(Errand(id="e1", kind="reboot"),)))

        def told() -> list[str]:
            return [item.state for each in head.reports for item in each.errands]

        await until(lambda: told() == ["accepted", "done"], describe=told)
        assert done_before == [[] if lost_state == "accepted" else ["stop app", "start app"]]
        assert machine.services.did == ["stop app", "start app"]


async def test_a_sandbox_that_is_switched_off_stops_its_services_and_its_agent(machine: Machine) -> None:
    head = FakeHead(desired(services=["app"]))
    agent = Agent(machine.effects, head, rng=random.Random(1), pace=QUICK)
    task = asyncio.create_task(agent.run())
    await until(lambda: head.applied == 1)
    head.commit(desired(services=["app"], errands=(Errand(id="e1", kind="off"),)))
    await task
    assert machine.services.running == {}
    assert [item.state for report in head.reports for item in report.errands] == ["accepted", "done"]


async def test_a_restart_of_the_machine_is_done_when_the_machine_runs_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.state.open()
    machine.state.save_errand("e1", state.Errand("accepted", "reboot", "an earlier run"))
    machine.state.save_errand("e2", state.Errand("accepted", "reboot", boot_id()))
    head = FakeHead(desired())
    async with running(machine, head):
        await until(lambda: head.applied == 1)
    told = [(item.id, item.state, item.text) for report in head.reports for item in report.errands]
    assert told == [("e1", "done", ""), ("e2", "failed", "the agent ended before it was carried out")]


# With a real head


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Served]:
    (tmp_path / "head").mkdir()
    async with served(tmp_path / "head") as opened:
        yield opened


async def test_a_commit_reaches_the_node_and_is_reported(server: Served, machine: Machine, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(server.tokens["node001"] + "\n")
    login = Login("node001", (server.url,), token_file=str(token))
    async with Link(login) as link, running(machine, link), server.client() as admin:
        await until(lambda: server.health.node_state("node001").applied >= 1)
        assert machine.at("/etc/kubernetes/kubelet.env").exists()
        assert machine.at("/cm/local/apps/etcd/current/etc/cm-etcd.conf").exists()
        overlay = await admin.get("configurationoverlay", "kube-default-master")
        roles = {**overlay.children["roles"]}
        roles["kubelet"] = {**roles["kubelet"], "values": {**roles["kubelet"]["values"], "max_pods": 77}}
        await admin.put(
            "configurationoverlay",
            "kube-default-master",
            overlay.values,
            type=overlay.type,
            children={**overlay.children, "roles": roles},
            base=overlay.revision,
        )
        await until(lambda: "--max-pods=77" in machine.at("/etc/kubernetes/kubelet.env").read_text())
        await until(lambda: server.health.node_state("node001").applied == server.head.revision)

        async def told() -> bool:
            return "Service kubelet was restarted" in [notice.text for notice in await admin.notices()]

        await until(told)


KUBERNETES = {
    "KubernetesChildNode",
    "KubernetesComponentsStatus",
    "KubernetesNodesStatus",
    "KubernetesPodsStatus",
}


async def test_item_157_the_checks_of_kubernetes_come_with_the_role_and_go_with_it(
    server: Served, machine: Machine, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(server.tokens["node001"] + "\n")
    login = Login("node001", (server.url,), token_file=str(token))
    machine.put("/etc/kubernetes/admin.conf", "")

    def checks() -> set[str]:
        return {check.check for check in server.health.node_state("node001").checks}

    async with server.client() as admin:
        for name in KUBERNETES:
            if server.head.tree.find("healthcheck", name) is None:
                await admin.put("healthcheck", name, {})
        # Checks that are new begin with the next look for drift.
        async with Link(login) as link, running(machine, link, pace=dataclasses.replace(QUICK, drift_s=0.1)):
            await until(lambda: checks() >= KUBERNETES, describe=checks)
            await admin.patch("configurationoverlay", "kube-default-worker", {"categories": []})
            await admin.patch("configurationoverlay", "kube-default-master", {"nodes": ["node002", "node003"]})
            await until(lambda: checks() and not checks() & KUBERNETES, describe=checks)
            history = await admin.health("node001")
            assert not {one.check for one in history.history} & KUBERNETES


async def test_a_node_cannot_ask_for_another(server: Served, machine: Machine, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(server.tokens["node001"])
    async with Link(Login("node002", (server.url,), token_file=str(token))) as link:
        with pytest.raises(errors.Denied):
            await link.desired("", 0.0)


async def test_a_new_token_is_used_without_a_restart(server: Served, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("bph_wrong")
    async with Link(Login("node001", (server.url,), token_file=str(token))) as link:
        with pytest.raises(errors.Denied):
            await link.desired("", 0.0)
        token.write_text(server.tokens["node001"])
        assert await link.desired("", 0.0) is not None
