"""Which nodes have a power button; pressing it is tested in a real lab (test_lab_cloud.py)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bedplate.core import errors
from bedplate.lab import power, state
from bedplate.lab.plan import Options, make_plan


@pytest.fixture
def shelf(tmp_path: Path) -> state.Shelf:
    made = state.Shelf(tmp_path)
    made.write(state.Record("ready", os.getpid(), make_plan(Options(name="x", nodes=2), [])))
    return made


def test_the_node_with_the_control_plane_is_never_stopped(shelf: state.Shelf) -> None:
    with pytest.raises(errors.Invalid, match="carries the control plane"):
        power.stop_node("x", "node-1", shelf)


async def test_unknown_nodes_and_labs_are_named(shelf: state.Shelf) -> None:
    with pytest.raises(errors.NotFound, match="no node 'node-9'"):
        power.stop_node("x", "node-9", shelf)
    with pytest.raises(errors.NotFound, match="no node 'node-9'"):
        await power.start_node("x", "node-9", shelf, lambda line: None)
    with pytest.raises(errors.NotFound, match="no lab 'y'"):
        power.stop_node("y", "node-2", shelf)


def test_a_node_that_is_off_stays_off(shelf: state.Shelf) -> None:
    power.stop_node("x", "node-2", shelf)
