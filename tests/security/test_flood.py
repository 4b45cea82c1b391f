"""One address that does its worst without an account: others have the page in about the same time."""

from __future__ import annotations

import pytest

from tests.security.server import ATTACKER, Attacked, attacking

# Arguments: kind, source, port, count. Each connection that ends is opened again.
ATTACK = r"""
import asyncio, os, ssl, sys
kind, source, port, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
HEAD = b"POST /login HTTP/1.1\r\nHost: localhost:%d\r\nOrigin: https://localhost:%d\r\n" % (port, port)
FORM = b"Content-Type: application/x-www-form-urlencoded\r\n"
SIGNS = b"a=" + b"%41" * 340_000
async def once():
    tls = None if kind == "silent" else context
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, local_addr=(source, 0))
    try:
        if kind == "silent":
            await reader.read()
        elif kind == "head":
            writer.write(b"GET /login HTTP/1.1\r\nX: ")
            while not reader.at_eof():
                writer.write(b"y")
                await writer.drain()
                await asyncio.sleep(2.0)
        elif kind == "body":
            writer.write(HEAD + FORM + b"Cookie: __Host-trimtab-form=x\r\nContent-Length: 8000\r\n\r\n")
            while not reader.at_eof():
                writer.write(b"y")
                await writer.drain()
                await asyncio.sleep(2.0)
        else:
            writer.write(HEAD + FORM + b"Content-Length: %d\r\n\r\n" % len(SIGNS) + SIGNS)
            await writer.drain()
            await reader.read()
    finally:
        writer.close()
async def again_and_again():
    while True:
        try:
            await once()
        except (OSError, asyncio.IncompleteReadError):
            pass
        await asyncio.sleep(0.2)
async def main():
    tasks = [asyncio.create_task(again_and_again()) for _ in range(count)]
    await asyncio.sleep(2.0)
    print("ready", flush=True)
    await asyncio.gather(*tasks)
os.nice(10)  # what is measured is the portal, not the processor
asyncio.run(main())
"""


@pytest.mark.full
@pytest.mark.alone
@pytest.mark.parametrize(("kind", "count"), [("silent", 1500), ("head", 600), ("body", 600), ("percent", 64)])
def test_others_have_the_page_while_one_address_attacks(portal: Attacked, kind: str, count: int) -> None:
    portal.median_s(5)
    before_s = portal.median_s(20)
    with attacking(ATTACK, kind, ATTACKER, portal.port, count):
        during_s = portal.median_s(40)

    print(f"{kind}: {before_s * 1e3:.1f} ms before, {during_s * 1e3:.1f} ms during")
    assert during_s < 2.0 * before_s
    assert portal.process.log.stat().st_size < 100_000
