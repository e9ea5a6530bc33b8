"""Deploy, upgrade, remove, resume and undo: from the flags to stages, run by the engine under the state folder's lock.

In: the flags. Out: what the run prints, its journal, its exit code. What stages do is in `bedplate.setup.kubernetes`;
which of them there are is decided from the answers, which the journal keeps, so that a run that is resumed has the
same stages.
"""

from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import bedplate
from bedplate.core import errors, extras
from bedplate.core.clock import Clock, SystemClock
from bedplate.head.schema import ranges
from bedplate.setup import prechecks
from bedplate.setup.answers import aliases, declaration, document, fitting
from bedplate.setup.answers import site as sites
from bedplate.setup.answers.kinds import Secret
from bedplate.setup.engine import lock, order
from bedplate.setup.engine.events import Line, Output
from bedplate.setup.engine.journal import Journal, Record, StageRecord, unfinished, write_atomically
from bedplate.setup.engine.reporter import Reporter
from bedplate.setup.engine.run import EXIT_CODES, Run
from bedplate.setup.engine.said import Said
from bedplate.setup.engine.stage import Stage
from bedplate.setup.kubernetes import ceph
from bedplate.setup.services import Services
from bedplate.setup.tool import caretaking, heads, output

__all__ = ["Another", "perform", "stamped"]

TITLE = "Kubernetes Setup"
_OVERRIDES = {
    "skip_dns_configuration_check": "kubernetes.skip.dns_check",
    "skip_package_manager_update_check": "kubernetes.skip.package_manager_check",
    "no_distro_checks": "kubernetes.skip.distro_checks",
    "skip_install_repos": "kubernetes.skip.install_repos",
    "skip_packages": "kubernetes.skip.packages",
    "skip_package_install": "kubernetes.skip.packages",
    "skip_image_update": "kubernetes.skip.image_update",
    "skip_docker": "kubernetes.skip.docker",
    "skip_reboot": "kubernetes.skip.reboot",
    "skip_disksetup_changes": "kubernetes.skip.disksetup_changes",
    "min_reboot_timeout": "kubernetes.reboot_timeout",
    "strict": "kubernetes.strict",
    "skip_netq_prerequisites_checks": "kubernetes.skip.netq_checks",
    "kubeadm_image_repository": "kubernetes.images.repository",
    "containerd_sandbox_image": "kubernetes.images.sandbox",
    "docker_io_username": "kubernetes.docker_io.username",
    "docker_io_password": "kubernetes.docker_io.password",
}
"""Flags that are answers as well, and take precedence over those of the file."""


async def perform(action: str, values: Mapping[str, Any]) -> int:
    """Carry out an action that runs stages, or that asks about them; its exit code."""
    if action == "kubeconfig-of":
        return await _kubeconfig_of(values)
    return await Operation(values).perform(action)


