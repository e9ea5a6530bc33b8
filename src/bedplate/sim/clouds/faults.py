"""The fault script: which requests to a simulated cloud go wrong, and how.

In: YAML (below), or rules added in process or over `/__sim/faults`. Out: for each request the faults that befall it;
`delivery` carries them out. All problems of a script are reported together.

    seed: 7                          # of all probabilities; default 0
    rules:
    - name: flaky lists              # optional, shown in counters
      match:                         # all of these must hold; nothing given: every request
        operation: get-all-instance  # operationId of the vendor's document, * and ? allowed
        path: ^/v2/                  # regular expression, searched in the path
        method: GET
        nth: [1, 3]                  # of the requests that match the above: the first and the third (or one number)
        every: 5                     # every fifth
        probability: 0.1
        from: 10s                    # time window, since the script was loaded
        until: 5m
        times: 3                     # at most so often
      fault: 503                     # a kind, or a mapping with options

    kind                 what the client sees                                    options (default)
    timeout              nothing: the connection stays open                      after (forever): then it is cut; done
    reset                the connection is reset (TCP RST)                       done
    401 403 408 409 429  that status with the API's own error body               message, retry_after (429: 1s), done
    500 502 503 504      likewise; retry_after only if given                     message, retry_after, done
    generic-404          a 404 that is about no object                           style (route), or unnamed, html, plain
    slow-body            the right answer, byte by byte                          over (10s)
    truncated-json       half of the right body, with status 200
    wrong-json           valid JSON of another type (a number, a list for an object)
    wrong-content-type   the right body called text/html
    drop-header          the right answer without a header                       header (X-Pagination)
    stale-list           lists as they were                                      age (1m)
    drop-from-list       lists lack some machines                                names (a pattern) or share (0.5)
    latency              the right answer, late                                  by (1s), jitter (0s)

With `done: true` the cloud does what it was asked to, and only the answer is lost.
Of the rules that match, latency, stale-list and drop-from-list all apply; of the others the first one does.
"""

from __future__ import annotations

import fnmatch
import random
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bedplate.core import clock, duration, errors, yamls
from bedplate.sim.clouds.exchange import Request

__all__ = ["KINDS", "STATUS_KINDS", "Fault", "Faults", "Match", "Rule", "Script", "parse"]

