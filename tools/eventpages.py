"""The page of Events for `tools/docs.py`: every reason that a program may give, read from the sources.

In: the sources, and what is said about each reason here. Out: Markdown. A reason of the sources that is not here, and
one here that the sources do not have, stops the generator.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from pagetext import NOTE, table

SOURCES = Path(__file__).resolve().parent.parent / "src" / "bedplate"
FOLDERS = ("cloud", "ipam", "operators", "runtime", "sim")
REASON = re.compile(r"[A-Z][a-z]+(?:[A-Z][A-Za-z]*)*")
TYPES = {"Normal", "Warning"}
# Functions that take a reason; `Kind` has that of a pool's kind.
TELLERS = {"event", "_event", "tell", "_tell", "state", "nodes", "Kind"}
# Values that such calls also take and that are not reasons.
OTHERS = {"IPPool", "CIDRPool"}

MANAGER, CONTROLLER, DAEMON = "manager", "`ipam-controller`", "`ipam-node`"
PERMISSIONS = "`permissions-manager`"
# reason -> program, object, type, when, what to do
EVENTS: dict[str, tuple[str, str, str, str, str]] = {
    "DriftRepaired": (
        PERMISSIONS,
        "a permission",
        "Warning",
        "Another client changed or deleted an object that the manager made; it is as before.",
        "Change the custom resource instead of its objects.",
    ),
    "NotMade": (
        PERMISSIONS,
        "a permission",
        "Warning",
        "Nothing was made of a custom resource; the message, and its condition Ready, say why.",
        "Correct the custom resource, or create the namespace that it names.",
    ),
    "LeaderElection": ("all", "Lease", "Normal", "A process became or stopped being the leader.", ""),
    "Synced": (MANAGER, "Node", "Normal", "The node was initialised: provider ID, labels, addresses; taint gone.", ""),
    "InvalidNodeIP": (
        MANAGER,
        "Node",
        "Warning",
        "The kubelet's `--node-ip` is malformed, or the cloud does not know that address; the taint stays.",
        "Correct `--node-ip` and restart the kubelet.",
    ),
    "AmbiguousInstance": (
        MANAGER,
        "Node",
        "Warning",
        "The node has no provider ID, and several machines or clouds have its name.",
        "Give its kubelet `--provider-id`, or rename one of the machines.",
    ),
    "InstanceNotFound": (
        MANAGER,
        "Node",
        "Warning",
        "The node waits to be initialised, and its cloud has no such machine.",
        "Start its kubelet with `--provider-id`, or give the node the name of its machine.",
    ),
    "InvalidProviderID": (
        MANAGER,
        "Node",
        "Warning",
        "The node waits to be initialised, and its provider ID is not of the form that its cloud has.",
        "Correct `--provider-id` of its kubelet, delete the Node, restart the kubelet.",
    ),
    "ForeignProviderID": (
        MANAGER,
        "Node",
        "Warning",
        "The node waits to be initialised, and its provider ID is of another organisation.",
        "Correct `--provider-id` of its kubelet, delete the Node, restart the kubelet.",
    ),
    "NoAddressesYet": (
        MANAGER,
        "Node",
        "Warning",
        "The node waits to be initialised, and its machine has no addresses yet.",
        "Check the machine's network interfaces, or start its kubelet with `--node-ip`.",
    ),
    "InitializationFailed": (
        MANAGER,
        "Node",
        "Warning",
        "The node waits to be initialised, and its cloud or the API server has been failing for half a minute.",
        "It is tried again; `bedplate doctor`.",
    ),
    "WaitingForClouds": (
        MANAGER,
        "Node",
        "Warning",
        "The node has no provider ID, and not every cloud could be asked for its name.",
        "Check the cloud that does not answer: `bedplate doctor`.",
    ),
    "DeletingNode": (MANAGER, "Node", "Normal", "Its machine was denied twice, so the Node object is deleted.", ""),
    "DeletingNodeFailed": (
        MANAGER,
        "Node",
        "Warning",
        "The API server refused the deletion.",
        "Read the message; rights are checked by `bedplate doctor`.",
    ),
    "NodeDeletionBlocked": (
        MANAGER,
        "Node",
        "Warning",
        "Too many nodes are absent at once (`--max-node-deletions-percent`): none is deleted for now.",
        "The message says when, or why not. Check the cloud's listing, project and credentials.",
    ),
    "FailedToCreateRoute": (MANAGER, "Node", "Warning", "The cloud refused the route to the node's pods.", ""),
    "EnsuringLoadBalancer": (MANAGER, "Service", "Normal", "The load balancer is being created or changed.", ""),
    "EnsuredLoadBalancer": (MANAGER, "Service", "Normal", "The load balancer is as the Service says.", ""),
    "UpdatedLoadBalancer": (MANAGER, "Service", "Normal", "The load balancer has other nodes.", ""),
    "DeletingLoadBalancer": (MANAGER, "Service", "Normal", "The load balancer is being deleted.", ""),
    "DeletedLoadBalancer": (MANAGER, "Service", "Normal", "The load balancer is gone.", ""),
    "SyncLoadBalancerFailed": (
        MANAGER,
        "Service",
        "Warning",
        "The cloud refused a step; it is tried again after 5 s, then after twice as long, up to 5 min.",
        "`bedplate ccm explain service NAMESPACE/NAME`.",
    ),
    "UpdateLoadBalancerFailed": (
        MANAGER,
        "Service",
        "Warning",
        "The load balancer could not be given other nodes; it is tried again.",
        "`bedplate ccm explain service NAMESPACE/NAME`.",
    ),
    "DeleteLoadBalancerFailed": (
        MANAGER,
        "Service",
        "Warning",
        "The load balancer could not be deleted; the Service keeps its finalizer, and it is tried again.",
        "Read the message; remove the finalizer by hand only if the cloud has nothing of the Service any more.",
    ),
    "UnAvailableLoadBalancer": (
        MANAGER,
        "Service",
        "Warning",
        "No node can carry the Service's traffic.",
        "`bedplate ccm explain service NAMESPACE/NAME` names each node and what excludes it.",
    ),
    "CloudCredentials": (
        "manager for `nvidia-bmm`",
        "Namespace kube-system",
        "Warning",
        "The cloud does not accept the credentials, or the configuration does not fit it.",
        "Correct the Secret; `bedplate doctor` says which key.",
    ),
    "FloatingIPNotOwned": (
        "manager for `oxide`",
        "Service",
        "Warning",
        "A floating IP that the Service names, or its name, belongs to another Service or cluster.",
        "Name another one, or release it there.",
    ),
    "PortConflict": (
        "manager for `oxide`",
        "Service",
        "Warning",
        "Every node that could serve it answers on one of its ports for another Service.",
        "Add a node, or use other ports.",
    ),
    "SourceRangesNotEnforced": (
        "manager for `oxide`",
        "Service",
        "Warning",
        "`loadBalancerSourceRanges` is enforced by kube-proxy on the nodes, not by the floating IP.",
        "",
    ),
    "InvalidSpec": (
        CONTROLLER,
        "IPPool, CIDRPool",
        "Warning",
        "The spec is invalid: no node gets a block, and nodes keep those they have.",
        "Correct the spec; the message lists every problem.",
    ),
    "OverlappingPools": (
        CONTROLLER,
        "IPPool, CIDRPool",
        "Warning",
        "Two valid pools may give the same address.",
        "Change one network, or exclude the shared addresses in one pool.",
    ),
    "NoFreeRanges": (
        CONTROLLER,
        "IPPool",
        "Warning",
        "A node that the pool selects gets no block; the message says whether the pool is exhausted, held back or "
        "excluded.",
        "`bedplate ipam explain POOL`.",
    ),
    "NoFreePrefixes": (CONTROLLER, "CIDRPool", "Warning", "As `NoFreeRanges`.", "`bedplate ipam explain POOL`."),
    "StatusNotWritten": (
        CONTROLLER,
        "IPPool, CIDRPool",
        "Warning",
        "The API server refuses the status for good, for example because it is too large.",
        "Make several pools that select fewer nodes each.",
    ),
    "NoFreeAddresses": (
        DAEMON,
        "IPPool, CIDRPool",
        "Warning",
        "A pod found no free address on this node, or the one it requested is taken.",
        "`bedplate ipam explain NODE`; enlarge the blocks.",
    ),
    "StaticIPInForeignBlock": (
        DAEMON,
        "IPPool, CIDRPool",
        "Warning",
        "A pod requested an address that is in the block of another node, and got it.",
        "Exclude such addresses from the pool.",
    ),
    "PoolInvalidOnNode": (
        DAEMON,
        "IPPool, CIDRPool",
        "Warning",
        "What the pool's status says about this node cannot be used.",
        "Read the message; `bedplate ipam explain POOL`.",
    ),
    "Created": ("`jupyter-kernel-operator`", "CMJupyterKernel", "Normal", "The pod of a kernel was created.", ""),
    "Refused": (
        "`jupyter-kernel-operator`",
        "CMJupyterKernel",
        "Warning",
        "The pod of a kernel is not created: it asks for privileges, or the API server refuses it.",
        "Change the fields that the message names.",
    ),
    "Stopped": (
        "`jupyter-kernel-operator`",
        "CMJupyterKernel",
        "Normal",
        "The kernel or its sidecar stopped; the resource and all that it made are removed.",
        "The operator's log has what the containers wrote.",
    ),
    "FailedScheduling": ("`bedplate up`, `sim nodes`", "Pod", "Warning", "No simulated node takes the pod.", ""),
}


def reasons() -> set[str]:
    """Every reason in the sources."""
    trees = [ast.parse(file.read_text()) for folder in FOLDERS for file in sorted((SOURCES / folder).rglob("*.py"))]
    constants = {name: text for tree in trees for name, text in _constants(tree)}
    texts = {text for name, text in constants.items() if name.startswith("REASON_")}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _name(node.func) in TELLERS:
                texts |= {text for argument in node.args if (text := _text(argument, constants)) is not None}
    return {text for text in texts if REASON.fullmatch(text)} - TYPES - OTHERS


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for statement in tree.body:
        if not isinstance(statement, ast.Assign):
            continue
        target, value = statement.targets[0], statement.value
        pairs = zip(target.elts, value.elts, strict=True) if _are_tuples(target, value) else [(target, value)]
        for name, text in pairs:
            if isinstance(name, ast.Name) and isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield name.id, text.value


def _are_tuples(target: ast.expr, value: ast.expr) -> bool:
    return isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _text(argument: ast.expr, constants: dict[str, str]) -> str | None:
    if isinstance(argument, ast.Constant):
        return argument.value if isinstance(argument.value, str) else None
    return constants.get(_name(argument))


def events_page() -> str:
    present = reasons()
    unknown, stale = sorted(present - EVENTS.keys()), sorted(EVENTS.keys() - present)
    if unknown or stale:
        raise SystemExit(
            f"docs: tools/eventpages.py lacks the Events {unknown} and has {stale}, which no program writes"
        )
    rows = [
        (f"`{reason}`", program, about, type_, f"{when} {remedy}".strip())
        for reason, (program, about, type_, when, remedy) in EVENTS.items()
    ]
    return (
        f"{NOTE}\n# Events\n\n"
        "What the programs write as Events of Kubernetes, by reason: `kubectl get events -A` or `kubectl describe`. "
        "An Event that repeats is counted, not written again. Each tells what happened, and what to do about it.\n\n"
        + table(("reason", "program", "object", "type", "meaning"), rows)
    )
