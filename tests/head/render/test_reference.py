"""The page about managed files names every one, with what services do about it, and no other."""

from __future__ import annotations

import pathlib
import re

from tests.head.render import rooms
from tests.head.render.test_golden import nftables, options

from bedplate.api.desired import File
from bedplate.head.desired import desired
from bedplate.head.session import Session
from bedplate.head.tree import Tree

PAGE = pathlib.Path(__file__).parents[3] / "docs/reference/head-files.md"
DROPINS = "/cm/local/apps/containerd/var/etc/conf.d/"


def rendered(*trees: Tree) -> dict[str, File]:
    """Every file of every node, by its path in general."""
    found = {}
    for tree in trees:
        for node in tree.mode("device"):
            for file in desired(tree, node).files:
                path = file.path.replace("/pki/default/", "/pki/<cluster>/")
                path = re.sub(r"/patches/[a-z-]+0", "/patches/<component>0", path)
                if not path.startswith(DROPINS) and not path.endswith("/ca.key"):
                    found[path] = file
    return found


def test_the_page_is_about_the_files_that_are_rendered() -> None:
    with_options, with_nftables = Session(rooms.full()), Session(rooms.full())
    options(with_options)
    nftables(with_nftables)
    found = rendered(with_options.tree, with_nftables.tree)
    rows = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        match = re.match(r"`(/[^`]+)`", cells[1]) if len(cells) == 4 else None
        if match:
            rows[match[1]] = cells
    assert sorted(rows) == sorted(found)
    for path, cells in rows.items():
        file = found[path]
        did = {"RESTART": "restarts", "RELOAD": "reloads", "NONE": "nothing"}[file.action]
        assert did in cells[2], path
        assert bool(file.test) == bool(cells[3]), path
