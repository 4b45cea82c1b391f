"""What is done to a cluster under soak, one thing after the other, and how long it takes until all is well again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.integration.harness import CLOCK
from tests.integration.private_broker import START_S
from tests.integration.test_bad_input import fill
from tests.soak.cluster import MORTAL, Soak, daemons
from tests.soak.watching import children

FROZEN_S = 30.0
RESTART_S = 4.0  # until a supervisor has started again what was killed
BROKER_AWAY_S = 45.0
DISK_FULL_S = 30.0
HOST_AWAY_S = 12.0
RECOVERED_S = 60.0  # for all nodes to be up, without an alarm, and for a new job to be done
REST_S = 5.0
CLOSED = "connections closed by hand"
BUSY = ("n1", "n3", "n4")  # they are given VMs first


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that happens. `act` returns when its cause is gone; `hold_s`: about how long that takes. needs_disk: of
    the store alone."""

    name: str
    act: Callable[[Soak], None]
    hold_s: float
    needs_disk: bool = False


@dataclass(frozen=True, slots=True)
class Recovery:
    """How it went on from when the cause was gone: s until somebody answered, all was well, a new job was done."""

    fault: str
    answered_s: float
    normal_s: float
    job_s: float


def suffer(soak: Soak, fault: Fault) -> Recovery:
    """Have it happen, and wait until all is well."""
    fault.act(soak)
    gone_s = CLOCK.monotonic_s()
    soak.until(lambda: soak.answered(gone_s), RECOVERED_S, f"an answer after: {fault.name}")
    answered_s = CLOCK.monotonic_s() - gone_s
    soak.until(lambda: soak.normal(gone_s), RECOVERED_S, f"the end of: {fault.name}")
    normal_s = CLOCK.monotonic_s() - gone_s
    begun_s = CLOCK.monotonic_s()
    soak.new_job(RECOVERED_S)
    recovery = Recovery(fault.name, answered_s, normal_s, CLOCK.monotonic_s() - begun_s)
    soak.pause(REST_S)
    return recovery


def _kill_agents(*nodes: str) -> Callable[[Soak], None]:
    def act(soak: Soak) -> None:
        agents = [soak.lab.agents[node] for node in nodes]
        for agent in agents:
            agent.kill()
        soak.pause(RESTART_S)
        for agent in agents:
            agent.start()

    return act


def _kill_leader(soak: Soak) -> None:
    (leader,) = soak.lab.controllers.values()
    leader.kill()
    soak.pause(RESTART_S)
    leader.start()


def _freeze_agent(soak: Soak) -> None:
    agent = soak.lab.agents[BUSY[0]]
    agent.freeze()
    soak.pause(FROZEN_S)
    agent.thaw()


def _freeze_leader(soak: Soak) -> None:
    (leader,) = soak.lab.controllers.values()
    leader.freeze()
    soak.pause(FROZEN_S)
    leader.thaw()


def _kill_broker(soak: Soak) -> None:
    soak.kill_broker()
    soak.pause(BROKER_AWAY_S)
    soak.broker.start()
    soak.until(lambda: soak.queues("controller"), START_S, "the broker")


def _kill_workers(soak: Soak) -> None:
    (leader,) = soak.lab.controllers.values()
    for kind, pid in children(leader.pid):
        if kind == "worker":
            os.kill(pid, signal.SIGKILL)


def _kill_portal(soak: Soak) -> None:
    assert soak.portal is not None
    soak.portal.kill()
    soak.pause(RESTART_S)
    soak.open_portal()


def _fill_disk(soak: Soak) -> None:
    filler = soak.store_folder / "filler"
    fill(filler)
    soak.pause(DISK_FULL_S)
    filler.unlink()


def _cut_logs(soak: Soak) -> None:
    for daemon in daemons(soak):
        soak.watched.logs[daemon.name].cut()
        os.kill(daemon.pid, signal.SIGHUP)


def _kill_host(soak: Soak) -> None:
    """An operator says that it is off; it comes back later."""
    soak.lab.power_off(MORTAL)
    confirm = ("nodes", "confirm-off", "--yes", MORTAL)
    soak.until(lambda: soak.run(*confirm).status == 0, RECOVERED_S, f"the word that {MORTAL} is off")
    soak.pause(HOST_AWAY_S)
    soak.lab.power_on(MORTAL)


def _close_connections(soak: Soak) -> None:
    before = _connections(soak)
    soak.broker.ctl("close_all_connections", "--vhost", soak.vhost, CLOSED)
    soak.until(lambda: all(now > had for now, had in zip(_connections(soak), before, strict=True)), RECOVERED_S, CLOSED)


def _connections(soak: Soak) -> list[int]:
    """How often each agent and the controller have connected."""
    soak.watched.look(CLOCK.monotonic_s())
    daemons_of = (*soak.lab.agents.values(), *soak.lab.controllers.values())
    return [soak.watched.logs[daemon.name].counts["connected"] for daemon in daemons_of]


# Those that begin a process anew come first: what it then takes is not growth.
FAULTS: Sequence[Fault] = (
    Fault("leader killed", _kill_leader, 5.0),
    Fault("agent killed", _kill_agents(BUSY[0]), 5.0),
    Fault("connections closed at the broker", _close_connections, 5.0),
    Fault("decide workers killed", _kill_workers, 1.0),
    Fault("broker killed", _kill_broker, BROKER_AWAY_S + 10.0),
    Fault("portal killed", _kill_portal, 10.0),
    Fault("three agents killed", _kill_agents(*BUSY), 5.0),
    Fault("leader frozen", _freeze_leader, FROZEN_S),
    Fault("store's disk full", _fill_disk, DISK_FULL_S, needs_disk=True),
    Fault("leader killed again", _kill_leader, 5.0),
    Fault("agent frozen", _freeze_agent, FROZEN_S),
    Fault("host dead", _kill_host, HOST_AWAY_S + 10.0),
    Fault("logs cut, SIGHUP", _cut_logs, 1.0),
    Fault("connections closed again", _close_connections, 5.0),
)