STATUS_KINDS = ("401", "403", "408", "409", "429", "500", "502", "503", "504")
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "timeout": ("after", "done"),
    "reset": ("done",),
    **dict.fromkeys(STATUS_KINDS, ("message", "retry_after", "done")),
    "generic-404": ("style",),
    "slow-body": ("over",),
    "truncated-json": (),
    "wrong-json": (),
    "wrong-content-type": (),
    "drop-header": ("header",),
    "stale-list": ("age",),
    "drop-from-list": ("names", "share"),
    "latency": ("by", "jitter"),
}
KINDS = tuple(_OPTIONS)
_ADDITIVE = frozenset({"latency", "stale-list", "drop-from-list"})
_STYLES = ("route", "unnamed", "html", "plain")


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong; which fields count depends on the kind."""

    kind: str
    message: str = ""
    retry_after_s: float | None = None
    style: str = "route"
    after_s: float | None = None
    over_s: float = 10.0
    age_s: float = 60.0
    names: str = ""
    share: float = 0.5
    by_s: float = 1.0
    jitter_s: float = 0.0
    header: str = "X-Pagination"
    is_done: bool = False

    @property
    def is_additive(self) -> bool:
        """Whether the cloud still answers rightly, only later or with other lists."""
        return self.kind in _ADDITIVE

    def drops(self, name: str) -> bool:
        """Whether drop-from-list hides the machine of this name: by pattern, else always the same share of them."""
        if self.names:
            return re.search(self.names, name) is not None
        return zlib.crc32(name.encode()) % 10_000 < self.share * 10_000


@dataclass(frozen=True, slots=True)
class Match:
    """Which requests; empty fields say nothing."""

    operation: str = ""
    path: str = ""
    method: str = ""
    nth: tuple[int, ...] = ()
    every: int = 0
    probability: float = 1.0
    from_s: float = 0.0
    until_s: float | None = None
    times: int | None = None

    def is_about(self, request: Request, since_start_s: float) -> bool:
        """What can be said without counting."""
        return (
            (not self.method or self.method == request.method)
            and (not self.operation or fnmatch.fnmatchcase(request.operation, self.operation))
            and self.from_s <= since_start_s
            and (self.until_s is None or since_start_s < self.until_s)
            and (not self.path or re.search(self.path, request.path) is not None)
        )


@dataclass(slots=True)
class Rule:
    """A match, a fault, and how often both have been seen; its time window is counted from `start`."""

    match: Match
    fault: Fault
    name: str = ""
    start: float = 0.0
    seen: int = 0
    hits: int = 0

    def strikes(self, request: Request, now: float, rng: random.Random) -> bool:
        """Whether this request is struck; counts it."""
        match = self.match
        if not match.is_about(request, now - self.start):
            return False
        self.seen += 1
        if match.times is not None and self.hits >= match.times:
            return False
        if match.nth and self.seen not in match.nth:
            return False
        if match.every and self.seen % match.every:
            return False
        if match.probability < 1 and rng.random() >= match.probability:
            return False
        self.hits += 1
        return True


@dataclass(frozen=True, slots=True)
class Script:
    """A whole script."""

    rules: tuple[Rule, ...] = ()
    seed: int = 0


class Faults:
    """The rules in force in one cloud."""

    def __init__(self, time: clock.Clock, script: Script | None = None) -> None:
        self._time = time
        self.rules: list[Rule] = []
        self._rng = random.Random(0)
        if script is not None:
            self.use(script)

    def use(self, script: Script) -> None:
        """Replace all rules; the script's time begins now."""
        self.rules = []
        self._rng = random.Random(script.seed)
        for rule in script.rules:
            self.put(rule)

    def add(self, kind: str | int, *, name: str = "", fault: Mapping[str, Any] | None = None, **match: Any) -> Rule:
        """Add a rule, in the words of the script: `add("429", operation="get-*", times=2, fault={"retry_after": 3})`.

        Its time window begins now. (`from` is a word of Python: write `from_`.)
        """
        if "from_" in match:
            match["from"] = match.pop("from_")
        tree = {"name": name, "match": match, "fault": {"kind": kind, **(fault or {})}}
        return self.put(parse({"rules": [tree]}).rules[0])

    def put(self, rule: Rule) -> Rule:
        """Add a rule that was read from a script; returns the one in force, which counts."""
        fresh = Rule(rule.match, rule.fault, rule.name, self._time.monotonic())
        self.rules.append(fresh)
        return fresh

    def remove(self, rule: Rule) -> None:
        """Take one rule away."""
        self.rules = [each for each in self.rules if each is not rule]

    def clear(self) -> None:
        """Good weather."""
        self.rules = []

    def of(self, request: Request) -> list[Fault]:
        """What befalls this request: additive faults, then at most one other."""
        if not self.rules:
            return []
        now = self._time.monotonic()
        additive: list[Fault] = []
        for rule in self.rules:
            if rule.strikes(request, now, self._rng):
                if not rule.fault.is_additive:
                    return [*additive, rule.fault]
                additive.append(rule.fault)
        return additive


def parse(source: str | bytes | Mapping[str, Any]) -> Script:
    """Read a script; raises `Invalid` with all its problems."""
    try:
        tree = source if isinstance(source, Mapping) else yamls.load(source, strict=True)
    except Exception as err:
        raise errors.Invalid(f"the fault script is not YAML: {err}") from err
    reader = _Reader()
    script = reader.script(tree if tree is not None else {})
    if reader.problems:
        raise errors.Invalid("the fault script cannot be used", problems=reader.problems)
    return script


