"""Admission webhooks: which are asked about a write, in which order, and what their answers do.

In: writes (`hooks.Write`) and the webhook configurations in force. Out: the object changed by mutating webhooks,
warnings, or a refusal. Mutating webhooks are asked one after the other, by name of configuration; those that ask for it
once more when a later one changed the object. Validating webhooks are asked all at once.
"""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bedplate.apiserver import hooks, kinds, status
from bedplate.apiserver.cel.values import CelError
from bedplate.apiserver.merge import patches
from bedplate.apiserver.state import bodies
from bedplate.apiserver.webhooks import calls, configurations
from bedplate.apiserver.webhooks.calls import CallFailed
from bedplate.apiserver.webhooks.configurations import Hook, Target
from bedplate.core import logging

__all__ = ["GROUP", "MUTATING", "VALIDATING", "ConfigurationBehaviour", "WebhookAdmission"]

GROUP = "admissionregistration.k8s.io"
MUTATING, VALIDATING = "mutatingwebhookconfigurations", "validatingwebhookconfigurations"
_OPTIONS = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}

log = logging.get_logger("apiserver.webhooks")


class Invocation(NamedTuple):
    """A webhook that is to be asked, in the version its rules named."""

    hook: Hook
    resource: kinds.Resource


class ConfigurationBehaviour(hooks.Behaviour):
    """What writing a webhook configuration does: it takes effect with its commit."""

    def __init__(self, admission: WebhookAdmission, resource: str) -> None:
        self._admission = admission
        self._resource = resource

    def default(self, resource: kinds.Resource, obj: hooks.Object) -> None:
        obj.setdefault("kind", resource.kind)
        configurations.default(obj)

    def validate(self, write: hooks.Write) -> list[status.FieldProblem]:
        return configurations.validate(write.object)

    def after_commit(self, change: bodies.Change) -> None:
        config = None if change.type == "DELETED" else change.object
        self._admission.configure(self._resource, change.name, config)


