"""The embedded API server with one fault planted: `python -m tests.conformance.faulty_server TOPIC FLAGS...`.

In: the topic of a conformance suite and the flags of `bedplate apiserver`. Out: that server, with one function of the
product replaced before it starts, so that the cases of the topic must turn red. Each fault is a function of `FAULTS`
that replaces what it names and nothing else; the product itself knows nothing of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from bedplate.apiserver import cli, hooks, meta, selectors, status, views
from bedplate.apiserver.access import rbac as rbac_rules
from bedplate.apiserver.access import subjects
from bedplate.apiserver.behaviours import pods, records, reviews, serviceips
from bedplate.apiserver.crds import definitions
from bedplate.apiserver.documents import discovery, openapi
from bedplate.apiserver.merge import patches, strategic
from bedplate.apiserver.pipeline import answers, dispatch
from bedplate.apiserver.shape import rules
from bedplate.apiserver.state import registry, watchers
from bedplate.apiserver.tables import rendering
from bedplate.apiserver.verbs import delete, patch, read, request, scale, watch, write
from bedplate.apiserver.webhooks import admission
from bedplate.apiserver.wire import codec

FAULTS: dict[str, Callable[[], None]] = {}
"""What plants the fault of each topic; the docstring says what then goes wrong."""


def fault(plant: Callable[[], None]) -> Callable[[], None]:
    FAULTS[plant.__name__] = plant
    return plant


def replace(owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    """Put `wrap(original)` in the place of a function; a name that is gone is an error, not a fault unplanted."""
    setattr(owner, name, wrap(getattr(owner, name)))


def returning(answer: Any) -> Callable[[Any], Any]:
    return lambda _original: lambda *_args, **_kwargs: answer


@fault
def apply() -> None:
    """Conflicts with other owners are always forced."""
    replace(patch, "apply", lambda original: lambda target, config, *, force: original(target, config, force=True))


@fault
def bookmarks() -> None:
    """No bookmarks are sent."""
    replace(watchers.Watchers, "add", lambda original: lambda self, group, sink, _: original(self, group, sink, None))


@fault
def cel() -> None:
    """Custom objects are not validated."""
    replace(rules.ShapeRules, "validate", returning([]))


@fault
def configs() -> None:
    """Config maps and secrets are not validated."""
    replace(records.ConfigMapBehaviour, "validate", returning([]))
    replace(records.SecretBehaviour, "validate", returning([]))


@fault
def crd_lifecycle() -> None:
    """No controller looks after definitions once they are written."""

    async def run(_services: Any) -> None:
        return None

    replace(definitions, "run", lambda _original: run)


@fault
def crd_schema() -> None:
    """Custom objects are neither pruned nor defaulted."""
    replace(definitions.VersionRules, "default", returning(None))
    replace(definitions.VersionRules, "prune", returning([]))


@fault
def crud() -> None:
    """An update ignores the resourceVersion."""
    replace(write, "_check_version", returning(None))


@fault
def delete_collection() -> None:
    """Selectors of a collection's deletion are ignored."""
    replace(read, "select", lambda original: lambda target, _query: original(target, {}))


@fault
def deletion() -> None:
    """Every deletion propagates in the background."""
    background = {"propagationPolicy": "Background"}
    replace(delete, "_finalizers", lambda original: lambda target, _, present: original(target, background, present))


@fault
def discovery_() -> None:
    """Documents of single groups are missing."""

    def wrap(original: Any) -> Any:
        return lambda self, path, accept="": None if path.count("/") > 1 else original(self, path, accept)

    replace(discovery.Discovery, "answer", wrap)


@fault
def dry_run() -> None:
    """Dry runs are carried out."""

    def committing(original: Any) -> Any:
        def read_options(target: request.Target, *args: Any) -> None:
            original(target, *args)
            target.dry_run = False

        return read_options

    def without_dry_run(original: Any) -> Any:
        def read_options(body: Any, query: Mapping[str, str]) -> dict[str, Any]:
            options: dict[str, Any] = original(body, query)
            options.pop("dryRun", None)
            return options

        return read_options

    replace(request, "read_options", committing)
    replace(delete, "read_options", without_dry_run)


@fault
def errors() -> None:
    """Refusals carry no details."""

    def wrap(original: Any) -> Any:
        return lambda self: {key: value for key, value in original(self).items() if key != "details"}

    replace(status.StatusError, "document", wrap)


@fault
def events() -> None:
    """Events are shown in the stored version only."""
    replace(views.ConvertedView, "show", lambda _original: lambda self, body, *, heading=False: body)


@fault
def field_selectors() -> None:
    """Field selectors choose everything."""

    def wrap(original: Any) -> Any:
        def parse_fields(*args: Any) -> list[Any]:
            original(*args)
            return []

        return parse_fields

    replace(selectors, "parse_fields", wrap)


@fault
def field_validation() -> None:
    """Strict validation only drops unknown fields."""

    def wrap(original: Any) -> Any:
        def checked(target: request.Target, *args: Any) -> Any:
            asked = target.field_validation
            target.field_validation = "Ignore" if asked == "Strict" else asked
            try:
                return original(target, *args)
            finally:
                target.field_validation = asked

        return checked

    replace(request, "checked", wrap)


