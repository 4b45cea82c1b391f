"""Two controllers on hosts of their own, with PostgreSQL, while a guest moves: the leader is killed, frozen and
cut off, and the database stops. The other leads, the move ends as it would have, and nothing is done twice.

One guest moves from test to test and never begins anew; each unit of its work is printed once.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from shared.config.broker_url import Tls
from shared.protocol import topology
from shared.protocol.codec import encode
from shared.protocol.messages import Order
from shared.runtime import startup
from shared.runtime.shell import BEGIN_ANEW
from shared.values.actions import Action, ActionKind
from tests.integration.debian import need_programs
from tests.integration.harness import CLOCK, Process, Section
from tests.integration.scene import LIMIT_S, SOON_S, log_lines
from tests.lab.cluster import Cluster, cluster
from tests.lab.database import Database, database
from tests.lab.hosts import HostSpec

pytestmark = [pytest.mark.full, pytest.mark.alone]

SPEC = HostSpec(cores=1, core_mhz=1000.0, core_frac=0.4, memory_mib=512)
MIGRATION = {"peer": "qemu+tcp://{host}/system", "data": "tcp://{host}", "tls": False, "bandwidth_mib_per_s": 2}
AGENT: dict[str, Section] = {"libvirt": {"migration": MIGRATION}}
CONTROLLER: dict[str, Section] = {"power": {"driver": "none"}}
JOB, VM, ENDLESS = "rider", "rider#0", 100_000
KILLED_S, SILENT_S, STORELESS_S = 20.0, 45.0, 60.0  # until the other leads, on a machine that is busy
AWAY_S = 20.0


class Town:
    """A cluster of two hosts, two controllers and one guest that works on one of them."""

    def __init__(self, made: Cluster, store: Database) -> None:
        self.cluster, self.store = made, store
        self.nodes = tuple(made.lab.hosts)

    # --- who leads --------------------------------------------------------------------------------------------------

    def leads(self) -> list[tuple[int, str]]:
        """All leads there were, by the controllers' logs: term and controller, in order."""
        return sorted(
            (line["term"], name)
            for name, controller in self.cluster.lab.controllers.items()
            for line in log_lines(controller)
            if (line["event"], line.get("what")) == ("happened", "leading")
        )

    @property
    def leader(self) -> str:
        """Who led last."""
        return self.leads()[-1][1]

    @property
    def standby(self) -> str:
        """The other."""
        return next(name for name in self.cluster.lab.controllers if name != self.leader)

    def process(self, name: str) -> Process:
        """A controller's."""
        return self.cluster.lab.controllers[name]

    def handed_over(self, to: str, since_s: float, limit_s: float) -> None:
        """Wait until this controller leads, with the next term, and nobody else."""
        before = len(self.leads())
        self.cluster.wait_for(lambda: len(self.leads()) > before, limit_s, f"{to} to lead")
        print(f"{to} leads after {CLOCK.monotonic_s() - since_s:.1f} s")
        terms, names = zip(*self.leads(), strict=True)
        assert (terms, names[before:]) == (tuple(range(1, before + 2)), (to,))

    def ended(self, name: str) -> list[str]:
        """Why the lives of a controller ended with 75."""
        lines = [line for line in log_lines(self.process(name)) if line["event"] == "ending"]
        return [line["reason"] for line in lines if line["exit_status"] == BEGIN_ANEW]

    def stands_by(self, name: str) -> None:
        """Wait until a controller that began anew is connected: then it has asked for its queues."""

        def connected() -> bool:
            life = self.process(name).log.read_text().rsplit("--- life", 1)[1]
            return self.process(name).alive and '"connected"' in life

        self.cluster.wait_for(connected, LIMIT_S, f"{name} as a standby")

    # --- the guest --------------------------------------------------------------------------------------------------

    def home(self) -> str:
        """Where the guest runs."""
        return self.cluster.wait_for(lambda: self.cluster.homes().get(VM, ""), SOON_S, "a host that has the guest")

    def works(self) -> None:
        """Wait until the guest has done two units more, all of them once, in order and in one life."""

        def done() -> int:
            printed = self.cluster.printed(VM)
            assert not printed.stray, printed
            units = sum(map(len, printed.runs))
            assert printed.runs in ((), (tuple(range(1, units + 1)),)), printed
            return units

        before = done()
        self.cluster.wait_for(lambda: done() >= before + 2, LIMIT_S, f"work of {VM}")

    def move(self) -> Move:
        """Have the guest move to the other host; returns when it is on its way."""
        source = self.home()
        target = next(node for node in self.nodes if node != source)
        self.cluster.do("vms", "migrate", VM, target)
        self.cluster.wait_for(lambda: self.is_defined(target), SOON_S, "the move")
        return Move(self, source, target)

    def is_defined(self, node: str) -> bool:
        """Whether the guest is on a host, or on its way there."""
        return VM in self.cluster.lab.hosts[node].virsh("list", "--all", "--name").split()

    def orders(self) -> list[dict[str, Any]]:
        """The orders on the guest so far, whoever sent them, in order."""
        return sorted(self.cluster.orders(VM), key=lambda order: str(order["timestamp"]))


