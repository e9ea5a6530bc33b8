"""Two machines that report as one node: a disk that was cloned with the agent's certificate on it, or a stolen one.

In: for each report, the node, the run of the agent that sent it (a number that an agent draws when it starts) and its
address. Out: a sentence for people when two agents report in turns, at most once an hour for each node. An agent that
was started again has another run, and the one before is never heard of again; of two machines both are. Neither is
shut out: the head cannot know which of them is the right one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bedplate.core.clock import Clock
from bedplate.head.notices import News

__all__ = ["Twins"]

_RETURNS = 3
"""So often must a run come back: of an agent that was started again, a single report that was late makes two returns,
its own and that of the run after it."""
_AGAIN_S = 3600.0
"""Returns that are further apart do not count together; a node is reported once in so long."""
_REMEMBERED = 4


@dataclass(slots=True)
class _Heard:
    run: str = ""
    addresses: dict[str, str] = field(default_factory=dict)
    """Of the last few runs."""
    returns: int = 0
    returned_s: float = -_AGAIN_S
    told_s: float = -_AGAIN_S


class Twins:
    """Who was heard of as which node."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._nodes: dict[str, _Heard] = {}

    def heard(self, node: str, run: str, address: str) -> list[News]:
        """Note a report; what people are to know of it. An agent that tells no run is not judged."""
        if not run:
            return []
        heard = self._nodes.setdefault(node, _Heard())
        other, is_back = heard.run, run != heard.run and run in heard.addresses
        heard.run = run
        heard.addresses.pop(run, None)
        heard.addresses[run] = address
        while len(heard.addresses) > _REMEMBERED:
            del heard.addresses[next(iter(heard.addresses))]
        if not is_back:
            return []
        now_s = self._clock.monotonic()
        heard.returns = heard.returns + 1 if now_s - heard.returned_s < _AGAIN_S else 1
        heard.returned_s = now_s
        if heard.returns < _RETURNS or now_s - heard.told_s < _AGAIN_S:
            return []
        heard.told_s = now_s
        first, second = heard.addresses[other], address
        where = f"both at {first}" if first == second else f"at {first} and {second}"
        text = (
            f"Two machines report as {node}, {where}: its certificate is on both. Stop the agent of the wrong one. If "
            f"the certificate was stolen, revoke it (bedplate head revoke-certificate {node} --node) and enrol again"
        )
        return [News(node, text, "warning")]

    def forget(self, node: str) -> None:
        """Drop what is known of a node that was removed."""
        self._nodes.pop(node, None)