class WebhookAdmission:
    """The admission chain made of the webhooks that are configured."""

    def __init__(self, caller: calls.Caller, new_uid: Callable[[], str] = lambda: str(uuid.uuid4())) -> None:
        self._caller = caller
        self._new_uid = new_uid
        self._hooks: dict[str, dict[str, list[Hook]]] = {MUTATING: {}, VALIDATING: {}}

    async def close(self) -> None:
        await self._caller.close()

    def behaviours(self) -> dict[tuple[str, str], hooks.Behaviour]:
        """The behaviours of the configurations' own kinds."""
        return {(GROUP, name): ConfigurationBehaviour(self, name) for name in (MUTATING, VALIDATING)}

    def configure(self, resource: str, name: str, config: hooks.Object | None) -> None:
        """Put a configuration in force, or take it out. They are asked in order of their names."""
        by_name = self._hooks[resource]
        by_name.pop(name, None)
        if config is not None:
            by_name[name] = configurations.compile_hooks(config)
        self._hooks[resource] = dict(sorted(by_name.items()))

    def wants(self, write: hooks.Write) -> bool:
        # Nobody may lock themselves out of repairing a webhook: configurations are never sent to webhooks.
        return any(self._hooks.values()) and write.resource.group != GROUP

    async def mutate(self, write: hooks.Write) -> None:
        waiting: list[Hook] = []
        again: set[Hook] = set()
        for hook in self._all(MUTATING):
            invocation = self._match(hook, write)
            if invocation is None:
                continue
            if await self._mutate_once(write, invocation):
                again |= set(waiting)
            if hook.is_reinvocable:
                waiting.append(hook)
        for hook in waiting:
            invocation = self._match(hook, write) if hook in again else None
            if invocation is not None and await self._mutate_once(write, invocation):
                again |= {other for other in waiting if other is not hook}

    async def validate(self, write: hooks.Write) -> None:
        matches = [match for hook in self._all(VALIDATING) if (match := self._match(hook, write)) is not None]
        if not matches:
            return
        answers = await asyncio.gather(
            *(self._ask(write, each, is_mutating=False) for each in matches), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

    def _all(self, resource: str) -> list[Hook]:
        return [hook for entries in self._hooks[resource].values() for hook in entries]

    def _match(self, hook: Hook, write: hooks.Write) -> Invocation | None:
        """Whether to ask a webhook, and in which version."""
        resource = _matching_version(hook, write)
        if resource is None or not _selected(hook, write):
            return None
        if hook.conditions and not self._conditions_hold(hook, write, resource):
            return None
        return Invocation(hook, resource)

    def _conditions_hold(self, hook: Hook, write: hooks.Write, resource: kinds.Resource) -> bool:
        """All conditions must hold; one that is false outweighs errors in others."""
        review = self._review(write, resource)["request"]
        failed: CelError | None = None
        for condition in hook.conditions:
            try:
                if condition.run(review["object"], review["oldObject"], review) is not True:
                    return False
            except CelError as error:
                failed = error
        if failed is None:
            return True
        if hook.is_ignoring:
            return False
        raise status.forbidden(write.resource, write.name, str(failed))

    async def _mutate_once(self, write: hooks.Write, invocation: Invocation) -> bool:
        """Ask a mutating webhook and apply its patch; whether the object changed."""
        response = await self._ask(write, invocation, is_mutating=True)
        if response is None or not response.get("patch"):
            return False
        hook = invocation.hook
        try:
            operations = json.loads(base64.b64decode(response["patch"]))
        except ValueError as error:
            return self._failed(hook, CallFailed(f"received undecodable patch in webhook response: {error}"))
        if not operations:
            return False
        if write.new is None:
            why = "attempted to modify the object, which is not supported for this operation"
            raise _internal(f'admission webhook "{hook.name}" {why}')
        before = _shown(write, invocation.resource, write.new)
        try:
            after = patches.json_patch(before, operations)
        except status.StatusError as error:
            raise _internal(error.message) from error
        if not isinstance(after, dict) or not isinstance(after.get("metadata"), dict):
            raise _internal("the patched object has no metadata")
        changed = after != before
        after = _converted(write, after, invocation.resource, write.resource)
        write.services.rules.prune(write.resource, after)
        write.new = after
        return changed

    async def _ask(self, write: hooks.Write, invocation: Invocation, *, is_mutating: bool) -> dict[str, Any] | None:
        """The answer of a webhook that allows the write; None when it failed and may be ignored."""
        hook = invocation.hook
        if write.dry_run and hook.text.get("sideEffects") not in ("None", "NoneOnDryRun"):
            raise status.bad_request(f'admission webhook "{hook.name}" does not support dry run')
        review = self._review(write, invocation.resource)
        try:
            answer = await self._caller.call(hook.text["clientConfig"], review, hook.timeout_s)
            response = calls.check_response(answer, review["request"]["uid"], is_mutating=is_mutating)
        except CallFailed as error:
            self._failed(hook, error)
            return None
        write.warnings += [str(text) for text in response.get("warnings") or ()]
        if not response.get("allowed"):
            raise _denial(hook.name, response.get("status") or {})
        return response

    def _failed(self, hook: Hook, error: CallFailed) -> bool:
        """A webhook that cannot be asked is passed over, or stops the write, as its failurePolicy says."""
        if not hook.is_ignoring:
            raise _internal(f'failed calling webhook "{hook.name}": {error}') from error
        log.warning("webhook.ignored", webhook=hook.name, configuration=hook.configuration, reason=str(error))
        return False

    def _review(self, write: hooks.Write, resource: kinds.Resource) -> dict[str, Any]:
        user = write.user
        own = write.resource
        subresource = own.subresources.get(write.subresource)
        info: dict[str, Any] = {"username": user.name}
        info |= {"uid": user.uid} if user.uid else {}
        info |= {"groups": list(user.groups)} if user.groups else {}
        info |= {"extra": {key: list(given) for key, given in user.extra}} if user.extra else {}
        request: dict[str, Any] = {
            "uid": self._new_uid(),
            "kind": _kind(resource, subresource),
            "resource": _resource(resource),
            "requestKind": _kind(own, subresource),
            "requestResource": _resource(own),
        }
        if write.subresource:
            request |= {"subResource": write.subresource, "requestSubResource": write.subresource}
        if write.name:
            request["name"] = write.name
        if write.namespace:
            request["namespace"] = write.namespace
        options = {"kind": _OPTIONS.get(write.operation, ""), "apiVersion": "meta.k8s.io/v1"}
        request |= {
            "operation": write.operation,
            "userInfo": info,
            "object": _shown(write, resource, write.new),
            "oldObject": _shown(write, resource, write.old),
            "dryRun": write.dry_run,
            "options": {**write.options, **options},
        }
        return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}


