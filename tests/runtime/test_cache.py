"""The cache: look-ups, indexes, handlers, and the atomic swap of a relist."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.runtime.cache import Cache, Change


def obj(name: str, version: int = 1, *, uid: str = "", **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": metadata | {"labels": labels}}


def color(item: dict[str, Any]) -> list[str]:
    value = item["metadata"]["labels"].get("color")
    return [value] if value else []


def test_a_relist_tells_only_what_differs() -> None:
    cache: Cache[dict[str, Any]] = Cache()
    cache.replace([obj("same"), obj("changed"), obj("gone")], "5")
    heard: list[Change[Any]] = []
    cache.on_change(heard.append)
    heard.clear()
    cache.replace([obj("same"), obj("changed", 6), obj("new", 7)], "8")
    assert {(change.key, change.old is None, change.new is None) for change in heard} == {
        ("ns/gone", False, True),
        ("ns/changed", False, False),
        ("ns/new", True, False),
    }
    assert cache.resource_version == "8"


def test_readers_inside_a_handler_never_see_half_a_relist() -> None:
    cache: Cache[dict[str, Any]] = Cache({"color": color})
    cache.replace([obj("a", color="red"), obj("b", color="red")], "1")
    seen: list[tuple[int, int]] = []
    cache.on_change(lambda _: seen.append((len(cache), len(cache.by_index("color", "red")))))
    seen.clear()
    cache.replace([obj("c", 2, color="blue"), obj("d", 2, color="blue"), obj("e", 2, color="red")], "2")
    assert set(seen) == {(3, 1)}


def test_an_object_deleted_and_recreated_between_lists_is_a_change() -> None:
    cache: Cache[dict[str, Any]] = Cache()
    cache.replace([obj("a", uid="first")], "1")
    heard: list[Change[Any]] = []
    cache.on_change(heard.append)
    heard.clear()
    cache.replace([obj("a", uid="second")], "2")
    assert [change.key for change in heard] == ["ns/a"]


def test_a_late_handler_hears_of_everything_that_is_there() -> None:
    cache: Cache[dict[str, Any]] = Cache()
    cache.replace([obj("a"), obj("b")], "1")
    heard: list[str] = []
    cache.on_change(lambda change: heard.append(change.key))
    assert sorted(heard) == ["ns/a", "ns/b"]


def test_synced_is_set_by_the_first_complete_list_even_if_it_is_empty() -> None:
    cache: Cache[dict[str, Any]] = Cache()
    assert not cache.synced.is_set()
    cache.replace([], "1")
    assert cache.synced.is_set()


_steps = st.lists(
    st.tuples(
        st.sampled_from(["put", "remove", "replace"]), st.sampled_from("abcd"), st.sampled_from(["red", "blue", ""])
    ),
    max_size=40,
)


@given(_steps)
def test_indexes_always_agree_with_a_full_scan(steps: list[tuple[str, str, str]]) -> None:
    cache: Cache[dict[str, Any]] = Cache({"color": color})
    for version, (action, name, hue) in enumerate(steps, 1):
        item = obj(name, version, **({"color": hue} if hue else {}))
        if action == "put":
            cache.put(item, str(version))
        elif action == "remove":
            cache.remove(item, str(version))
        else:
            cache.replace([item], str(version))
        for value in ("red", "blue"):
            expected = [one for one in cache if value in color(one)]
            assert sorted(map(str, cache.by_index("color", value))) == sorted(map(str, expected))


def test_an_index_added_later_finds_what_is_there_and_what_comes() -> None:
    cache: Cache[dict[str, Any]] = Cache()
    cache.replace([obj("a", color="red")], "1")
    cache.add_indexes({"color": color})
    cache.put(obj("b", 2, color="red"), "2")
    assert [one["metadata"]["name"] for one in cache.by_index("color", "red")] == ["a", "b"]
    cache.add_indexes({"color": color})
    with pytest.raises(ValueError, match="color"):
        cache.add_indexes({"color": lambda item: []})


def test_a_resync_tells_every_object_again_as_unchanged() -> None:
    cache: Cache[dict[str, Any]] = Cache()
    cache.replace([obj("a"), obj("b")], "1")
    heard: list[tuple[str, bool]] = []
    cache.on_change(lambda change: heard.append((change.key, change.old is change.new)))
    heard.clear()
    cache.resync()
    assert heard == [("ns/a", True), ("ns/b", True)]
