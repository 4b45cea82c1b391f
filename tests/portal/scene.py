"""A portal over a whole cluster of the simulator: real controller and agents, virtual time that the test moves on, and
browsers that log in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

from starlette.testclient import TestClient

from daemons.access.identity import Role
from daemons.portal.app import PAGES, app
from daemons.portal.auth import passwords
from daemons.portal.auth.accounts import Account, State
from daemons.portal.auth.authentication import Authentication, SignOn
from daemons.portal.auth.schema import Base
from daemons.portal.client.controller_client import Refused, Unreachable, body_of
from daemons.portal.client.view_cache import ViewCache
from daemons.portal.context import Portal, Settings
from daemons.portal.forms.texts import Texts
from daemons.portal.http.middleware import Rules
from daemons.portal.process_pool import ProcessPool
from daemons.store.reading import Reading
from daemons.values.settings import Automation, ControllerSettings
from shared.ports.bus import BusEvent, Delivery
from shared.protocol import topology
from shared.protocol.codec import decode
from shared.protocol.messages import Reply
from shared.protocol.operator_messages import Query, Request
from shared.values.jobs import Job, Stage
from shared.values.nodes import Node
from sim_backend.bus.memory import MemoryConnection
from sim_backend.loop.closed_loop import ClosedLoop, LoopSettings

OWN = "portal.sim"
URL = "https://portal.test"
PASSWORD = "correct horse staple"
WORK = passwords.Work(4, 8, 1)
ACCOUNTS = {"jane": Role.PROVIDER, "acme": Role.OWNER, "bob": Role.USER}
ANSWER_S = 5.0


class SimulatedClient:
    """A `ControllerClient` over the bus of a closed loop, by the simulator's clock put forward by `ahead_s`. `away`:
    why nobody answers."""

    own = OWN

    def __init__(self, loop: ClosedLoop) -> None:
        self._loop = loop
        self._replies: dict[str, Reply] = {}
        self._ids = count(1)
        self._connection: MemoryConnection = loop.broker.connect(OWN)
        self._queue = topology.reply_queue(OWN)
        self._connection.declare(self._queue)
        self._connection.consume(self._queue.name, 1000, acknowledged=False)
        loop._actors[OWN] = self  # type: ignore[assignment]  # whoever is on the bus is an actor
        self.asked: list[tuple[str, Request, str]] = []
        self.views: list[tuple[str, str, str]] = []
        self.away = ""
        self.ahead_s = 0.0
        self._away_since_s = 0.0

    def now_s(self) -> float:
        return self._loop.engine.clock_s + self.ahead_s

    def new_id(self) -> str:
        return f"portal-{next(self._ids)}"

    def handle_bus(self, _: MemoryConnection, event: BusEvent) -> None:
        """What the loop delivers to the portal."""
        if isinstance(event, Delivery):
            message = decode(event.body)
            assert isinstance(message, Reply)
            self._replies[message.request] = message

    async def view(self, account: str, what: str, subject: str = "", limit: int = 1000) -> dict[str, Any]:
        self.views.append((account, what, subject))
        data = self._answer(account, Query(self.new_id(), what, subject, limit), "")
        assert isinstance(data, dict)
        return data

    async def ask(self, account: str, request: Request, why: str = "") -> Any:
        self.asked.append((account, request, why))
        return self._answer(account, request, why)

    def _answer(self, account: str, request: Request, why: str) -> Any:
        if self.away:
            self._away_since_s = self._away_since_s or self.now_s()
            raise Unreachable(self._away_since_s, self.away)
        self._away_since_s = 0.0
        body = body_of(account, request, why)
        self._connection.publish(topology.REQUESTS, topology.CONTROLLER_QUEUE, body, None, self._queue.name)
        engine = self._loop.engine
        engine.run_until(engine.now_s + ANSWER_S, stop=lambda: request.request in self._replies)
        reply = self._replies.pop(request.request, None)
        if reply is None:
            raise Unreachable(self.now_s(), "no controller answered")
        if not reply.done:
            raise Refused(reply.code, reply.detail)
        return reply.data


class Browser:
    """Somebody at the portal. Forms are found on pages and sent as a browser would send them."""

    def __init__(self, client: TestClient) -> None:
        self.client = client

    def get(self, path: str, **headers: str) -> Any:
        """A page, redirects followed."""
        return self.client.get(path, headers={"sec-fetch-site": "same-origin"} | headers)

    def csrf(self, path: str) -> str:
        """The hidden word of the forms on a page."""
        text = self.get(path).text
        found = re.search(r'name="csrf" value="([^"]*)"', text)
        assert found is not None, f"{path} has no form: {text[:2000]}"
        return found[1]

    def post(self, path: str, fields: dict[str, Any], page: str = "", **headers: str) -> Any:
        """Send a form of `page` (that of `path` unless given); redirects are not followed."""
        data = {"csrf": self.csrf(page or path)} | fields
        sent = {"origin": URL, "sec-fetch-site": "same-origin"} | headers
        return self.client.post(path, data=data, headers=sent, follow_redirects=False)

    def login(self, name: str, password: str = PASSWORD) -> Any:
        """Log in; the answer."""
        return self.post("/login", {"name": name, "password": password})


class Scene:
    """The cluster, its portal and whoever uses it."""

    def __init__(self, loop: ClosedLoop, portal: Portal, controller_client: SimulatedClient, base: Base) -> None:
        self.loop, self.portal, self.controller_client, self.base = loop, portal, controller_client, base
        self.pages: tuple[ModuleType, ...] = PAGES
        self._stack = ExitStack()
        self._made: TestClient | None = None

    @property
    def now_s(self) -> float:
        """The portal's clock."""
        return self.controller_client.now_s()

    def run(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.loop.run_until(self.loop.engine.now_s + seconds)

    def wait(self, seconds: float) -> None:
        """Let time pass for the portal alone: the cluster stands still."""
        self.controller_client.ahead_s += seconds

    def client(self, **options: Any) -> TestClient:
        """A client of the application without any cookies."""
        if self._made is None:
            self._made = self._stack.enter_context(
                TestClient(app(self.portal, self.pages), base_url=URL, raise_server_exceptions=True)
            )
        made = TestClient(self._made.app, base_url=URL, **options)
        made.portal = self._made.portal  # one event loop for all of them
        return made

    def browser(self, name: str = "", **options: Any) -> Browser:
        """A browser, logged in as `name` if one is given."""
        made = Browser(self.client(**options))
        if name:
            answer = made.login(name)
            assert answer.status_code == 303, answer.text
        return made

    def account(self, name: str, role: Role, state: State = State.ACTIVE) -> Account:
        """Another account, with the password of all."""
        return self.portal.authentication.accounts.add(name, role, passwords.hashed(PASSWORD, WORK), state, self.now_s)

    def ask(self, request: Request, account: str = "operator.jane") -> Any:
        """Have something carried out without the portal. Raises `Refused`."""
        return self.controller_client._answer(account, request, "")

    def submit(self, job: Job) -> None:
        """Submit a job now; its guests do what it says."""
        self.loop.submit(job)
        self.run(1.0)

    def close(self) -> None:
        """End the portal."""
        self._stack.close()
        self.portal.authentication.close()
        self.base.close()


def job(name: str, work_s: float = 600.0, instances: int = 1, submit_s: float = 0.0, **fields: Any) -> Job:
    """A job of `work_s` seconds at 1,000 MHz for each instance."""
    stages = (Stage(work_s * 1_000.0, 1_000.0, 512),)
    return Job(name, stages, submit_s=submit_s, instances=instances, **fields)


@contextmanager
def scene(
    folder: Path,
    *,
    nodes: int = 3,
    jobs: Sequence[Job] = (),
    run_s: float = 30.0,
    automation: Automation = Automation.AUTO,
    read_only: bool = False,
    sign_on: SignOn | None = None,
    trusted: tuple[str, ...] = (),
    history: str = "",
    settings: dict[str, Any] | None = None,
    accounts: dict[str, Role] | None = None,
    second_factor: bool = False,
) -> Iterator[Scene]:
    """A cluster of nodes n1, n2, ... of 4 x 1,000 MHz and 4,000 MiB that has run for `run_s`, the portal's store in
    `folder`, and one account of each role: jane (provider), acme (owner), bob (user). `history`: URL of a store."""
    names = [f"n{number}" for number in range(1, nodes + 1)]
    controller = ControllerSettings(automation=automation, **(settings or {}))
    loop = ClosedLoop(
        [Node(name, 4, 1_000.0, memory_mib=4_000) for name in names], LoopSettings(controller, epoch_s=1.7e9)
    )
    for each in jobs:
        loop.submit(each)
    loop.run_until(run_s)
    controller_client = SimulatedClient(loop)
    base = Base(f"sqlite:///{folder}/portal.db")
    base.open()
    rules = Rules(frozenset({"portal.test"}), frozenset({URL}), trusted)
    authentication = Authentication(
        base,
        controller_client,
        passwords.Hasher(WORK),
        idle_s=3600.0,
        absolute_s=43_200.0,
        keep_log_s=86_400.0 * 400,
        trusts=rules.trusts,
        sign_on=sign_on,
        second_factor=second_factor,
    )
    reading = Reading(history) if history else None
    pool = ThreadPoolExecutor(1)  # starts its thread with the first report
    spans, texts = ProcessPool("reports", 0, pool), Texts(pool=pool)
    portal = Portal(
        controller_client,
        ViewCache(controller_client),
        authentication,
        rules=rules,
        settings=Settings(URL, read_only),
        reading=reading,
        spans=spans,
        texts=texts,
    )
    made = Scene(loop, portal, controller_client, base)
    for name, role in (ACCOUNTS if accounts is None else accounts).items():
        made.account(name, role)
    try:
        yield made
    finally:
        made.close()
        pool.shutdown()
        if reading is not None:
            reading.close()
