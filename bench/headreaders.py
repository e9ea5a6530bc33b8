"""`python -m bench.headreaders URL DATA COUNT EACH`: that many clients of a head's event stream.

In: where the head is, its data folder for the credential. Out: the line `open` when all streams are open, and `done`
when each client has read that many revisions. They only count, so that the head is measured and not they.
"""

from __future__ import annotations

import asyncio
import pathlib
import ssl
import sys

import aiohttp


async def read(session: aiohttp.ClientSession, address: str, opened: asyncio.Semaphore, each: int) -> None:
    async with session.get(address) as answer:
        answer.raise_for_status()
        opened.release()
        seen, last = 0, b""
        async for chunk in answer.content.iter_any():
            lines = (last + chunk).split(b"\n")
            last = lines.pop()
            seen += sum(line.startswith(b"event: revision") for line in lines)
            if seen >= each:
                return
    raise ConnectionError(f"the stream ended after {seen} of {each} revisions")


async def main(url: str, data: pathlib.Path, count: int, each: int) -> None:
    context = ssl.create_default_context(cafile=str(data / "ca.crt"))
    headers = {
        "Authorization": f"Bearer {(data / 'admin.token').read_text().strip()}",
        "Accept": "text/event-stream",
    }
    opened = asyncio.Semaphore(0)
    timeout = aiohttp.ClientTimeout(total=None, sock_read=60)
    connector = aiohttp.TCPConnector(limit=0, ssl=context)
    async with (
        aiohttp.ClientSession(headers=headers, timeout=timeout, connector=connector) as session,
        asyncio.TaskGroup() as tasks,
    ):
        clients = [
            tasks.create_task(read(session, f"{url}/api/v1/events?types=revision", opened, each)) for _ in range(count)
        ]
        for _ in clients:
            await opened.acquire()
        print("open", flush=True)
        await asyncio.wait(clients)
        print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
