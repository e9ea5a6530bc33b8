"""Between the store's terms and etcd's messages. Pure.

In: keys below a prefix, operations, events. Out: requests and entries. The prefix is put before every key on the way
in and taken off on the way out, so that several stores can share one etcd.
"""

from __future__ import annotations

from collections.abc import Sequence

from bedplate.store.etcdpb import bedplate_etcd_pb2 as pb
from bedplate.store.interface import Batch, CompareFailed, Entry, Event, Op, Put

__all__ = ["Translator"]


class Translator:
    """Knows the prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.encode()

    def key(self, key: str) -> bytes:
        return self._prefix + key.encode()

    def bounds(self, prefix: str, after: str = "") -> tuple[bytes, bytes]:
        """First key and end of a range; an etcd range end of one zero byte means: to the end of all keys."""
        low = self.key(prefix)
        return max(low, self.key(after) + b"\x00") if after else low, _end(low)

    def entry(self, pair: pb.KeyValue) -> Entry:
        return Entry(pair.key[len(self._prefix) :].decode(), pair.value, pair.mod_revision, pair.create_revision)

    def transaction(self, ops: Sequence[Op]) -> pb.TxnRequest:
        """Compare all expectations; write all if they hold, read the compared keys if they do not."""
        request = pb.TxnRequest()
        for op in ops:
            key = self.key(op.key)
            if op.expect is not None:
                # An absent key has modification revision 0 in etcd.
                request.compare.add(target=pb.Compare.MOD, key=key, mod_revision=op.expect)
                request.failure.add(request_range=pb.RangeRequest(key=key))
            if isinstance(op, Put):
                request.success.add(request_put=pb.PutRequest(key=key, value=op.value))
            else:
                request.success.add(request_delete_range=pb.DeleteRangeRequest(key=key))
        return request

    def refusal(self, ops: Sequence[Op], answer: pb.TxnResponse) -> CompareFailed:
        """Which expectation did not hold, from the keys read in the same transaction."""
        responses = iter(answer.responses)
        for op in ops:
            if op.expect is None:
                continue
            pairs = next(responses).response_range.kvs
            current = self.entry(pairs[0]) if pairs else None
            if op.expect != (current.revision if current else 0):
                return CompareFailed(op.key, current, op.expect)
        raise AssertionError("etcd refused a transaction whose every expectation holds")

    def events(self, events: Sequence[pb.Event]) -> Batch | None:
        """Events of whole commits; None when the history they refer to was compacted away meanwhile."""
        batch: Batch = []
        for event in events:
            pair = event.kv
            is_put = event.type == pb.Event.PUT
            has_previous = event.HasField("prev_kv")
            if not has_previous and not (is_put and pair.version == 1):
                return None
            entry = self.entry(pair) if is_put else None
            previous = self.entry(event.prev_kv) if has_previous else None
            batch.append(Event(pair.key[len(self._prefix) :].decode(), pair.mod_revision, entry, previous))
        return batch


def _end(low: bytes) -> bytes:
    kept = low.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else b"\x00"
