"""Random sequences of commits, compactions, reads, watches and restarts agree with a plain dictionary with history."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.store.conftest import Backend, compact
from tests.store.model import Model
from tests.store.watching import take

from bedplate.core import errors
from bedplate.store.interface import Delete, Op, Put, Store

KEYS = ["/a", "/a/", "/a/b", "/a0", "/b", "/é", "/\U0001f600", "z"]
PREFIXES = ["", "/", "/a", "/a/", "/b", "/é", "none"]


@dataclasses.dataclass(frozen=True)
class Commit:
    """Operations as (key, value or None to delete, what to expect)."""

    ops: list[tuple[str, bytes | None, str]]


@dataclasses.dataclass(frozen=True)
class Compact:
    """To that part of the revisions between the oldest and the newest; above 1 lies in the future."""

    part: float


@dataclasses.dataclass(frozen=True)
class Read:
    prefix: str
    part: float
    limit: int
    after: str


@dataclasses.dataclass(frozen=True)
class Watch:
    prefix: str
    part: float


@dataclasses.dataclass(frozen=True)
class Reopen:
    pass


op = st.tuples(
    st.sampled_from(KEYS),
    st.one_of(st.none(), st.binary(max_size=3)),
    st.sampled_from(["any", "any", "current", "absent", "stale"]),
)
part = st.floats(min_value=-0.2, max_value=1.2)
step = st.one_of(
    st.builds(Commit, st.lists(op, max_size=3, unique_by=lambda one: one[0])),
    st.builds(Commit, st.lists(op, max_size=3, unique_by=lambda one: one[0])),
    st.builds(Compact, part),
    st.builds(Read, st.sampled_from(PREFIXES), part, st.integers(0, 4), st.sampled_from(["", *KEYS])),
    st.builds(Watch, st.sampled_from(PREFIXES), part),
    st.just(Reopen()),
)


def resolve(ops: list[tuple[str, bytes | None, str]], model: Model) -> list[Op]:
    state = model.states[model.revision]
    found: list[Op] = []
    for key, value, expectation in ops:
        current = state[key].revision if key in state else 0
        expect = {"any": None, "current": current, "absent": 0, "stale": max(current - 1, 0)}[expectation]
        found.append(Delete(key, expect) if value is None else Put(key, value, expect))
    return found


def revision_at(model: Model, fraction: float) -> int:
    return max(1, model.oldest + round(fraction * (model.revision - model.oldest + 1)))


async def outcome(action: Any) -> Any:
    """The result, or what identifies the error: its type and everything it carries."""
    try:
        return await action if asyncio.iscoroutine(action) else action()
    except errors.BedplateError as error:
        return type(error), {name: value for name, value in vars(error).items() if name != "message"}


async def apply(store: Store, model: Model, step: Any) -> None:
    match step:
        case Commit(ops):
            resolved = resolve(ops, model)
            expected = await outcome(lambda: model.commit(resolved))
            assert await outcome(store.commit(resolved)) == expected
        case Compact(fraction):
            revision = revision_at(model, fraction)
            expected = await outcome(lambda: model.compact(revision))
            assert await outcome(compact(store, revision)) == expected
        case Read(prefix, fraction, limit, after):
            revision = revision_at(model, fraction)
            expected = await outcome(lambda: model.page(prefix, revision, limit, after))
            assert await outcome(store.list(prefix, revision=revision, limit=limit, after=after)) == expected
        case Watch(prefix, fraction):
            await check_watch(store, model, prefix, min(revision_at(model, fraction), model.revision))
    assert await store.revision() == model.revision


async def check_watch(store: Store, model: Model, prefix: str, after: int) -> None:
    expected = await outcome(lambda: model.since(prefix, after))
    watch = store.watch(prefix, after=after)
    try:
        if isinstance(expected, list):
            assert await take(watch, len(expected)) == expected
        else:
            assert await outcome(take(watch, 1)) == expected
    finally:
        await watch.aclose()


async def check_everything(store: Store, model: Model) -> None:
    assert await store.oldest() == model.oldest
    for revision in range(model.oldest, model.revision + 1):
        assert await store.list("", revision=revision) == model.page("", revision)
    await check_watch(store, model, "", model.oldest)
    for key in KEYS:
        assert await store.get(key) == model.state(model.revision).get(key)


async def run(backend: Backend, steps: Sequence[Any]) -> None:
    store = backend.open()
    await store.__aenter__()
    try:
        model = Model(await store.revision())
        # The history before this run, which other users of a shared etcd made, is none of the model's business.
        await store.compact(model.revision)
        for one in steps:
            if isinstance(one, Reopen):
                await store.__aexit__(None, None, None)
                store = backend.open()
                await store.__aenter__()
            else:
                await apply(store, model, one)
        await check_everything(store, model)
    finally:
        await store.__aexit__(None, None, None)


def check(backend: Backend, examples: int) -> None:
    @settings(
        max_examples=examples,
        deadline=None,
        phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(step, min_size=1, max_size=40))
    def property(steps: list[Any]) -> None:
        asyncio.run(run(backend.fresh(), steps))

    property()


def test_random_histories_agree_with_the_model(backend: Backend) -> None:
    check(backend, 60)


@pytest.mark.soak
def test_many_random_histories_agree_with_the_model(backend: Backend) -> None:
    check(backend, 2000)