@fault
def finalizers() -> None:
    """Finalizers do not hold an object."""
    replace(write, "is_finished", lambda _original: lambda _target, obj: "deletionTimestamp" in obj["metadata"])


@fault
def generate_name() -> None:
    """Generated names lack their base."""
    replace(meta, "generated_name", lambda original: lambda _base, rng: original("", rng))


@fault
def http() -> None:
    """Answers are never compressed and every method is tried."""
    replace(answers, "GZIP_FROM_BYTES", lambda _original: sys.maxsize)
    replace(dispatch.Dispatcher, "_check_method", lambda _original: staticmethod(lambda *_args: None))


@fault
def json_patch() -> None:
    """Test operations always succeed."""

    def wrap(original: Any) -> Any:
        return lambda document, steps: original(document, [step for step in steps if step.get("op") != "test"])

    replace(patches, "json_patch", wrap)


@fault
def label_selectors() -> None:
    """Label selectors choose everything."""
    replace(selectors, "label_predicate", returning(None))


@fault
def leases() -> None:
    """An update of a Lease ignores the resourceVersion."""

    def wrap(original: Any) -> Any:
        def check(target: request.Target, old: Any, new: Any) -> None:
            if target.resource.resource != "leases":
                original(target, old, new)

        return check

    replace(write, "_check_version", wrap)


@fault
def merge_patch() -> None:
    """Null does not remove."""

    def without_nulls(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {key: without_nulls(member) for key, member in value.items() if member is not None}

    replace(patches, "merge_patch", lambda original: lambda document, body: original(document, without_nulls(body)))


@fault
def namespaces() -> None:
    """Objects may be created in namespaces that do not exist or are being deleted."""
    replace(write, "check_namespace", returning(None))


@fault
def openapi_() -> None:
    """Documents of single groups are missing."""
    for name in ("document", "version_2", "version_2_protobuf"):
        replace(openapi.OpenAPI, name, returning(None))


@fault
def pagination() -> None:
    """Later pages show the present, not the first page's moment."""

    def wrap(original: Any) -> Any:
        def decode(text: str) -> Any:
            token = original(text)
            token.rv = -1
            return token

        return decode

    replace(read, "_decode_token", wrap)


@fault
def pods_() -> None:
    """Pods are stored as they come."""
    replace(pods.PodBehaviour, "prepare_create", returning(None))
    replace(pods.PodBehaviour, "prepare_update", returning(None))


@fault
def protobuf() -> None:
    """Protobuf bodies are refused."""

    def wrap(original: Any) -> Any:
        def decode_body(content_type: str, *args: Any, **kwargs: Any) -> Any:
            return original("text/plain" if codec.PROTOBUF in content_type else content_type, *args, **kwargs)

        return decode_body

    replace(codec, "decode_body", wrap)


@fault
def rbac() -> None:
    """Everybody may do everything."""
    replace(rbac_rules.RoleAuthorizer, "authorize", returning(subjects.Decision(True)))


@fault
def reviews_() -> None:
    """Reviews are answered without a verdict."""

    def wrap(original: Any) -> Any:
        async def answer(self: Any, call: hooks.Call) -> tuple[int, hooks.Object]:
            code, review = await original(self, call)
            return code, {**review, "status": {}}

        return answer

    replace(reviews._Review, "answer", wrap)


@fault
def scale_() -> None:
    """A new scale is accepted and forgotten."""
    replace(scale, "_set", returning(None))


@fault
def services() -> None:
    """Services are stored as they come."""
    replace(serviceips.ServiceBehaviour, "prepare_create", returning(None))
    replace(serviceips.ServiceBehaviour, "prepare_update", returning(None))


@fault
def status_subresource() -> None:
    """Status and the rest are written together."""
    replace(write, "isolate", lambda _original: lambda _target, _old, new: new)


@fault
def strategic_merge() -> None:
    """Strategic merge patches are taken for merge patches."""
    replace(strategic, "strategic_merge", lambda _original: lambda old, body, _type: patches.merge_patch(old, body))


@fault
def tables() -> None:
    """Cells stand in the wrong order."""
    replace(rendering.TableView, "_cells", lambda original: lambda self, obj: original(self, obj)[::-1])


@fault
def watch_expired() -> None:
    """A watch from a forgotten version is accepted."""
    replace(watch._Start, "_is_gone", returning(False))


@fault
def watch_resume() -> None:
    """A resumed watch repeats an event."""
    replace(registry.Collection, "since", lambda original: lambda self, revision: original(self, revision - 1))


@fault
def watch_selectors() -> None:
    """An object that enters or leaves the selection is modified, not added or deleted."""
    replace(watchers.Group, "_type", lambda original: lambda self, event: original(self, event) and event.type)


@fault
def webhooks() -> None:
    """Webhooks are not asked."""
    replace(admission.WebhookAdmission, "wants", returning(False))


FAULTS = {name.rstrip("_"): plant for name, plant in FAULTS.items()}


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("topic", type=click.Choice(sorted(FAULTS)))
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def main(topic: str, flags: tuple[str, ...]) -> None:
    FAULTS[topic]()
    cli.apiserver(list(flags))


if __name__ == "__main__":
    main()
