"""No spec, no status and no label breaks validation, planning, warnings or selection: there is always an answer."""

from __future__ import annotations

import random
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.ipam import generators

from bedplate.ipam import validation, warnings
from bedplate.ipam.plan_cidrpool import plan_cidrpool
from bedplate.ipam.plan_ippool import plan_ippool
from bedplate.ipam.planning import Mode, PlanNode
from bedplate.ipam.pools import CIDRPool, IPPool

texts = st.one_of(
    st.text(max_size=12),
    st.sampled_from([*generators.ODD_ADDRESSES, *generators.ODD_NETWORKS, "10.0.0.0/24", "10.0.0.9", "fd00::/48"]),
    st.text("0123456789abcdef.:/", max_size=20),
)
numbers = st.one_of(st.integers(-3, 300), st.integers(-(2**63), 2**63 - 1))
requirements = st.lists(
    st.fixed_dictionaries({"key": texts, "operator": texts, "values": st.lists(texts, max_size=2)}), max_size=2
)
common = {
    "exclusions": st.lists(st.fixed_dictionaries({"startIP": texts, "endIP": texts}), max_size=3),
    "perNodeExclusions": st.lists(st.fixed_dictionaries({"startIndex": numbers, "endIndex": numbers}), max_size=3),
    "nodeSelector": st.fixed_dictionaries(
        {
            "nodeSelectorTerms": st.lists(
                st.fixed_dictionaries({}, optional={"matchExpressions": requirements, "matchFields": requirements}),
                max_size=2,
            )
        }
    ),
    "defaultGateway": st.booleans(),
    "routes": st.lists(st.fixed_dictionaries({"dst": texts}), max_size=2),
}
static = st.fixed_dictionaries({"prefix": texts}, optional={"nodeName": texts, "gateway": texts})
ippool_specs = st.fixed_dictionaries(
    {"subnet": texts, "perNodeBlockSize": numbers}, optional={"gateway": texts, **common}
)
cidrpool_specs = st.fixed_dictionaries(
    {"cidr": texts, "perNodeNetworkPrefix": numbers},
    optional={"gatewayIndex": numbers, "staticAllocations": st.lists(static, max_size=3), **common},
)
ip_entries = st.lists(st.fixed_dictionaries({"nodeName": texts, "startIP": texts, "endIP": texts}), max_size=3)
cidr_entries = st.lists(st.fixed_dictionaries({"nodeName": texts, "prefix": texts, "gateway": texts}), max_size=3)


def answer(kind: str, name: str, spec: dict[str, Any], entries: list[Any], nodes: list[str]) -> None:
    document = {"metadata": {"name": name}, "spec": spec, "status": {"allocations": entries}}
    known = [PlanNode(node, {"tier": node}) for node in nodes]
    for mode in Mode:
        if kind == "IPPool":
            pool = msgspec.convert(document, IPPool)
            problems, plan = validation.ippool_problems(name, pool.spec), plan_ippool(pool, known, mode=mode)
            said = [] if problems else warnings.ippool_warnings(pool.spec)
            territory = warnings.ippool_territory("p", pool.spec)
        else:
            cidr = msgspec.convert(document, CIDRPool)
            problems = validation.cidrpool_problems(name, cidr.spec)
            plan = plan_cidrpool(cidr, known, mode=mode)  # type: ignore[assignment]
            said = [] if problems else warnings.cidrpool_warnings(cidr.spec)
            territory = warnings.cidrpool_territory("p", cidr.spec)
        assert list(plan.problems) == problems and all(isinstance(text, str) for text in said)
        assert bool(validation.summary(problems)) == bool(problems)
        assert problems or territory is not None


@given(texts, ippool_specs, ip_entries, st.lists(texts, max_size=3))
def test_any_ippool_has_an_answer(name: str, spec: dict[str, Any], entries: list[Any], nodes: list[str]) -> None:
    answer("IPPool", name, spec, entries, nodes)


@given(texts, cidrpool_specs, cidr_entries, st.lists(texts, max_size=3))
def test_any_cidrpool_has_an_answer(name: str, spec: dict[str, Any], entries: list[Any], nodes: list[str]) -> None:
    answer("CIDRPool", name, spec, entries, nodes)


@given(st.integers(0, 2**32), st.sampled_from(["IPPool", "CIDRPool"]), ip_entries, cidr_entries)
def test_specs_that_are_wrong_in_one_place_have_an_answer(seed: int, kind: str, ip: list[Any], cidr: list[Any]) -> None:
    name, spec = generators.wild(random.Random(seed), kind)
    answer(kind, name, spec, ip if kind == "IPPool" else cidr, ["n01", "n02"])