class Move:
    """A move of the guest that has been ordered."""

    def __init__(self, town: Town, source: str, target: str) -> None:
        self.town, self.source, self.target = town, source, target
        self.order = town.orders()[-1]
        self._orders = len(town.orders())
        assert (self.order["kind"], self.order["node"], self.order["to_node"]) == ("migrate", source, target)

    @property
    def in_progress(self) -> bool:
        """Whether the guest still runs where it was."""
        return self.town.home() == self.source

    def results(self, controller: str) -> list[str]:
        """The outcomes of it that a controller was told."""
        lines = [line for line in log_lines(self.town.process(controller)) if line["event"] == "result received"]
        return [line["outcome"] for line in lines if line["action"] == self.order["action"]]

    def ends_well(self, leader: str) -> None:
        """Wait until the guest is there, known and wanted there and nowhere else. The order was sent once and begun
        once, its result reached the controller that leads, and nothing else was ordered but weights."""
        town = self.town
        town.cluster.wait_for(self._agreed, LIMIT_S, f"{VM} on {self.target}, wanted, known and seen")
        town.works()
        assert set(self.results(leader)) == {"ok"}
        later = [f"{order['action']} {order['kind']} {order['node']}" for order in town.orders()[self._orders :]]
        assert [order for order in later if "set-cpu" not in order] == []
        begun = [
            line
            for node in town.nodes
            for line in log_lines(town.cluster.lab.agents[node])
            if (line["event"], line.get("action")) == ("operation begun", self.order["action"])
        ]
        assert [line["node"] for line in begun] == [self.source]

    def _agreed(self) -> bool:
        (seen,) = self.town.cluster.job(JOB)["instance_list"]
        known = (seen["node"], seen["wanted_node"], seen["state"], seen["action"])
        truly = [node for node in self.town.nodes if self.town.is_defined(node)]
        return known == (self.target, self.target, "running", "") and truly == [self.target]


@pytest.fixture(scope="module")
def town() -> Iterator[Town]:
    """Two hosts and two controllers on further ones; the guest works, and takes some ten seconds to move."""
    need_programs(("iptables",), ("iptables",))
    with (
        database() as store,
        cluster(
            2,
            SPEC,
            controllers=("c1", "c2"),
            store=lambda _, address: store.begin(address),
            replicas=True,
            controller=CONTROLLER,
            agent=AGENT,
        ) as made,
    ):
        made.submit_burner(JOB, ENDLESS, template="laden")
        made.running(VM)
        made_town = Town(made, store)
        made_town.works()
        yield made_town


@contextmanager
def cut_off(town: Town, controller: str, port: int) -> Iterator[None]:
    """Nothing that a controller sends to a port reaches it, and nothing comes back; nobody is told."""
    host = town.cluster.lab.replicas[controller]
    rules = (["OUTPUT", "-p", "tcp", "--dport", str(port)], ["INPUT", "-p", "tcp", "--sport", str(port)])
    for rule in rules:
        host.run(["iptables", "-A", *rule, "-j", "DROP"])
    try:
        yield
    finally:
        for rule in rules:
            host.run(["iptables", "-D", *rule, "-j", "DROP"])


# --- killed ----------------------------------------------------------------------------------------------------------


def test_a_leader_that_is_killed(town: Town) -> None:
    """The move goes on, and is told to the other when it ends."""
    old, new = town.leader, town.standby
    move = town.move()
    begin_s = CLOCK.monotonic_s()
    town.process(old).kill()
    town.handed_over(new, begin_s, KILLED_S)
    assert move.in_progress
    town.process(old).start()

    move.ends_well(new)
    town.stands_by(old)


def test_a_leader_that_is_killed_before_its_order_was_read(town: Town) -> None:
    """The agent reads it when somebody else leads already, whom it has not heard of: it is carried out once."""
    old, new = town.leader, town.standby
    source = town.home()
    target = next(node for node in town.nodes if node != source)
    agent, sent = town.cluster.lab.agents[source], len(town.orders())
    agent.freeze()
    try:
        town.cluster.do("vms", "migrate", VM, target)
        town.cluster.wait_for(lambda: len(town.orders()) > sent, SOON_S, "the order")
        begin_s = CLOCK.monotonic_s()
        town.process(old).kill()
        town.handed_over(new, begin_s, KILLED_S)
    finally:
        agent.thaw()
    town.process(old).start()

    Move(town, source, target).ends_well(new)
    town.stands_by(old)


