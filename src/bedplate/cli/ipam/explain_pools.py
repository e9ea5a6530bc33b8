"""Why an address, a node or a pool is as it is: who holds it, whose block it is in, why a node has none.

In: a `Survey` and the views made of it. Out: `Explanation`s. Pure: it asks nobody. A plan of the controller's own kind
says why a node has no block, so the reason shown is the reason that decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from bedplate.api import core
from bedplate.cli import display
from bedplate.cli.ipam import landscape, tables
from bedplate.cli.ipam.holders import Holding
from bedplate.cli.ipam.landscape import Landscape
from bedplate.cli.ipam.survey import Pool
from bedplate.cli.ipam.views import Block, PoolView
from bedplate.core.explanation import Explanation, Finding, State
from bedplate.ipam import addresses, selectors
from bedplate.ipam.addresses import Address
from bedplate.ipam.pools import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm

__all__ = ["explain_address", "explain_node", "explain_pool", "why_not"]

CONTROLLER = "deployment/nv-ipam-controller"


# Addresses


def explain_address(address: Address, land: Landscape) -> Explanation:
    """Everything about one address."""
    views = [view for view in land.views if view.network is not None and view.network.holds(address)]
    holdings = [holding for holding in land.holdings if holding.address == address]
    findings: list[Finding] = []
    for view in views:
        findings += _in_pool(address, view)
    if not views:
        names = ", ".join(view.network_text for view in land.views) or "there are none"
        findings.append(Finding("pool", "none", f"no pool's network contains it ({names})", State.NOTICE))
    giving = [view for view in views if not view.problems]
    if len(giving) > 1:
        both = " and ".join(f"{view.kind} {view.name}" for view in giving)
        text = f"{both} overlap here: two pods may get this address; change one pool's network"
        findings.append(Finding("pools", "overlap", text, State.BAD))
    findings += _holders(holdings, views, land)
    return Explanation("Address", str(address), tuple(findings))


def _in_pool(address: Address, view: PoolView) -> Iterator[Finding]:
    yield Finding("pool", f"{view.kind} {view.name}", f"is in its network {view.network_text}")
    if view.problems:
        yield Finding("spec", "invalid", "; ".join(view.problems), State.BAD)
    block = view.block_with(address)
    yield _place(address, view, block)
    yield _nature(address, view, block)


def _place(address: Address, view: PoolView, block: Block | None) -> Finding:
    if block is not None:
        return Finding("block", block.text, f"assigned to node {block.node}")
    index = view.index_of(address)
    if index is None:
        return Finding("block", "none", "is outside every block: in the remainder at an end of the network")
    if (kept := next((candidate for candidate in view.held if candidate.index == index), None)) is not None:
        until = f" until {kept.until:%Y-%m-%d %H:%M:%S} UTC" if kept.until is not None else ""
        text = f"{kept.text} belonged to node {kept.node} and is held back{until}: its pods may still run"
        return Finding("block", "quarantined", text, State.NOTICE)
    taken = next((candidate for candidate in view.blocks if candidate.index == index), None)
    if taken is not None:
        return Finding(
            "block", taken.text, f"assigned to node {taken.node}; this address of it is never allocated to pods"
        )
    if index in view.reserved:
        return Finding("block", "reserved", "spec.staticAllocations reserves this prefix", State.NOTICE)
    if index in view.excluded:
        return Finding("block", "excluded", "spec.exclusions leave no address of this block", State.NOTICE)
    return Finding("block", "free", "no node has this block yet")


def _nature(address: Address, view: PoolView, block: Block | None) -> Finding:
    network = view.network
    assert network is not None, "only views whose network holds the address are asked"
    pool_gateway = addresses.parse_address(view.gateway)
    if (block is not None and block.gateway == address) or pool_gateway == address:
        return Finding("use", "gateway", "never allocated, unless a pod requests this address", State.NOTICE)
    if not addresses.is_small(network) and address.value == network.base:
        return Finding("use", "network address", "never allocated to a pod", State.NOTICE)
    if addresses.has_broadcast(network) and address.value == network.top:
        return Finding("use", "broadcast address", "never allocated to a pod", State.NOTICE)
    if block is not None and block.excludes(address):
        text = "spec.exclusions or spec.perNodeExclusions exclude it; only a pod that requests this address gets it"
        return Finding("use", "excluded", text, State.NOTICE)
    if block is None:
        return Finding("use", "not now", "pods only get addresses from their node's block")
    return Finding("use", "for pods", f"node {block.node} may allocate it to a pod")


def _holders(holdings: Sequence[Holding], views: Sequence[PoolView], land: Landscape) -> list[Finding]:
    findings: list[Finding] = []
    for holding in holdings:
        where = f" through interface {holding.interface}" if holding.interface else ""
        network = f" of network {holding.network}" if holding.network else ""
        since = (
            f", since {holding.since:%Y-%m-%d %H:%M:%S} UTC ({_ago(holding, land.now)})"
            if holding.since is not None
            else ""
        )
        text = f"on node {holding.node or 'unknown'}{where}{network}{since}; its {holding.source} says so"
        findings.append(Finding("holder", holding.who, text))
        findings += _stray(holding, views)
    holders = {(holding.namespace, holding.pod, holding.container) for holding in holdings if holding.source != "store"}
    if len(holders) > 1:
        text = "more than one pod has this address: delete one of them, then check which of their nodes lost its block"
        findings.append(Finding("holders", str(len(holders)), text, State.BAD))
    if not holdings:
        known = "no pod's annotation or podIPs contains it"
        more = "" if land.has_stores else "; a node's store may (--store-file, on that node)"
        findings.append(Finding("holder", "nobody", known + more))
    return findings


def _stray(holding: Holding, views: Sequence[PoolView]) -> Iterator[Finding]:
    for view in views:
        block = view.block_with(holding.address)
        if block is None or not holding.node or block.node == holding.node:
            continue
        text = (
            f"the block is node {block.node}'s, but its holder runs on {holding.node}: the block was reassigned, "
            "or the pod requested this address; another pod may get it too"
        )
        yield Finding("node", "another", text, State.BAD)


def _ago(holding: Holding, now: datetime) -> str:
    return f"{display.age((now - holding.since).total_seconds())} ago" if holding.since is not None else ""


# Nodes


def explain_node(node: core.Node, land: Landscape) -> Explanation:
    """What a node has of every pool, and why it has nothing of some."""
    findings = [
        _node_in_pool(node, pool, view, land.namespace, land.unplaced(view.key))
        for pool, view in zip(land.pools, land.views, strict=True)
    ]
    if not findings:
        text = f"there are no IPPools or CIDRPools in namespace {land.namespace}"
        findings.append(Finding("pools", "none", text, State.NOTICE))
    return Explanation("Node", node.name, tuple(findings))


def _node_in_pool(node: core.Node, pool: Pool, view: PoolView, namespace: str, unplaced: Mapping[str, str]) -> Finding:
    topic = f"{view.kind} {view.name}"
    reason = why_not(pool.spec.node_selector, node)
    block = view.block_of(node.name)
    if block is not None:
        text = f"{block.used} of {tables.count(block.usable)} addresses in use"
        if block.usable == 0:
            return Finding(topic, block.text, "exclusions and gateway leave no address for pods", State.BAD)
        if reason:
            return Finding(topic, block.text, f"still in the status, but {reason}", State.BAD)
        if block.used >= block.usable:
            return Finding(topic, block.text, f"{text}: the next pod here gets none", State.BAD)
        return Finding(topic, block.text, text)
    if view.problems:
        text = f"the spec is invalid, so no node gets a new block: {'; '.join(view.problems)}"
        if kept := dict(view.strays).get(node.name):
            return Finding(topic, kept, f"given by an earlier spec and kept; {text}", State.BAD)
        return Finding(topic, "no block", text, State.BAD)
    if reason:
        return Finding(topic, "not for it", reason, State.NOTICE)
    return Finding(topic, "no block", _why_none(unplaced.get(node.name, ""), view, namespace), State.BAD)


def _why_none(why: str, view: PoolView, namespace: str) -> str:
    if why == "exhausted" and view.excluded.total() >= view.total:
        return "spec.exclusions leave no address of any block: exclude less, or enlarge the network"
    if why == "exhausted":
        return (
            f"all {tables.count(view.total - view.excluded.total())} blocks are assigned: enlarge the network, or make "
            f"{'perNodeBlockSize smaller' if view.kind == 'IPPool' else 'prefixes longer'}, or narrow the nodeSelector"
        )
    if why == "quarantined":
        times = [block.until for block in view.held if block.until is not None]
        until = f", the first until {min(times):%Y-%m-%d %H:%M:%S} UTC" if times else ""
        return f"the remaining blocks belonged to removed nodes and are held back{until}"
    return (
        f"it matches and blocks are free, but the status has no block for it: is the controller running? "
        f"kubectl -n {namespace} logs {CONTROLLER}; bedplate doctor ipam"
    )


# Pools


def explain_pool(pool: Pool, view: PoolView, land: Landscape) -> Explanation:
    """What a pool has given to whom, and what stands in its way."""
    return Explanation(view.kind, view.name, tuple(_about_pool(pool, view, land)))


def _about_pool(pool: Pool, view: PoolView, land: Landscape) -> Iterator[Finding]:
    if view.problems:
        for text in view.problems:
            yield Finding("spec", "invalid", text, State.BAD)
    else:
        yield Finding("spec", "valid", f"{view.network_text}, {view.block_text} a node")
        yield from (Finding("spec", "odd", text, State.NOTICE) for text in landscape.oddities(pool))
    yield from (Finding("overlap", other, text, State.BAD) for other, text in land.overlaps(view.key))
    yield _blocks(view)
    yield from _nodes(pool, view, land)
    if view.strays and view.problems:
        text = f"{_few([f'{node}: {block}' for node, block in view.strays])}; given by an earlier spec and kept"
        yield Finding("status", "kept", f"{text} until this one is valid; pods still get addresses there", State.NOTICE)
    elif view.strays:
        for node, block in view.strays:
            yield Finding("status", "does not fit", f"{node}: {block} is not a block of this pool", State.BAD)
    yield from _stale(view, land)
    for kept in view.held:
        until = f"until {kept.until:%Y-%m-%d %H:%M:%S} UTC" if kept.until is not None else "for now"
        yield Finding(
            "quarantine", kept.text, f"belonged to node {kept.node}; no other node gets it {until}", State.NOTICE
        )
    if not view.problems:
        # How many addresses the blocks of an earlier spec have is not known.
        yield _addresses(view)


def _blocks(view: PoolView) -> Finding:
    free, total, out = (tables.count(number) for number in (view.free, view.total, view.excluded.total()))
    if view.problems:
        # While the spec is invalid nothing is given, and nothing is taken away.
        given = len(view.blocks) + len(view.strays)
        return Finding("blocks", f"{given} kept", f"{given} nodes keep theirs; no other node gets one", State.NOTICE)
    text = f"{len(view.blocks)} given, {free} free of {total}, {out} excluded"
    if view.total and view.excluded.total() >= view.total:
        return Finding("blocks", "all excluded", "exclusions leave no address of any block", State.BAD)
    if view.free == 0:
        return Finding("blocks", "none free", f"{text}; new nodes get none", State.NOTICE)
    return Finding("blocks", f"{free} free", text)


def _nodes(pool: Pool, view: PoolView, land: Landscape) -> Iterator[Finding]:
    selected = [node for node in land.nodes if not why_not(pool.spec.node_selector, node)]
    given, unplaced = {block.node for block in view.blocks} | dict(view.strays).keys(), land.unplaced(view.key)
    without = [node.name for node in selected if node.name not in given]
    text = f"{len(selected)} of the cluster's {len(land.nodes)} match the nodeSelector; without a block: {len(without)}"
    state = State.BAD if without else State.NOTICE if not selected else State.GOOD
    yield Finding("nodes", str(len(selected)), text, state)
    if view.problems:
        return
    reasons = ((name, _why_none(unplaced.get(name, ""), view, land.namespace)) for name in without)
    for reason, names in _by_reason(reasons):
        yield Finding("no block", _few(names), reason, State.BAD)


def _by_reason(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    nodes_by_reason: dict[str, list[str]] = {}
    for name, reason in pairs:
        nodes_by_reason.setdefault(reason, []).append(name)
    return list(nodes_by_reason.items())


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _stale(view: PoolView, land: Landscape) -> Iterator[Finding]:
    known = {node.name for node in land.nodes}
    if gone := [block.node for block in view.blocks if block.node not in known]:
        text = "still in the status, though no such node exists: is the controller running?"
        yield Finding("status", _few(gone), text, State.BAD)


def _addresses(view: PoolView) -> Finding:
    full = [block.node for block in view.blocks if block.usable <= block.used]
    text = f"{view.used} of {tables.count(view.usable)} that the assigned blocks have for pods"
    if full:
        return Finding("addresses", f"{view.used} in use", f"{text}; none is left on {_few(full)}", State.BAD)
    return Finding("addresses", f"{view.used} in use", text)


def why_not(selector: NodeSelector | None, node: core.Node) -> str:
    """Why the node is not selected; empty when it is."""
    if selectors.matcher(selector)(node.name, node.metadata.labels) or selector is None:
        return ""
    reasons = [_why_not(term, node) for term in selector.node_selector_terms]
    if not reasons:
        return "spec.nodeSelector has no terms, so it matches no node"
    if len(reasons) == 1:
        return reasons[0]
    return "; ".join(f"term {number}: {reason}" for number, reason in enumerate(reasons, start=1))


def _written(requirement: NodeSelectorRequirement) -> str:
    """A requirement as people write it in a sentence."""
    values = ",".join(requirement.values)
    match requirement.operator:
        case "Exists" | "DoesNotExist":
            return f"{requirement.key} {requirement.operator}"
        case "Gt" | "Lt":
            return f"{requirement.key} {'>' if requirement.operator == 'Gt' else '<'} {values}"
        case _:
            return f"{requirement.key} {requirement.operator} ({values})"


def _why_not(term: NodeSelectorTerm, node: core.Node) -> str:
    if not term.match_expressions and not term.match_fields:
        return "the term is empty and matches no node"
    failing = [
        f"{_written(requirement)} fails: {_labelled(requirement, node)}"
        for requirement in term.match_expressions
        if not _holds(NodeSelectorTerm(match_expressions=(requirement,)), node)
    ]
    failing += [
        f"{_written(requirement)} fails: the node's name is {node.name}"
        for requirement in term.match_fields
        if not _holds(NodeSelectorTerm(match_fields=(requirement,)), node)
    ]
    return ", and ".join(failing)


def _holds(term: NodeSelectorTerm, node: core.Node) -> bool:
    return selectors.matcher(NodeSelector((term,)))(node.name, node.metadata.labels)


def _labelled(requirement: NodeSelectorRequirement, node: core.Node) -> str:
    value = node.metadata.labels.get(requirement.key)
    return f"the node has no label {requirement.key}" if value is None else f"the node's label has the value {value!r}"
