"""Keys of the portal's file and of an operator's: what browsers and operators meet with."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from starlette.requests import Request

from daemons.access.identity import Role
from daemons.config.portal import PortalConfig
from daemons.portal.auth import passwords
from daemons.portal.auth.accounts import State
from daemons.portal.auth.schema import Base
from daemons.portal.client.view_cache import ViewCache
from daemons.portal.config import origin_of
from daemons.portal.context import Portal, Settings
from daemons.portal.forms.texts import Texts
from daemons.portal.http.limits import AddressLimits, Bounds
from daemons.portal.http.server import listening, server
from daemons.portal.main import authentication_of, rules_of, runs_of
from daemons.portal.pages import stream
from daemons.portal.process_pool import ProcessPool
from daemons.portal.what_if.runs import RunRequest, WhatIfKind
from daemons.store.engine import parse_url
from daemons.store.reading import reading
from daemons.values.settings import ControllerSettings
from shared.base.clock import SystemClock
from shared.base.errors import InvalidInput
from shared.base.secrets import path_of
from shared.runtime.server_tls import tls_of
from shared.values.nodes import Node
from sim_backend.loop.closed_loop import ClosedLoop, LoopSettings
from tests.conformance.settings.daemons import filled, read_as
from tests.conformance.settings.daemons import which as which_certificate
from tests.conformance.settings.row import Given, Row, shown_by, shown_together
from tests.portal.scene import PASSWORD, WORK, Scene, SimulatedClient
from tests.support.operator_harness import Rig
from tests.support.store_samples import made_url
from tests.support.tcp_server import server as tcp_server

URL = "https://portal.test"
ACCOUNTS = {"jane": Role.PROVIDER, "acme": Role.OWNER}
SITE: dict[str, Any] = {
    "public_url": URL,
    "tls.cert_file": "/CERT_ONE",
    "tls.key_file": "/KEY_ONE",
    "store.url": "sqlite:////FOLDER/portal.db",
    "login.second_factor": "nobody",
    "what_if.folder": "/FOLDER/runs",
}
BEHIND = {"public_url": URL, "proxy.trusted": ["127.0.0.1"], "store.url": "sqlite:////FOLDER/portal.db"}
PROXIED = BEHIND | {"login.second_factor": "nobody", "proxy.sign_on_file": "/PASSWORD_ONE"}


def placed(given: Given) -> Given:
    """The folder, certificates and passwords are named in the text."""
    text = given.text.replace("/FOLDER", str(given.folder))
    return filled(Given(text, given.folder))


@contextmanager
def site(given: Given) -> Iterator[Scene]:
    """The portal, as `daemons.portal.main.Process` makes it, over a simulated cluster of one node."""
    config = read_as(placed(given), PortalConfig)
    loop = ClosedLoop([Node("n1", 4, 1_000.0, memory_mib=4_000)], LoopSettings(ControllerSettings(), epoch_s=1.7e9))
    loop.run_until(5.0)
    controller_client = SimulatedClient(loop)
    clock: Any = controller_client
    base = Base(config.store.url)
    base.open()
    pool = ThreadPoolExecutor(1)
    whole = Portal(
        controller_client,
        ViewCache(controller_client),
        authentication_of(config, base, clock),
        rules=rules_of(config),
        settings=Settings(origin_of(config.public_url), config.read_only, config.server.readers_max),
        reading=reading(config.history.url) if config.history.url else None,
        runs=runs_of(config, clock),
        limits=AddressLimits(Bounds(config.server.connections_max, config.server.address_max)),
        spans=ProcessPool("reports", 0, pool),
        texts=Texts(pool=pool),
    )
    made = Scene(loop, whole, controller_client, base)
    for name, role in ACCOUNTS.items():
        whole.authentication.accounts.add(name, role, passwords.hashed(PASSWORD, WORK), State.ACTIVE, made.now_s)
    try:
        yield made
    finally:
        made.close()
        pool.shutdown()
        if whole.reading is not None:
            whole.reading.close()


def visits(given: Given) -> object:
    """Somebody logs in, changes something, and is away for a while, again and again."""
    with site(given) as made:
        browser = made.browser()
        found: list[Any] = [browser.get("/login").status_code]
        answer = browser.login("jane")
        found += [answer.status_code, browser.get("/").url.path]
        fields = {"name": "j", "stages[0].work_mcycles": "1", "stages[0].max_mhz": "1"}
        if answer.status_code == 303 and "second" not in found[-1]:
            found.append(browser.post("/workloads/submit", fields, "/account").status_code)
        for wait_s in (500.0, 1_000.0, 500.0, 500.0, 500.0):
            made.wait(wait_s)
            found.append(browser.client.get("/account", follow_redirects=False).status_code)
    return found, sorted(path.name for path in given.folder.glob("*.db"))


def elsewhere(given: Given) -> object:
    """For which host it answers, and for which proxies."""
    rules = rules_of(read_as(placed(given), PortalConfig))
    return rules.hosts, rules.origins, [rules.trusts(each) for each in ("127.0.0.1", "192.0.2.9")]


def signed_on(given: Given) -> object:
    """A proxy says who it is, with a secret."""
    with site(given) as made:
        browser = made.browser(client=("127.0.0.1", 1))
        found = []
        for word in ("word-ONE", "word-TWO"):
            headers = {"x-remote-user": "jane", "x-portal-secret": word, "x-forwarded-for": "192.0.2.1"}
            found.append(browser.client.get("/login", headers=headers, follow_redirects=False).status_code)
            browser.client.cookies.clear()
    return found


def crowded(given: Given) -> object:
    """Many come, from many addresses and from one."""
    config = given.read(PortalConfig)
    bounds = Bounds(config.server.connections_max, config.server.address_max)
    many, one = AddressLimits(bounds), AddressLimits(bounds)
    return (
        sum(many.connect(f"192.0.{number // 200}.{number % 200}", 0.0) for number in range(600)),
        sum(one.connect("192.0.2.1", float(number)) for number in range(200)),
    )


def listens(given: Given) -> object:
    """Fifteen listen for changes: what one more is answered."""
    with site(given) as made:
        made.portal.readers = 15
        me = made.portal.authentication.accounts.find("jane")
        scope = {"type": "http", "app": made.client().app, "query_string": b"views=status", "headers": []}
        request = Request(scope)
        request.state.session = SimpleNamespace(account=me)
        return asyncio.run(stream.live(request)).status_code


def bound(given: Given) -> object:
    """Where it listens."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        ports = {"PORT1": one.getsockname()[1], "PORT2": two.getsockname()[1]}
    text = given.text
    for name, port in ports.items():
        text = text.replace(f'"{name}"', f"{port}")
    config = Given(text, given.folder).read(PortalConfig)
    with listening(config.server.address, config.server.port) as made:
        address, port = made.getsockname()[:2]
    return address, [name for name, each in ports.items() if each == port]