# --- frozen ----------------------------------------------------------------------------------------------------------


def test_a_leader_that_is_frozen(town: Town) -> None:
    """Awake again it sends nothing and stands by; and agents would refuse what it sent."""
    old, new = town.leader, town.standby
    old_term = town.leads()[-1][0]
    move = town.move()
    begin_s = CLOCK.monotonic_s()
    town.process(old).freeze()
    try:
        town.handed_over(new, begin_s, SILENT_S)
        move.ends_well(new)
        reasons = len(town.ended(old))
    finally:
        town.process(old).thaw()

    town.cluster.wait_for(lambda: len(town.ended(old)) > reasons, SOON_S, "the end of the old leader")
    print(town.ended(old)[-1])
    town.stands_by(old)
    assert late_order(town, old, old_term) == "older-term"
    move.ends_well(new)


def late_order(town: Town, controller: str, term: int) -> str:
    """What becomes of an order to suspend the guest that a controller sends in this term: its outcome."""
    node = town.home()
    account = town.cluster.lab.accounts / f"controller.{controller}.toml"
    known = town.cluster.do("nodes", "show", node, "--output", "json").data["node"]
    generation = town.cluster.job(JOB)["instance_list"][0]["generation"]
    action = Action(
        f"late-{term}",
        ActionKind.SUSPEND,
        node,
        vm=VM,
        term=term,
        boot_id=known["boot_id"],
        expires_at_s=CLOCK.now_s() + SOON_S,
        expects=generation,
        generation=generation,
    )
    url = tomllib.loads(account.read_text())["bus"]["url"]
    bus = startup.broker(url, Tls(ca_file=str(town.cluster.broker.ca_file)))()
    try:
        bus.publish(topology.ACTIONS, node, encode(Order(action)), 1)
        return town.cluster.wait_for(lambda: told(town, action.id), SOON_S, "the answer to a late order")
    finally:
        bus.close()


def told(town: Town, action: str) -> str:
    """The outcome of an action that the leader was told, "" before it was."""
    lines = [line for line in log_lines(town.process(town.leader)) if line["event"] == "result received"]
    return next((str(line["outcome"]) for line in lines if line["action"] == action), "")


# --- cut off ---------------------------------------------------------------------------------------------------------


def test_a_leader_that_is_cut_off_from_the_broker(town: Town) -> None:
    """It ends itself, before the broker has missed it."""
    old, new = town.leader, town.standby
    reasons = len(town.ended(old))
    move = town.move()
    begin_s = CLOCK.monotonic_s()
    with cut_off(town, old, town.cluster.broker.amqps):
        town.handed_over(new, begin_s, SILENT_S)
        assert "has come back" in town.ended(old)[reasons]
        move.ends_well(new)
    town.stands_by(old)


def test_a_leader_that_is_cut_off_from_the_database(town: Town) -> None:
    """It ends when it cannot store what it is told, and does not acknowledge that: the other is told."""
    old, new = town.leader, town.standby
    reasons = len(town.ended(old))
    move = town.move()
    begin_s = CLOCK.monotonic_s()
    with cut_off(town, old, town.store.port):
        town.handed_over(new, begin_s, STORELESS_S)
        assert "store" in town.ended(old)[reasons]
        move.ends_well(new)
        town.stands_by(old)


# --- the database ----------------------------------------------------------------------------------------------------


def test_a_database_that_stops_for_a_while(town: Town) -> None:
    """The move goes on; whoever leads afterwards is told of its end."""
    old, leads = town.leader, len(town.leads())
    reasons = len(town.ended(old))
    move = town.move()
    town.store.stop()
    begin_s = CLOCK.monotonic_s()
    try:
        town.cluster.wait_for(lambda: not move.in_progress, LIMIT_S, "the end of the move")
        town.cluster.wait_for(lambda: len(town.ended(old)) > reasons, LIMIT_S, "the end of the leader")
        town.cluster.watch(begin_s + AWAY_S - CLOCK.monotonic_s(), lambda: len(town.leads()) == leads, "no leader")
    finally:
        town.store.start()
    started_s = CLOCK.monotonic_s()
    town.cluster.wait_for(lambda: len(town.leads()) > leads, STORELESS_S, "a leader")
    print(f"{town.leader} leads {CLOCK.monotonic_s() - started_s:.1f} s after the database was back")
    move.ends_well(town.leader)
    town.stands_by(town.standby)
