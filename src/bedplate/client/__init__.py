"""`HeadClient`: the REST API of a head for programs.

    import asyncio
    from bedplate.client import HeadClient, Stale

    async def main() -> None:
        async with HeadClient("https://head:8443", token="bph_…", ca_file="ca.crt") as head:
            node = await head.get("device", "node001")
            print(node.key, node.values.get("category", ""))
            try:
                values = {**node.values, "category": "gpu"}
                await head.put("device", "node001", values, type=node.type, base=node.revision)
            except Stale as other:
                print("changed meanwhile by", other.author, "in revision", other.revision)
            async for event in head.events():
                if event.notice is not None:
                    print(event.notice.host, event.notice.text)

    asyncio.run(main())

In: URLs of one or more heads, and a credential. Out: Structs of `api.headapi`; errors of `bedplate.core.errors` and
`client.transport`. It knows JSON and nothing of the head's own modules.
"""

from __future__ import annotations

from bedplate.api import headapi as wire
from bedplate.client.client import Event, HeadClient, Wanted
from bedplate.client.transport import Credential, Forbidden, Stale, Unauthorized, is_plain

__all__ = ["Credential", "Event", "Forbidden", "HeadClient", "Stale", "Unauthorized", "Wanted", "is_plain", "wire"]
