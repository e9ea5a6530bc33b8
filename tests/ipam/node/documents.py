"""Documents that the original's daemon takes and refuses, and its checksum without any code of the package."""

from __future__ import annotations

import json


def sum_of(text: bytes) -> int:
    """FNV-1a once more, without any code of the package."""
    total = 2166136261
    for byte in text:
        total = (total ^ byte) * 16777619 % 2**32
    return total


def sealed(text: str) -> bytes:
    """The text with its checksum, which is written as 0 in it."""
    return text.replace('"checksum":0', f'"checksum":{sum_of(text.encode())}').encode()


CANONICAL = sealed(
    '{"version":1,"checksum":0,"pools":{"p":{"name":"p","entries":{},"last_pool_config":"","last_reserved_ip":"10.0.0.1"}}}'
)


_SUM = json.loads(CANONICAL)["checksum"]
ODD = (
    f'{{ "checkſum": 5, "Checksum" : {_SUM}, "pools": {{"p": {{"last_reserved_ip": "::1", "name": "q"}}}},\n'
    '"pools": {"p": {"NAME": "p", "name": null, "entries": {}, "last_reserved_ip": "::ffff:10.0.0.1"}}, '
    '"VERSION": 1, "else": [] }'
).encode()
"""The same document, written as nobody would."""


TAKEN = [
    b"",
    sealed('{"version":1,"checksum":0,"pools":null}'),
    sealed(
        '{"version":7,"checksum":0,"pools":{"p":{"name":"x","entries":null,"last_pool_config":"","last_reserved_ip":""}}}'
    ),
    sealed('{"version":0,"checksum":0,"pools":{}}'),
    CANONICAL,
    ODD,
]
REFUSED = {
    b" ": "not valid JSON",
    b"null": "no checksum",
    b"[]": "object",
    b'{"version":1,"checksum":0,"pools":{}}': "no checksum",
    b'{"version":1,"checksum":1512731211,"pools":{}}': "checksum",
    b'{"version":1,"checksum":1512731210,"pools":{}} x': "not valid JSON",
    b'{"version":1.0,"checksum":1512731210,"pools":{}}': "must be an integer",
    b'{"version":true,"checksum":1512731210,"pools":{}}': "must be an integer",
    b'{"version":1,"checksum":-1,"pools":{}}': "must be an integer",
    b'{"version":1,"checksum":4294967296,"pools":{}}': "must be an integer",
    b'{"version":"x","version":1,"checksum":1512731210,"pools":{}}': "must be an integer",
    b'{"version":1,"checksum":1512731210,"pools":[]}': "object",
    b'{"version":1,"checksum":1,"pools":{"p":{"name":1}}}': "string",
    b'{"version":1,"checksum":1,"pools":{"p":{"last_reserved_ip":"10.0.0.256"}}}': "address",
    b'{"version":1,"checksum":1,"pools":{"p":{"last_reserved_ip":[10]}}}': "address",
    b'{"version":NaN}': "JSON",
    b"[" * 100_000: "JSON",
    b'{"version":' + b"9" * 5000 + b"}": "JSON",
    b"\xef\xbb\xbf{}": "JSON",
}