@dataclass(slots=True)
class _Reader:
    """Reads a script's tree and gathers what is wrong with it."""

    problems: list[str] = field(default_factory=list)

    def script(self, tree: Any) -> Script:
        if not isinstance(tree, Mapping):
            self.problems.append("the script must be a mapping with `rules`")
            return Script()
        self._only(tree, ("seed", "rules"), "script")
        rules = tree.get("rules") or []
        if not isinstance(rules, list):
            self.problems.append("rules: must be a list")
            rules = []
        seed = self._number(tree, "seed", "script", 0, whole=True)
        read = tuple(self._rule(rule, f"rules[{position}]") for position, rule in enumerate(rules))
        return Script(tuple(rule for rule in read if rule is not None), int(seed))

    def _rule(self, tree: Any, where: str) -> Rule | None:
        if not isinstance(tree, Mapping):
            self.problems.append(f"{where}: must be a mapping with `match` and `fault`")
            return None
        self._only(tree, ("name", "match", "fault"), where)
        match = self._match(tree.get("match") or {}, f"{where}.match")
        fault = self._fault(tree.get("fault"), f"{where}.fault")
        return Rule(match, fault, str(tree.get("name") or "") or fault.kind) if fault else None

    def _match(self, tree: Any, where: str) -> Match:
        if not isinstance(tree, Mapping):
            self.problems.append(f"{where}: must be a mapping")
            return Match()
        self._only(
            tree, ("operation", "path", "method", "nth", "every", "probability", "from", "until", "times"), where
        )
        nth = tree.get("nth", [])
        nth = nth if isinstance(nth, list) else [nth]
        if not all(isinstance(number, int) and number > 0 for number in nth):
            self.problems.append(f"{where}.nth: must be a number from 1 on, or a list of such")
            nth = []
        probability = self._number(tree, "probability", where, 1.0)
        if not 0 <= probability <= 1:
            self.problems.append(f"{where}.probability: must be between 0 and 1")
        times = self._number(tree, "times", where, -1, whole=True)
        return Match(
            operation=str(tree.get("operation") or ""),
            path=self._pattern(tree, "path", where),
            method=str(tree.get("method") or "").upper(),
            nth=tuple(nth),
            every=int(self._number(tree, "every", where, 0, whole=True)),
            probability=probability,
            from_s=self._span(tree, "from", where) or 0.0,
            until_s=self._span(tree, "until", where),
            times=int(times) if times >= 0 else None,
        )

    def _fault(self, tree: Any, where: str) -> Fault | None:
        if tree is None:
            self.problems.append(f"{where}: is missing; one of {', '.join(KINDS)}")
            return None
        tree = tree if isinstance(tree, Mapping) else {"kind": tree}
        kind = str(tree.get("kind", ""))
        if kind not in _OPTIONS:
            self.problems.append(f"{where}: unknown kind {kind!r}; one of {', '.join(KINDS)}")
            return None
        self._only(tree, ("kind", *_OPTIONS[kind]), where)
        style = str(tree.get("style", "route"))
        if style not in _STYLES:
            self.problems.append(f"{where}.style: {style!r} is not one of {', '.join(_STYLES)}")
        share = self._number(tree, "share", where, 0.5)
        if not 0 <= share <= 1:
            self.problems.append(f"{where}.share: must be between 0 and 1")
        retry_after_s = self._span(tree, "retry_after", where)
        return Fault(
            kind=kind,
            message=str(tree.get("message", "")),
            retry_after_s=1.0 if retry_after_s is None and kind == "429" else retry_after_s,
            style=style,
            after_s=self._span(tree, "after", where),
            over_s=self._span(tree, "over", where, 10.0) or 0.0,
            age_s=self._span(tree, "age", where, 60.0) or 0.0,
            names=self._pattern(tree, "names", where),
            share=share,
            by_s=self._span(tree, "by", where, 1.0) or 0.0,
            jitter_s=self._span(tree, "jitter", where) or 0.0,
            header=str(tree.get("header", "X-Pagination")),
            is_done=self._truth(tree, "done", where),
        )

    def _only(self, tree: Mapping[Any, Any], known: tuple[str, ...], where: str) -> None:
        for key in tree:
            if key not in known:
                self.problems.append(f"{where}: unknown key {key!r}; known are {', '.join(known)}")

    def _number(self, tree: Mapping[Any, Any], key: str, where: str, default: float, *, whole: bool = False) -> float:
        value = tree.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
            self.problems.append(f"{where}.{key}: {value!r} is not a {'whole ' if whole else ''}number")
            return default
        return value

    def _truth(self, tree: Mapping[Any, Any], key: str, where: str) -> bool:
        value = tree.get(key, False)
        if not isinstance(value, bool):
            self.problems.append(f"{where}.{key}: {value!r} is neither true nor false")
        return value is True

    def _span(self, tree: Mapping[Any, Any], key: str, where: str, default: float | None = None) -> float | None:
        value = tree.get(key)
        if value is None:
            return default
        try:
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            seconds = float(value) if is_number else duration.parse_duration(str(value))
        except ValueError as err:
            self.problems.append(f"{where}.{key}: {err}")
            return default
        if seconds < 0:
            self.problems.append(f"{where}.{key}: {value!r} must not be negative")
        return seconds

    def _pattern(self, tree: Mapping[Any, Any], key: str, where: str) -> str:
        value = str(tree.get(key) or "")
        try:
            re.compile(value)
        except re.error as err:
            self.problems.append(f"{where}.{key}: {value!r} is not a regular expression: {err}")
            return ""
        return value
