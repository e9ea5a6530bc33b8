"""Inputs from declarations, and what submitted texts make of an object."""

from __future__ import annotations

from typing import ClassVar

from hypothesis import given
from hypothesis import strategies as st
from tests.head import sites

from bedplate.head.entities import SCHEMA
from bedplate.head.objects import Obj, Secret
from bedplate.head.schema.entity import Entity
from bedplate.head.tree import Tree
from bedplate.ui.web import forms

TREE = sites.manual()


def control(obj: Obj, name: str, tree: Tree = TREE) -> forms.Input:
    return next(one for one in forms.inputs(tree, obj) if one.name == f"f.{name}")


def texts(obj: Obj) -> dict[str, str]:
    return {one.name: one.text for one in forms.inputs(TREE, obj)}


def test_each_kind_has_its_input() -> None:
    node = TREE.get(("device", "node001"))
    forms_of = {one.name.removeprefix("f."): one.form for one in forms.inputs(TREE, node)}
    assert forms_of["category"] == "select"
    assert forms_of["data_node"] == "select"
    assert forms_of["ip"] == "text"
    assert forms_of["notes"] == "area"
    assert "hostname" not in forms_of
    cluster = TREE.get(("kubernetes", "default"))
    assert control(cluster, "kube_ca_key").form == "secret"
    assert (control(cluster, "external_port").form, control(cluster, "external_port").high) == ("number", 65535)
    assert control(cluster, "trusted_domains").form == "area"


def test_inherited_values_are_offered_with_their_source() -> None:
    image = control(TREE.get(("device", "node001")), "software_image")
    assert image.options[0] == ("", "inherit (default-image)")
    assert image.note == "default-image from category:default, unless set here"
    assert image.text == ""


def test_a_target_that_is_gone_can_still_be_left_as_it_is() -> None:
    node = Obj("PhysicalNode", "x", {"category": "gone"})
    assert ("gone", "gone (does not exist)") in control(node, "category").options


def test_many_targets_become_suggestions() -> None:
    tree = Tree(SCHEMA, [("category", Obj("Category", f"c{i}")) for i in range(300)])
    found = control(Obj("PhysicalNode", "x"), "category", tree)
    assert found.form == "text"
    assert len(found.suggestions) == 200


def test_an_emptied_field_goes_back_to_the_default_or_what_is_inherited() -> None:
    role = Obj("KubeletRole", "kubelet", {"max_pods": 250})
    assert forms.read(TREE, role, {"f.max_pods": " "}).obj.values == {}
    node = Obj("PhysicalNode", "x", {"software_image": "my-new-image"})
    assert forms.read(TREE, node, {"f.software_image": ""}).obj.values == {}


def test_what_the_form_does_not_hold_is_left_alone() -> None:
    node = Obj("PhysicalNode", "x", {"notes": "words", "ip": "10.0.0.1"})
    assert forms.read(TREE, node, {"f.ip": "10.0.0.2"}).obj.values == {"notes": "words", "ip": "10.0.0.2"}


def test_lines_of_browsers_are_lines() -> None:
    found = forms.read(TREE, Obj("PhysicalNode", "x"), {"f.notes": "one\r\ntwo"})
    assert found.obj.values == {"notes": "one\ntwo"}


def test_what_is_told_to_who_sets_a_field_is_told() -> None:
    told = {
        (entity.type_name(), field.attribute): field.notice
        for entity in SCHEMA.types.values()
        for field in entity.fields
        if field.notice and not field.kind.secret and field.kind.name == "text"
    }
    for (type_name, attribute), notice in told.items():
        found = forms.read(TREE, Obj(type_name, "x"), {f"f.{attribute}": "/some/thing"})
        assert found.problems or notice in found.told


