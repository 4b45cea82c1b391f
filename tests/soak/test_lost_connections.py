"""A connection that is lost leaves nothing behind: an agent and a controller lose theirs again and again."""

from __future__ import annotations

import pytest

from shared.protocol import topology
from tests.integration.harness import CLOCK, Process
from tests.integration.private_broker import PrivateBroker
from tests.integration.scene import LIMIT_S, Scene, log_lines, scene
from tests.soak.watching import Reading, read

WARM_UP, LOSSES = 20, 100
GROWN_KIB_MAX = 200
SETTLED_S = 0.5  # after both are connected, until they lose that again
LAST_S = 5.0  # after the last


def connections(process: Process) -> int:
    """How often it has connected."""
    return sum(1 for line in log_lines(process) if line["event"] == "connected")


def lose(town: Scene, daemons: list[Process], count: int) -> None:
    """Have the broker close the connections of both so many times, each time once both are back."""
    users = [topology.agent_user("n1"), topology.CONTROLLER_USER_PREFIX + "c1"]
    for number in range(count):
        before = [connections(daemon) for daemon in daemons]
        for user in users:
            town.api.call("DELETE", f"connections/username/{user}")

        def back(before: list[int] = before) -> bool:
            return all(connections(daemon) > had for daemon, had in zip(daemons, before, strict=True))

        town.wait_for(back, LIMIT_S, f"both after loss {number + 1}")
        CLOCK.sleep(SETTLED_S)


def readings(daemons: list[Process]) -> list[Reading]:
    """Both, a moment after."""
    CLOCK.sleep(LAST_S)
    found = [read(daemon.pid, 0.0) for daemon in daemons]
    return [one for one in found if one is not None]


@pytest.mark.full
@pytest.mark.alone
def test_a_hundred_lost_connections_leave_nothing_behind(broker: PrivateBroker) -> None:
    """Neither in memory nor among descriptors and threads, once both have lost twenty."""
    patient = {"periods": {"probe_s": 300.0}}  # probes that are lost with connections cost no lead
    with scene(broker, nodes="n1:4x1000:8000", controller=patient) as town:
        daemons = [town.lab.agents["n1"], town.lab.controllers["c1"]]
        lose(town, daemons, WARM_UP)
        before = readings(daemons)
        lose(town, daemons, LOSSES)
        after = readings(daemons)

        for daemon, first, last in zip(daemons, before, after, strict=True):
            print(f"{daemon.name}: {first.rss_kib} -> {last.rss_kib} KiB, {first} -> {last}")
        assert [daemon.lives for daemon in daemons] == [1, 1]
        for first, last in zip(before, after, strict=True):
            assert last.rss_kib - first.rss_kib <= GROWN_KIB_MAX
            assert (last.descriptors, last.threads) == (first.descriptors, first.threads)
