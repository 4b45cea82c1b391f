"""A connection that is lost leaves nothing behind: an agent and a controller lose theirs again and again."""

from __future__ import annotations

import pytest

from tests.integration.harness import CLOCK, Process
from tests.integration.private_broker import PrivateBroker
from tests.integration.scene import LIMIT_S, Scene, log_lines, scene
from tests.soak.watching import Reading, read

WARM_UP, LOSSES, AT_ONCE = 20, 100, 20
GROWN_KIB_MAX = 200
LOSS_S = 5.0  # for both to be there again and to have settled, a loss at most
# Closes the connections of agents and controllers, so many times, each time once there are both again.
CLOSE = """
Ours = fun() -> [Pid || Pid <- rabbit_networking:connections(),
  [{{user, User}}, {{vhost, <<"{vhost}">>}}] <- [catch rabbit_reader:info(Pid, [user, vhost])],
  lists:prefix("agent.", binary_to_list(User)) orelse lists:prefix("controller.", binary_to_list(User))] end,
Wait = fun Wait(0) -> gone; Wait(Left) ->
  case length(Ours()) >= 2 of true -> ok; false -> timer:sleep(100), Wait(Left - 1) end end,
lists:foreach(fun(_) -> Wait(300), timer:sleep(1500),
  [catch rabbit_networking:close_connection(Pid, <<"soak">>) || Pid <- Ours()],
  timer:sleep(200) end, lists:seq(1, {count})).
"""


def connections(process: Process) -> int:
    """How often it has connected."""
    return sum(1 for line in log_lines(process) if line["event"] == "connected")


def lose(town: Scene, daemons: list[Process], count: int) -> None:
    """Let both lose their connections so many times, and wait until they are back."""
    before = [connections(daemon) for daemon in daemons]
    for at in range(0, count, AT_ONCE):
        town.broker.ctl("eval", CLOSE.format(count=min(AT_ONCE, count - at), vhost=town.vhost))
        town.lab.tend()

    def back() -> bool:
        return all(connections(daemon) >= had + count for daemon, had in zip(daemons, before, strict=True))

    town.wait_for(back, LIMIT_S, f"{count} more connections of each")


def readings(daemons: list[Process]) -> list[Reading]:
    """Both, a moment after."""
    CLOCK.sleep(LOSS_S)
    found = [read(daemon.pid, 0.0) for daemon in daemons]
    return [one for one in found if one is not None]


@pytest.mark.full
@pytest.mark.alone
def test_a_hundred_lost_connections_leave_nothing_behind(broker: PrivateBroker) -> None:
    """Neither in memory nor among descriptors and threads, once both have lost twenty."""
    patient = {"periods": {"probe_s": 10.0}}  # a probe that is lost with a connection costs no lead
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