def test_a_form_notices_another_version_but_never_holds_a_secret() -> None:
    one = Obj("KubeCluster", "c", {"kube_ca_key": Secret("a"), "notes": "x"}, revision=1)
    other = Obj("KubeCluster", "c", {"kube_ca_key": Secret("a"), "notes": "y"}, revision=1)
    assert forms.seen(one) != forms.seen(other)
    assert forms.seen(one) == forms.seen(one)
    assert texts(one)["f.kube_ca_key"] == ""
    typed = {"f.kube_ca_key": "typed", "f.notes": "typed"}
    kept = {held.name: held.text for held in forms.inputs(TREE, one, typed)}
    assert (kept["f.kube_ca_key"], kept["f.notes"]) == ("", "typed")


class _Every:
    objects: ClassVar[list[Obj]] = [Obj(name, "x") for name in sorted(SCHEMA.types)]


@given(st.sampled_from(_Every.objects), st.data())
def test_a_form_sent_back_as_it_came_changes_nothing(obj: Obj, data: st.DataObject) -> None:
    entity: type[Entity] = SCHEMA.types[obj.type]
    for field in entity.fields:
        if field.readonly or field.kind.secret or field.kind.target_mode or not data.draw(st.booleans()):
            continue
        text = data.draw(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8))
        try:
            value = field.kind.parse(text)
        except ValueError:
            continue
        obj = obj.with_value(field.attribute, field.normal(value))
    found = forms.read(TREE, obj, {name: text.replace("\n", "\r\n") for name, text in texts(obj).items()})
    assert found.obj == obj


def test_controls_are_in_the_groups_of_the_declaration_and_what_is_rare_is_folded_until_it_is_used() -> None:
    cluster = TREE.get(("kubernetes", "default"))
    entity = SCHEMA.of(cluster)

    def folded(obj: Obj, problems: dict[str, str] | None = None) -> dict[str, bool]:
        return {
            group.label: group.is_folded
            for group in forms.sections(entity, forms.inputs(TREE, obj, problems=problems or {}))
        }

    assert list(folded(cluster))[:3] == ["Identity", "Network", "Control plane"]
    bare = Obj("KubeCluster", "bare")
    assert [label for label, is_folded in folded(bare).items() if is_folded] == [
        "Certificates",
        "Templates",
        "External cluster",
        "Cluster API",
        "Other",
    ]
    assert not folded(bare.with_value("external", True))["External cluster"]
    assert not folded(bare, {"f.capi_namespace": "wrong"})["Cluster API"]


def test_every_control_is_in_a_group() -> None:
    for name, entity in SCHEMA.types.items():
        controls = forms.inputs(TREE, Obj(name, "x"))
        grouped = [control.name for group in forms.sections(entity, controls) for control in group.inputs]
        assert sorted(grouped) == sorted(control.name for control in controls)


def test_a_reference_leads_to_its_target() -> None:
    node = TREE.get(("device", "node001"))
    assert control(node, "category").ways == (("default", "/show/category/default"),)
    assert control(Obj("PhysicalNode", "x", {"category": "gone"}), "category").ways == ()
    many = Obj("ConfigurationOverlay", "x", {"nodes": tuple(f"node{at:03d}" for at in range(1, 8))})
    assert control(many, "nodes").ways == (), "so many links do not help"


def test_several_references_are_boxes_with_what_is_held_first_and_in_its_order() -> None:
    overlay = Obj("ConfigurationOverlay", "x", {"categories": ("gpu-nodes", "gone", "default")})
    found = control(overlay, "categories")
    assert found.form == "boxes"
    assert [value for value, _ in found.options] == ["gpu-nodes", "gone", "default"]
    assert ("gone", "gone (does not exist)") in found.options
    same = forms.read(TREE, overlay, {"f.categories": "\ngpu-nodes\ngone\ndefault"})
    assert (same.obj, same.problems) == (overlay, {}), "what is not touched is not judged"
    assert forms.read(TREE, overlay, {"f.categories": "\ngpu-nodes"}).obj.values == {"categories": ("gpu-nodes",)}
    assert forms.read(TREE, overlay, {"f.categories": ""}).obj.values == {}, "no box is ticked"