class Operation:
    """One call of the program."""

    def __init__(self, values: Mapping[str, Any], clock: Clock | None = None) -> None:
        self._values = values
        self._clock = clock or SystemClock()
        data = heads.target(values).data if not values["url"] or values["data"] else None
        self._state = heads.state_folder(values["state"], data)

    async def perform(self, action: str) -> int:
        answers = None
        if action == "deploy":
            if self._values["config"] is not None:
                self._values = _with_password(self._values)
                answers = self._answers()
            else:
                self._check_attended()
        elif action == "remove" and not (self._values["yes_i_really_mean_it"] or self._values["plan"]):
            raise errors.Invalid(
                "removing a cluster destroys everything in it; nothing was changed",
                hint="give --yes-i-really-mean-it as well",
            )
        with output.reporter(self._values, self._state, self._clock, has_log=not self._values["plan"]) as reporter:
            reporter.emit(Line("Connecting to CMDaemon"))
            async with heads.reach(self._values) as reached:
                is_allowed = bool(self._values["allow_running_from_secondary"])
                await heads.check_standing(reached.backend, is_allowed=is_allowed)
                site = sites.of_tree(reached.backend.tree, reached.backend.name)
                if action == "deploy" and answers is None:
                    action, answers = await self._ask(reporter, site)
                match action:
                    case "exit":
                        return 0
                    case "deploy":
                        assert answers is not None
                        return await self._deploy(reporter, reached, site, answers)
                    case "remove":
                        return await self._remove(reporter, reached, site)
                    case "add-nodes" | "remove-nodes":
                        return await self._change(action, reporter, reached, site)
                    case "upgrade":
                        return await self._upgrade(reporter, reached, site)
                    case "configure-ingress" | "etcd-restore":
                        return await self._care(action, reporter, reached)
                    case _:
                        return await self._go_on(action, reporter, reached, site)

    # Deploying

    def _answers(self) -> document.Answers:
        file: pathlib.Path = self._values["config"]
        if self._values["store_name_aliases"]:
            raise errors.Invalid("--store-name-aliases is about what the wizard saves", hint="leave out -c")
        try:
            content = file.read_bytes()
        except OSError as err:
            raise errors.Invalid(f"{file} cannot be read: {err.strerror}") from err
        loaded = document.load(content, str(file))
        return document.Answers(self._overridden(loaded.values), loaded.lines)

    def _check_attended(self) -> None:
        """Refuse to ask where nobody could answer."""
        if not (sys.stdin.isatty() and sys.stdout.isatty()) or self._values["json"]:
            raise errors.Invalid("no answers were given", hint="give them with -c FILE, or run this at a terminal")
        if self._values["docker_io_password"] == "-":
            raise errors.Invalid(
                "--docker-io-password: - reads standard input, which is the wizard's",
                hint="leave it out, and answer the question of the wizard",
            )
        extras.require("the wizard of cm-kubernetes-setup", "setup")

    async def _ask(self, reporter: Reporter, site: sites.Site) -> tuple[str, document.Answers | None]:
        """Run the wizard: what is to be done, and with which answers."""
        from bedplate.setup.wizard.app import Wizard

        start = self._overridden(document.defaults())
        is_interrupted = any(True for _ in unfinished(self._state))
        has_device_mapper = bool(self._values["allow_device_mapper"])
        outcome = await Wizard(
            site, start, is_interrupted=is_interrupted, has_device_mapper=has_device_mapper
        ).run_async()
        if outcome is None or outcome.action == "exit":
            return "exit", None
        if outcome.action not in ("deploy", "save"):
            # Not within this loop, and with the head closed: the other actions open what they need.
            raise Another(outcome.action, outcome.flags)
        answers = stamped(outcome.answers, self._clock)
        saved = aliases.aliased(answers, site) if self._values["store_name_aliases"] else answers
        write_atomically(pathlib.Path(outcome.file), document.save(saved).encode())
        reporter.emit(Line(f"The answers are in {outcome.file}"))
        return ("deploy", document.Answers(answers, {})) if outcome.action == "deploy" else ("exit", None)

    def _overridden(self, answers: dict[str, Any]) -> dict[str, Any]:
        for flag, path in _OVERRIDES.items():
            if self._values[flag]:
                answers = document.with_value(answers, path, self._values[flag])
        wrong = document.problems(answers)
        if wrong:
            raise errors.Invalid("wrong answers", problems=[f"{path}: {text}" for path, text in wrong])
        if answers["docker"]["storage_backend"] != declaration.BACKENDS[0] and not self._values["allow_device_mapper"]:
            raise errors.Invalid(
                f"docker.storage_backend: {answers['docker']['storage_backend']} is deprecated",
                hint=f"use {declaration.BACKENDS[0]}, or give --allow-device-mapper",
            )
        name = answers["kubernetes"]["name"]
        if self._values["cluster"] and self._values["cluster"] != name:
            raise errors.Invalid(
                f"--cluster {self._values['cluster']} is not the cluster of the answers, {name}",
                hint="leave out --cluster, or change kubernetes.name",
            )
        return answers

    async def _deploy(
        self, reporter: Reporter, reached: heads.Reached, site: sites.Site, given: document.Answers
    ) -> int:
        answers = fitting.complete(given.values, site)
        cluster = answers["kubernetes"]["name"]
        self._refuse_unfinished(cluster)
        fitting.check(answers, site, given.lines, str(self._values["config"] or "the answers"))
        answers = stamped(answers, self._clock)
        stages = deployment(answers, site)
        if self._values["plan"]:
            return _print_plan(reporter, stages)
        return await self._run("deploy", cluster, stages, answers, reporter, reached)

    def _refuse_unfinished(self, cluster: str) -> None:
        """A run that another process is at was not interrupted: whoever holds the lock is named first."""
        lock.refuse_another(self._state, cluster)
        _refuse(Journal.load(self._state, cluster), cluster)

    # Removing

    async def _remove(self, reporter: Reporter, reached: heads.Reached, site: sites.Site) -> int:
        half = [journal.record.cluster for journal in unfinished(self._state)]
        cluster = heads.sole(self._values["cluster"], sorted({*site.clusters, *half}), "remove")
        answers: dict[str, Any] = {"cluster": cluster}
        if self._values["remove_ceph_storage"]:
            pool = ceph.pool_of(reached.backend.tree, cluster)
            await ceph.check(pool)
            answers["ceph"] = pool._asdict()
        stages = stages_of("remove", answers, site)
        if self._values["plan"]:
            return _print_plan(reporter, stages)
        return await self._run("remove", cluster, stages, answers, reporter, reached)

    # Adding and removing nodes

    async def _change(self, action: str, reporter: Reporter, reached: heads.Reached, site: sites.Site) -> int:
        from bedplate.setup.kubernetes import change

        cluster = heads.sole(self._values["cluster"], sorted(site.clusters), action.replace("-", " "))
        self._refuse_unfinished(cluster)
        try:
            names = ranges.expand(self._values[action.replace("-", "_")])
        except ValueError as err:
            raise errors.Invalid(f"--{action}: {err}", hint="write names and ranges, as node[004-006],node010") from err
        if not names:
            raise errors.Invalid(
                f"--{action}: no node is given", hint="write names and ranges, as node[004-006],node010"
            )
        answers: dict[str, Any] = {"cluster": cluster, "nodes": list(names)}
        if action == "add-nodes":
            answers["control_plane"] = bool(self._values["control_plane"])
        change.check(action, reached.backend.tree, answers)
        stages = stages_of(action, answers, site)
        if self._values["plan"]:
            return _print_plan(reporter, stages)
        return await self._run(action, cluster, stages, answers, reporter, reached)

    # Upgrading

    async def _upgrade(self, reporter: Reporter, reached: heads.Reached, site: sites.Site) -> int:
        from bedplate.setup.tool import upgrading

        version = upgrading.target(self._values)
        cluster = heads.sole(self._values["cluster"], sorted(site.clusters), "upgrade")
        self._refuse_unfinished(cluster)
        folder = reached.data or self._state / cluster
        seen = await upgrading.look(reached.backend.tree, cluster, version, folder, self._values, self._clock)
        stages = upgrading.stages(seen.answers)
        if self._values["plan"] or not seen.has_work:
            reporter.emit(Output("\n".join(seen.lines)))
            if self._values["plan"] and seen.has_work:
                _print_plan(reporter, stages)
            return 1 if self._values["plan"] and seen.is_blocked else 0
        return await self._run("upgrade", cluster, stages, seen.answers, reporter, reached)

    # Caring

    async def _care(self, action: str, reporter: Reporter, reached: heads.Reached) -> int:
        # Before a file is copied to the head.
        self._refuse_unfinished(caretaking.cluster_of(self._values, reached))
        answers = caretaking.answers_of(action, self._values, reached, self._clock)
        if action == "etcd-restore" and not self._values["on_error_action"]:
            # A cluster whose API servers are halted must not wait for somebody to answer.
            self._values = {**self._values, "on_error_action": "undo"}
        caretaking.say_warnings(answers, reporter, self._clock)
        stages = caretaking.stages_of(action, answers)
        if self._values["plan"]:
            return _print_plan(reporter, stages)
        return await self._run(action, answers["cluster"], stages, answers, reporter, reached)

    # Going on

    async def _go_on(self, action: str, reporter: Reporter, reached: heads.Reached, site: sites.Site) -> int:
        names = [journal.record.cluster for journal in unfinished(self._state)]
        if not names:
            raise errors.NotFound(f"there is no interrupted run to {action} in {self._state}")
        cluster = heads.sole(self._values["cluster"], names, action)
        with self._lock(f"--{action} of the cluster {cluster}", cluster):
            journal = Journal.load(self._state, cluster)
            if journal is None or journal.is_over:
                raise errors.NotFound(f"the run for the cluster {cluster} has ended")
            if action == "resume" and journal.record.phase == "undo":
                raise errors.Invalid(
                    f"the run for the cluster {cluster} was being undone",
                    hint=f"continue with --undo --cluster {cluster}",
                )
            journal.record.pid = os.getpid()
            journal.save()
            stages = self._stages_of(journal, site)
            run = self._made(stages, journal, reporter, reached, cluster, Said.further(self._state / cluster))
            return EXIT_CODES[await (run.execute() if action == "resume" else run.undo())]

    def _stages_of(self, journal: Journal, site: sites.Site) -> list[Stage]:
        """The stages of a run, as its answers say; those of an upgrade take flags that say what may be lost."""
        from bedplate.setup.tool import upgrading

        operation, answers = journal.record.operation, journal.record.answers
        if operation == "upgrade":
            journal.record.answers = upgrading.merged(answers, self._values)
            journal.save()
            return upgrading.stages(journal.record.answers)
        upgrading.refuse_flags(self._values, _operation(journal))
        return stages_of(operation, answers, site)

    # Running

    async def _run(
        self,
        operation: str,
        cluster: str,
        stages: Sequence[Stage],
        answers: dict[str, Any],
        reporter: Reporter,
        reached: heads.Reached,
    ) -> int:
        order.check(stages)
        for flag in ("stop_after", "fail_at"):
            # Before the run begins.
            order.named(stages, self._values.get(flag), f"--{flag.replace('_', '-')}")
        with self._lock(f"{operation} of the cluster {cluster}", cluster):
            # Again, under the lock: another run may have begun and ended in between.
            former = Journal.load(self._state, cluster)
            if operation != "remove":
                _refuse(former, cluster)
            record = Record(
                title=TITLE,
                operation=operation,
                cluster=cluster,
                began=self._clock.now().isoformat(timespec="seconds"),
                pid=os.getpid(),
                stages=[StageRecord(stage.name, stage.plugin) for stage in stages],
                answers=answers,
                # What a half-done deployment noted tells its removal what there is.
                notes=dict(former.record.notes) if former is not None and not former.is_over else {},
            )
            journal = Journal.begin(self._state, record)
            run = self._made(stages, journal, reporter, reached, cluster, Said.fresh(self._state / cluster))
            return EXIT_CODES[await run.execute()]

    def _made(
        self,
        stages: Sequence[Stage],
        journal: Journal,
        reporter: Reporter,
        reached: heads.Reached,
        cluster: str,
        transcript: Said,
    ) -> Run:
        for secret in _secrets(journal.record.answers):
            reporter.masker.add(secret)
        services = Services(reached.backend, self._state / cluster, cluster, reached.data)
        chooser = output.chooser(self._values)
        stop_after = order.named(stages, self._values.get("stop_after"), "--stop-after")
        stages = order.failing(stages, order.named(stages, self._values.get("fail_at"), "--fail-at"))
        return Run(
            TITLE, stages, journal, reporter, self._clock, chooser, services, said=transcript, stop_after=stop_after
        )

    def _lock(self, what: str, cluster: str) -> Any:
        since = self._clock.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")
        return lock.hold(self._state, lock.Holder(os.getpid(), since, what, cluster))


