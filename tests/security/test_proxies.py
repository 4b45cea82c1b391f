"""Behind real proxies that are set up as docs/how-to/portal.md says, or that add to what the client sent: an address
that a client makes up is nowhere taken for its own."""

from __future__ import annotations

import http.client
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.architecture.sources import ROOT
from tests.integration.debian import need_programs
from tests.integration.harness import Process
from tests.integration.private_broker import answers
from tests.ports import free_ports
from tests.security.server import ATTACKER, CLOCK, PASSWORD, START_S, Attacked, attacked

MADE_UP = "203.0.113."


def documented(begin: str) -> str:
    """The example of a proxy in docs/how-to/portal.md that begins so."""
    text = (ROOT / "docs/how-to/portal.md").read_text("utf-8")
    return begin + re.split(rf"^```\w*\n{re.escape(begin)}", text, flags=re.MULTILINE)[1].split("```")[0]


def haproxy(folder: Path, port: int, backend: int, adding: bool) -> list[str]:
    """Its command."""
    need_programs(("haproxy",), ("haproxy",))
    example = documented("frontend portal").replace(":443 ssl crt /etc/haproxy/portal.pem", f"127.0.0.1:{port}")
    example = example.replace("127.0.0.1:8443", f"127.0.0.1:{backend}")
    if adding:
        example = example.replace("http-request set-header X-Forwarded-For %[src]", "option forwardfor")
    (folder / "haproxy.cfg").write_text(example)
    return ["haproxy", "-db", "-f", str(folder / "haproxy.cfg")]


def nginx(folder: Path, port: int, backend: int, adding: bool) -> list[str]:
    """Its command."""
    need_programs(("nginx",), ("nginx-light",))
    example = re.sub(r" *ssl_certificate.*\n", "", documented("limit_conn_zone"))
    example = example.replace("listen 443 ssl", f"listen 127.0.0.1:{port}").replace("8443", f"{backend}")
    if adding:
        example = example.replace("X-Forwarded-For $remote_addr", "X-Forwarded-For $proxy_add_x_forwarded_for")
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    head = f"daemon off; pid {folder}/nginx.pid; events {{}} http {{ access_log off;\n"
    paths = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    (folder / "nginx.conf").write_text(head + paths + example + "}\n")
    return ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "nginx-error.log")]


class Client:
    """Somebody at a proxy who makes addresses up."""

    def __init__(self, portal: Attacked, proxy: int) -> None:
        self._portal, self._proxy = portal, proxy
        self._made_up = 0
        self._cookie = self._word = ""

    def send(self, method: str, path: str, fields: dict[str, str] | None = None) -> tuple[int, str]:
        """The status of the answer, and its text."""
        connection = http.client.HTTPConnection("127.0.0.1", self._proxy, timeout=30.0, source_address=(ATTACKER, 0))
        with closing(connection):
            connection.putrequest(method, path, skip_host=True)
            connection.putheader("Host", self._portal.host)
            connection.putheader("Origin", f"https://{self._portal.host}")
            connection.putheader("Cookie", self._cookie)
            for line in ("{0}{1}", "{0}9, 127.0.0.1", "127.0.0.1"):
                connection.putheader("X-Forwarded-For", line.format(MADE_UP, self._made_up))
            self._made_up += 1
            body = urlencode({"csrf": self._word} | (fields or {})).encode() if fields is not None else b""
            connection.putheader("Content-Length", str(len(body)))
            connection.putheader("Content-Type", "application/x-www-form-urlencoded")
            connection.endheaders(body)
            answer = connection.getresponse()
            text = answer.read().decode()
        if found := re.search(r"__Host-trimtab-form=[^;]+", answer.headers.get("set-cookie", "")):
            self._cookie = found[0]
        if found := re.search(r'name="csrf" value="([^"]*)"', text):
            self._word = found[1]
        return answer.status, text


@contextmanager
def proxied(folder: Path, kind: str, adding: bool) -> Iterator[tuple[Attacked, Client]]:
    (port,) = free_ports(1)
    with attacked(folder, tls=False, more={"proxy": {"trusted": ["127.0.0.1"]}}) as portal:
        command = {"haproxy": haproxy, "nginx": nginx}[kind](folder, port, portal.port, adding)
        proxy = Process(kind, command, folder)
        proxy.start()
        try:
            until_s = CLOCK.monotonic_s() + START_S
            while not answers(port):
                assert proxy.alive, proxy.tail()
                assert CLOCK.monotonic_s() < until_s, proxy.tail()
                CLOCK.sleep(0.1)
            yield portal, Client(portal, port)
        finally:
            proxy.end()


@pytest.mark.parametrize("adding", [False, True], ids=["sets", "adds"])
@pytest.mark.parametrize("kind", ["haproxy", pytest.param("nginx", marks=pytest.mark.full)])
def test_a_client_does_not_choose_its_address(tmp_path: Path, kind: str, adding: bool) -> None:
    """The log, the audit and the limits have the address that the proxy saw, whatever the client sends."""
    with proxied(tmp_path, kind, adding) as (portal, client):
        shown, _ = client.send("GET", "/login")
        login, _ = client.send("POST", "/login", {"name": "jane", "password": "a wrong password"})
        form = {"password": PASSWORD, "again": PASSWORD, "role": "user"}
        asked, _ = client.send("POST", "/ask", form | {"name": "newco"})
        beside = portal.connect(ATTACKER, portal.port)
        beside.request("GET", "/login", headers={"Host": portal.host, "X-Forwarded-Proto": "https"})
        directly = beside.getresponse().status
        beside.close()
        with closing(sqlite3.connect(portal.folder / "portal.db")) as store:
            noted = {row[0] for row in store.execute("SELECT address FROM portal_log")}
            waiting = {row[0] for row in store.execute("SELECT address FROM portal_accounts")}
        log = portal.process.log.read_text()

    assert (shown, login, asked, directly) == (200, 401, 200, 421)
    assert noted == waiting == {ATTACKER}  # by the latter those that wait are bounded
    assert f'"address": "{ATTACKER}"' in log
    assert MADE_UP not in log
