"""Which objects of an application are applied and deleted, in which order, and whose they are."""

from __future__ import annotations

import yaml
from hypothesis import given
from hypothesis import strategies as st

from bedplate.head.applications import planning
from bedplate.head.applications.manifests import Manifest, read
from bedplate.head.applications.planning import Key, Wanted, plan
from bedplate.head.applications.records import Item
from bedplate.head.objects import Obj

KINDS = {
    "Namespace": "",
    "CustomResourceDefinition": "apiextensions.k8s.io",
    "ConfigMap": "",
    "Deployment": "apps",
    "Widget": "example.com",
    "Deployments": "example.com",
    "ValidatingWebhookConfiguration": "admissionregistration.k8s.io",
}
CLAIMS = st.tuples(st.sampled_from(sorted(KINDS)), st.sampled_from(["", "default", "x"]), st.sampled_from("abc"))
KEYS = st.builds(Key, st.sampled_from("gh"), st.sampled_from("pqr"))


def manifest(kind: str, namespace: str, name: str) -> Manifest:
    return Manifest(KINDS[kind], "v1", kind, namespace, name, 1, {})


def item(kind: str, namespace: str, name: str) -> Item:
    return Item(KINDS[kind], kind, namespace, name)


@st.composite
def applications(draw: st.DrawFn) -> dict[Key, Wanted]:
    sites = {}
    for key in draw(st.lists(KEYS, unique=True)):
        chosen = {manifest(*claim).claim: manifest(*claim) for claim in draw(st.lists(CLAIMS))}
        sites[key] = Wanted(tuple(chosen.values()))
    return sites


RECORDED = st.lists(st.builds(lambda claim: item(*claim), CLAIMS), unique_by=lambda one: one.claim)


@given(KEYS, applications(), RECORDED)
def test_nothing_that_an_application_has_is_deleted_and_nothing_is_forgotten(
    key: Key, site: dict[Key, Wanted], recorded: list[Item]
) -> None:
    made = plan(key, site, recorded)
    applied = {one.claim for one in (*made.first, *made.rest)}
    everybodys = {one.claim for wanted in site.values() for one in wanted.objects}
    deleted, handed = {one.claim for one in made.delete}, {one.claim for one in made.handed}
    assert not deleted & everybodys
    assert handed <= everybodys - applied
    assert {one.claim for one in recorded} <= applied | deleted | handed
    assert deleted | handed <= {one.claim for one in recorded}


@given(applications())
def test_every_object_is_applied_by_exactly_one_application(site: dict[Key, Wanted]) -> None:
    plans = {key: plan(key, site, ()) for key in site}
    claims = [one.claim for made in plans.values() for one in (*made.first, *made.rest)]
    assert sorted(claims) == sorted({one.claim for wanted in site.values() for one in wanted.objects})
    for key, made in plans.items():
        shared = [one for one in site[key].objects if one.kind == "Namespace" and one not in made.first]
        refused = [one for one, _ in made.refused]
        shared = [one for one in shared if one not in refused]
        assert len(made.first) + len(made.rest) + len(made.refused) + len(shared) == len(site[key].objects)
        assert all(other < key for _, other in made.refused)


@given(KEYS, applications(), RECORDED)
def test_what_others_need_comes_first_and_is_deleted_last(
    key: Key, site: dict[Key, Wanted], recorded: list[Item]
) -> None:
    made = plan(key, site, recorded)
    assert all(planning.is_first(one.group, one.kind) for one in made.first)
    ranks = [planning.rank(one.group, one.kind) for one in (*made.first, *made.rest)]
    assert ranks == sorted(ranks)
    last = [planning.rank(one.group, one.kind) for one in made.delete]
    assert last == sorted(last, reverse=True)


def test_custom_resources_come_after_what_serves_them_and_go_before_it() -> None:
    order = ["CustomResourceDefinition", "Deployment", "Widget", "ValidatingWebhookConfiguration"]
    ranks = [planning.rank(KINDS[kind], kind) for kind in order]
    assert ranks == sorted(ranks) and len(set(ranks)) == 4
    assert planning.rank("example.com", "Namespace") == planning.rank("example.com", "Widget")


def test_objects_of_one_kind_keep_their_order_and_are_deleted_in_the_reverse() -> None:
    objects = tuple(manifest("ConfigMap", "x", name) for name in "cab")
    key = Key("g", "p")
    assert [one.name for one in plan(key, {key: Wanted(objects)}, ()).rest] == ["c", "a", "b"]
    assert [one.name for one in plan(key, {}, [item("ConfigMap", "x", name) for name in "cab"]).delete] == list("bac")


def test_an_application_whose_text_cannot_be_read_loses_nothing() -> None:
    key = Key("g", "p")
    made = plan(key, {key: Wanted((), problems=("line 1: no",))}, [item("ConfigMap", "x", "a")])
    assert made == planning.Plan()


def test_item_184_an_application_is_enabled_where_it_and_its_group_are() -> None:
    def cluster(group: bool, application: bool) -> Obj:
        inner = Obj("Application", "p", {"enabled": application, "config": ""})
        outer = Obj("AppGroup", "g", {"enabled": group}, children={"applications": {"p": inner}})
        return Obj("KubeCluster", "c", children={"app_groups": {"g": outer}})

    for group in (True, False):
        for application in (True, False):
            assert bool(planning.wanted(cluster(group, application))) is (group and application)
            assert planning.keys(cluster(group, application)) == [Key("g", "p")]


def namespace(name: str, **metadata: object) -> Wanted:
    return Wanted(
        read(yaml.safe_dump({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **metadata}}))
    )


def test_a_namespace_may_be_in_several_applications_that_say_the_same_of_it() -> None:
    one, two = Key("system", "a"), Key("system", "b")
    site = {one: namespace("cm"), two: namespace("cm")}
    assert plan(one, site, ()).first and not plan(two, site, ()).first
    assert plan(two, site, ()).refused == ()
    # The second one takes it over when the first one is switched off: it is not deleted meanwhile.
    recorded = Item("", "Namespace", "", "cm")
    assert plan(one, {two: site[two]}, (recorded,)).delete == ()
    assert plan(two, {two: site[two]}, ()).first
    other = {one: site[one], two: namespace("cm", labels={"a": "b"})}
    assert [str(each) for each, _ in plan(two, other, ()).refused] == ["Namespace cm"]


def test_the_label_that_every_server_gives_a_namespace_makes_no_difference() -> None:
    one, two = Key("system", "a"), Key("system", "b")
    site = {one: namespace("cm"), two: namespace("cm", labels={"kubernetes.io/metadata.name": "cm"})}
    assert plan(one, site, ()).refused == plan(two, site, ()).refused == ()