def _matching_version(hook: Hook, write: hooks.Write) -> kinds.Resource | None:
    """The version of the resource that the webhook's rules name; the request's own one first."""
    own = write.resource
    candidates: Sequence[kinds.Resource] = [own]
    if hook.is_equivalent:
        candidates = [
            own,
            *(other for other in write.services.kinds.versions(own.group, own.resource) if other is not own),
        ]
    for resource in candidates:
        target = Target(
            write.operation,
            resource.group,
            resource.version,
            resource.resource,
            write.subresource,
            resource.namespaced,
        )
        if hook.matches(target):
            return resource
    return None


def _selected(hook: Hook, write: hooks.Write) -> bool:
    """Whether the webhook's selectors choose the object and its namespace."""
    if not any(hook.objects(_labels(obj)) for obj in (write.new, write.old) if obj is not None):
        return False
    if (write.resource.group, write.resource.resource) == ("", "namespaces"):
        return hook.namespaces(_labels(write.new if write.new is not None else write.old))
    if not write.resource.namespaced:
        return True
    namespace = write.services.client.get("", "namespaces", "", write.namespace)
    return hook.namespaces(_labels(namespace))


def _labels(obj: hooks.Object | None) -> dict[str, str]:
    return ((obj or {}).get("metadata") or {}).get("labels") or {}


def _kind(resource: kinds.Resource, subresource: kinds.Subresource | None) -> dict[str, str]:
    if subresource is not None:
        return {"group": subresource.group, "version": subresource.version, "kind": subresource.kind}
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _resource(resource: kinds.Resource) -> dict[str, str]:
    return {"group": resource.group, "version": resource.version, "resource": resource.resource}


def _shown(write: hooks.Write, resource: kinds.Resource, obj: hooks.Object | None) -> hooks.Object | None:
    """An object of the request in the version a webhook is sent."""
    return None if obj is None else _converted(write, obj, write.resource, resource)


def _converted(write: hooks.Write, obj: hooks.Object, source: kinds.Resource, target: kinds.Resource) -> hooks.Object:
    if source is target:
        return obj
    storage = write.services.kinds.storage(source)
    return kinds.from_storage(target, kinds.to_storage(source, obj, storage), storage)


def _denial(name: str, result: dict[str, Any]) -> status.StatusError:
    """The refusal of a webhook: its own status, with its name before the message."""
    by = f'admission webhook "{name}" denied the request'
    text = result.get("message") or result.get("reason")
    message = f"{by}: {text}" if text else f"{by} without explanation"
    code = int(result.get("code") or 0)
    return status.StatusError(
        max(code, 400), str(result.get("reason") or ""), message, details=result.get("details") or None
    )


def _internal(message: str) -> status.StatusError:
    details = {"causes": [{"message": message}]}
    return status.StatusError(500, "InternalError", f"Internal error occurred: {message}", details=details)