def slow_head(given: Given) -> object:
    """The head of a request does not come to its end: whether it is cut off within 0.8 s."""
    config = given.read(PortalConfig)

    async def nothing(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while (message := await receive())["type"] != "lifespan.shutdown":
                await send({"type": f"{message['type']}.complete"})
            await send({"type": "lifespan.shutdown.complete"})

    async def story() -> bool:
        sock = listening("127.0.0.1", 0)
        made = server(nothing, AddressLimits(Bounds(50, 32)), request_s=config.server.request_s)
        task = asyncio.create_task(made.serve([sock]))
        reader, writer = await asyncio.open_connection("127.0.0.1", sock.getsockname()[1])
        writer.write(b"GET / HTTP/1.1\r\n")
        try:
            await asyncio.wait_for(reader.read(), 0.8)
            return True
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        finally:
            writer.close()
            made.should_exit = True
            await task

    return asyncio.run(story())


def encrypted(given: Given) -> object:
    """With which certificate it is served, or why it cannot be."""
    config = read_as(placed(given), PortalConfig)
    try:
        context = tls_of(path_of(config.tls.cert_file), path_of(config.tls.key_file))
    except InvalidInput as error:
        return [problem.expected for problem in error.problems]

    def serve(made: socket.socket) -> None:
        with context.wrap_socket(made, server_side=True) as each:
            each.recv(1)

    client = ssl.create_default_context()
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    with (
        tcp_server(serve) as port,
        socket.create_connection(("127.0.0.1", port), 5.0) as made,
        client.wrap_socket(made) as each,
    ):
        return which_certificate(each.getpeercert(binary_form=True) or b"")


def password(given: Given) -> object:
    """With which passwords the stores would be opened."""
    config = read_as(placed(given), PortalConfig)
    return parse_url(config.store.url).password, config.history.url and parse_url(config.history.url).password


def history(given: Given) -> object:
    """Whether the pages of the past are there, and of which store."""
    made_url(given.folder / "one.db")
    with site(given) as made:
        return made.browser("jane").get("/reports").status_code


def kept(given: Given) -> object:
    """Somebody logged in, and days later somebody else: what is still known of it."""
    with site(given) as made:
        made.browser("jane")
        made.wait(10 * 86_400.0)
        made.browser("acme")
        made.wait(10 * 86_400.0)
        made.browser("acme")
        return len(made.portal.authentication.log.entries(0.0, 1e12))


def what_ifs(given: Given) -> object:
    """Three simulations are asked for: how many run after a moment, for how long each may, and where they lie."""
    made_url(given.folder / "one.db")
    made = runs_of(read_as(placed(given), PortalConfig), SystemClock())
    assert made is not None
    made._command = ("/bin/sh", "-c", "sleep 5")
    for _ in range(3):
        made.start(RunRequest(WhatIfKind.SIMULATE, 0.0, 3_600.0))
    SystemClock().sleep(0.3)
    states = sorted(run.state.value for run in made.all())
    timers = [each for each in threading.enumerate() if isinstance(each, threading.Timer)]
    limits = {each.interval for each in timers if each.function == made._out_of_time}
    made.close()
    return states, limits, sorted(path.name for path in given.folder.iterdir() if path.is_dir())


def waits(given: Given) -> object:
    """How long an operator's command waits for an answer that does not come."""
    rig = Rig(nodes=1)
    rig.lose_publishes = 1_000
    path = given.file("operator.toml")
    begun_s = rig.now_s()
    answer = rig.trimtab("status", "--config", path)
    return answer.exit_code, round(rig.now_s() - begun_s)


STORES = SITE | {"store.url": "postgresql://kim@localhost/one", "history.url": "postgresql://kim@localhost/two"}

TABLE: tuple[Row, ...] = (
    *shown_together(
        visits,
        {
            "read_only": (False, True),
            "login.second_factor": ("nobody", "providers"),
            "sessions.idle_s": (1_800, 600),
            "sessions.absolute_s": (43_200, 1_800),
            "store.url": ("sqlite:////FOLDER/portal.db", "sqlite:////FOLDER/other.db"),
        },
        SITE,
    ),
    *shown_by(elsewhere, {"public_url": (URL, "https://other.test"), "proxy.trusted": (["127.0.0.1"], [])}, BEHIND),
    *shown_by(signed_on, {"proxy.sign_on_file": ("/PASSWORD_ONE", "/PASSWORD_TWO")}, PROXIED),
    *shown_by(
        crowded,
        {"server.connections_max": (500, 300), "server.address_max": (32, 16)},
        {"public_url": URL},
    ),
    *shown_by(listens, {"server.readers_max": (200, 10)}, SITE),
    *shown_by(
        bound,
        {"server.address": ("127.0.0.1", "127.0.0.2"), "server.port": ("PORT1", "PORT2")},
        {"public_url": URL, "server.port": "PORT1"},
    ),
    *shown_by(slow_head, {"server.request_s": (0.2, 20)}, {"public_url": URL}),
    *shown_by(encrypted, {"tls.cert_file": ("/CERT_ONE", "/CERT_TWO"), "tls.key_file": ("/KEY_ONE", "/KEY_TWO")}, SITE),
    *shown_by(kept, {"store.log_days": (400, 5)}, SITE),
    *shown_by(
        password,
        {
            "store.password_file": ("/PASSWORD_ONE", "/PASSWORD_TWO"),
            "history.password_file": ("/PASSWORD_ONE", "/PASSWORD_TWO"),
        },
        STORES,
    ),
    *shown_by(history, {"history.url": ("", "sqlite:////FOLDER/one.db")}, SITE),
    *shown_by(
        what_ifs,
        {
            "what_if.folder": ("/FOLDER/runs", "/FOLDER/more"),
            "what_if.at_once": (1, 2),
            "what_if.limit_s": (3_600, 60),
        },
        SITE | {"history.url": "sqlite:////FOLDER/one.db"},
    ),
)

OPERATOR: tuple[Row, ...] = (*shown_by(waits, {"timeout_s": (10, 30)}),)
