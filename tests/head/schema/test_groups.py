"""Every row of a declaration is in one named group; forms and REST know which."""

from __future__ import annotations

import pytest

from bedplate.head.entities import SCHEMA
from bedplate.head.entities.nodes import BmcInterface, PhysicalNode
from bedplate.head.schema.entity import Entity, Field, Group
from bedplate.head.schema.kinds import Text
from bedplate.head.schema.tables import describe

_FEW = 6


@pytest.mark.parametrize("entity", SCHEMA.types.values(), ids=lambda entity: entity.type_name())
def test_every_row_is_in_one_group(entity: type[Entity]) -> None:
    rows = [row for _, rows in entity.grouped() for row in rows]
    assert sorted(row.attribute for row in rows) == sorted(entity.attributes)
    labels = [group.label for group, _ in entity.grouped()]
    assert len(labels) == len(set(labels))


@pytest.mark.parametrize("entity", SCHEMA.types.values(), ids=lambda entity: entity.type_name())
def test_what_has_many_parameters_has_named_groups_and_leaves_only_remarks_to_others(entity: type[Entity]) -> None:
    settable = [field for field in entity.fields if not field.readonly]
    assert entity.groups or len(settable) <= _FEW
    others = [rows for group, rows in entity.grouped() if group.label == "Other"]
    assert [row.attribute for rows in others for row in rows] in ([], ["revision"])


def test_a_node_has_the_groups_that_administrators_look_for() -> None:
    assert [group.label for group, _ in PhysicalNode.grouped()] == [
        "Identity",
        "Network",
        "Provisioning",
        "Services",
        "Agent",
        "Other",
    ]
    assert "Power" in [group.label for group, _ in BmcInterface.grouped()]


def test_a_group_of_what_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="has no row 'missing'"):

        class _Wrong(Entity):
            groups = (Group("One", ("missing",)),)
            here = Field("Here", Text(), doc="here")


def test_a_declaration_as_data_says_the_group() -> None:
    rows = describe(PhysicalNode)["rows"]
    assert isinstance(rows, list)
    by_name = {row["name"]: (row["group"], row["rare"]) for row in rows}
    assert by_name["mac"] == ("Network", False)
    assert by_name["revision"] == ("Other", True)