class Another(Exception):
    """Somebody chose another action of the program in the wizard; with the flags that the answers stand for."""

    def __init__(self, action: str, flags: Mapping[str, Any]) -> None:
        super().__init__(action)
        self.action = action
        self.flags = flags


def _with_password(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The flags with a password that is given as `-`, which is read from standard input."""
    if values["docker_io_password"] != "-":
        return values
    return {**values, "docker_io_password": sys.stdin.readline().rstrip("\r\n")}


def stamped(answers: dict[str, Any], clock: Clock) -> dict[str, Any]:
    """With who wrote them and when, unless that is known."""
    now = clock.now().astimezone().isoformat(timespec="seconds")
    meta = {"tool": "cm-kubernetes-setup", "version": bedplate.__version__, "timestamp": now}
    return {**answers, "meta": {**meta, **answers["meta"]}}


def _secrets(answers: Mapping[str, Any]) -> list[str]:
    """The secrets among answers; the answers of a removal have none."""
    paths = [field.path for field in declaration.FIELDS if isinstance(field.kind, Secret)]
    return [str(value) for path in paths if (value := declaration.value_at(answers, path))]


def deployment(answers: Mapping[str, Any], site: sites.Site) -> list[Stage]:
    """The stages of a deployment, without those that the answers skip."""
    from bedplate.setup.kubernetes import deploy

    skipped = {declaration.TAGS[key] for key, is_on in answers["kubernetes"]["skip"].items() if is_on}
    return order.without([*prechecks.stages(), *deploy.stages(answers, site)], skipped)


def stages_of(operation: str, answers: Mapping[str, Any], site: sites.Site) -> list[Stage]:
    """The stages of an operation, as the journal names it."""
    from bedplate.setup.kubernetes import change

    if operation in caretaking.RUNS:
        return caretaking.stages_of(operation, dict(answers))
    match operation:
        case "remove":
            pool = answers.get("ceph")
            return removal(answers["cluster"], *([ceph.Pool(**pool)] if pool else []))
        case "add-nodes":
            return change.adding(answers)
        case "remove-nodes":
            return change.removing(answers)
        case _:
            return deployment(answers, site)


def removal(cluster: str, pool: ceph.Pool | None = None) -> list[Stage]:
    """The stages of a removal."""
    from bedplate.setup.kubernetes import remove

    return list(remove.stages(cluster, pool))


def _print_plan(reporter: Reporter, stages: Sequence[Stage]) -> int:
    order.check(stages)
    reporter.emit(Output("\n".join([f"Plan: {len(stages)} stages", *order.described(stages)])))
    return 0


def _refuse(journal: Journal | None, cluster: str) -> None:
    if journal is not None and not journal.is_over:
        back = "" if journal.record.operation == "remove" else f", or take it back with --undo --cluster {cluster}"
        raise errors.Conflict(
            f"an earlier {_operation(journal)} of the cluster {cluster} did not finish{_where(journal)}",
            hint=f"continue it with --resume --cluster {cluster}{back}",
        )


def _operation(journal: Journal) -> str:
    words = {"deploy": "deployment", "remove": "removal", "add-nodes": "addition of nodes"}
    words |= {"remove-nodes": "removal of nodes", "etcd-restore": "restore"}
    words["configure-ingress"] = "configuration of the ingress"
    return words.get(journal.record.operation, journal.record.operation)


def _where(journal: Journal) -> str:
    names = [stage.name for stage in journal.record.stages if stage.state in ("running", "failed", "undoing")]
    return f" (at the stage {names[0]})" if names else ""


async def _kubeconfig_of(values: Mapping[str, Any]) -> int:
    from bedplate.setup.kubernetes.kubeconfig import path_of

    async with heads.reach(values) as reached:
        path = await path_of(reached.backend, values["kubeconfig_of"], reached.data)
    sys.stdout.write(f"{path}\n")
    return 0
