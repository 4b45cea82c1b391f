"""The world: exact ends, coupled tasks, stages, checkpoints, hosts that die."""

from __future__ import annotations

import math

import pytest

from shared.base.errors import ContractViolation, InvalidValue
from shared.values.nodes import Node
from sim_backend.world.world import World

FREE = math.inf


def _world(cores: int = 1, hosts: int = 1, speed_factor: float = 1.0) -> World:
    world = World()
    for i in range(hosts):
        world.add_host(Node(f"h{i}", cores, 1_000.0, memory_mib=4_096), speed_factor)
    return world


def _place(
    world: World, vm: str, host: str = "h0", now_s: float = 0.0, weight: float = 1_000.0, **more: object
) -> None:
    options = {"cap_mhz": FREE, "vcpus": 1, "memory_mib": 100.0, **more}
    world.place(vm, host, now_s, weight, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("start_s", [0.0, 7.0, 1_209_600.0])
@pytest.mark.parametrize("run_s", [1.0, 573.0, 36_000.0, 604_801.0])
def test_an_undisturbed_guest_ends_exactly(start_s: float, run_s: float) -> None:
    """However often time is looked at, the end is start + run to the last bit."""
    world = _world()
    world.add_task("job", [(run_s * 1_000.0, 1_000.0)], 1)
    _place(world, "job#0", now_s=start_s)
    for part in range(1, 100):
        assert world.advance(start_s + run_s * part / 100) == []
        assert 0.0 < world.cpu_time_s("job#0", start_s + run_s * part / 100) < run_s
    assert world.next_end_s() == start_s + run_s
    assert world.advance(start_s + run_s) == ["job#0"]
    assert world.completions["job"] == [(1, start_s + run_s)]
    assert world.cpu_time_s("job#0", start_s + run_s + 5.0) == run_s
    assert world.next_end_s() is None


def test_neighbours_that_change_nothing_do_not_touch_an_end() -> None:
    """On a host with room for all, comings and goings leave the others' ends exact."""
    world = _world(cores=4)
    world.add_task("long", [(1_000_003_000.0, 1_000.0)], 1)
    _place(world, "long#0")
    for i in range(1, 400):
        world.add_task(f"t{i}", [(700.0, 1_000.0)], 1)
        _place(world, f"t{i}#0", now_s=i / 3)
        world.advance(i / 3)
        if i > 3:
            world.remove(f"t{i - 3}#0", i / 3)
    world.advance(2e6)
    assert world.completions["long"] == [(1, 1_000_003.0)]


def test_ends_come_in_order_of_time_task_and_index() -> None:
    """Ties are broken by the task's name, then by the index, whatever the order of placement."""
    world = _world(cores=8)
    for name, work, count in (("b", 5e3, 2), ("a", 5e3, 1), ("c", 4e3, 1)):
        world.add_task(name, [(work, 1_000.0)], count)
    for vm in ("b#1", "c#0", "b#0", "a#0"):
        _place(world, vm)
    assert world.advance(10.0) == ["c#0", "a#0", "b#0", "b#1"]


def test_weights_caps_and_speed_of_a_host() -> None:
    """Weighted max-min: in proportion to the weights, no more than the cap, the rest to the others."""
    world = _world(cores=2, speed_factor=1.5)  # 3,000 MHz in truth
    for name, max_mhz in (("light", 9e9), ("heavy", 9e9), ("slow", 9e9)):
        world.add_task(name, [(1e9, max_mhz)], 1)
    _place(world, "light#0", weight=500.0, vcpus=2)
    assert world.share_mhz("light#0") == 3_000.0
    _place(world, "heavy#0", weight=1_500.0, vcpus=1)
    assert world.share_mhz("heavy#0") == 1_500.0  # its ceiling: one vcpu
    _place(world, "slow#0", weight=9_000.0, cap_mhz=600.0)
    assert [world.share_mhz(f"{name}#0") for name in ("light", "heavy", "slow")] == [900.0, 1_500.0, 600.0]
    world.set_weight("heavy#0", 250.0, FREE, 10.0)
    assert [world.share_mhz(f"{name}#0") for name in ("light", "heavy")] == [1_600.0, 800.0]
    world.remove("slow#0", 10.0)
    assert world.cpu_time_s("heavy#0", 10.0) == 10.0
    assert world.cpu_time_s("heavy#0", 11.0) == 10.0 + world.share_mhz("heavy#0") / 1_500.0


def test_coupled_instances_go_at_the_pace_of_the_slowest() -> None:
    """Nothing moves until all execute; a slow one slows all; they end together."""
    world = _world(hosts=3)
    world.add_task("gang", [(10_000.0, 1_000.0)], 3)
    for i in range(3):
        _place(world, f"gang#{i}", f"h{i}", running=i < 2)
    assert world.next_end_s() is None
    assert world.done_mcycles("gang", 50.0) == 0.0
    world.set_running("gang#2", True, 50.0)
    assert world.next_end_s() == 60.0
    world.set_weight("gang#1", 1_000.0, 250.0, 52.0)
    assert world.share_mhz("gang#0") == 1_000.0  # keeps its share although its peer is slower
    assert world.next_end_s() == 84.0
    world.set_running("gang#0", False, 60.0)
    assert world.next_end_s() is None
    assert world.done_mcycles("gang", 99.0) == 4_000.0
    world.set_running("gang#0", True, 100.0)
    assert world.advance(1_000.0) == ["gang#0", "gang#1", "gang#2"]
    assert world.completions["gang"] == [(1, 124.0)]
    assert [world.cpu_time_s(f"gang#{i}", 1_000.0) for i in range(3)] == [10.0] * 3


def test_stages_have_speeds_of_their_own() -> None:
    """Each stage runs at most at its speed and frees what it cannot use; stages without work are passed over."""
    world = _world(cores=1)
    world.add_task("job", [(1_000.0, 100.0), (0.0, 5.0), (2_000.0, 500.0)], 1)
    world.add_task("other", [(1e9, 1_000.0)], 1)
    _place(world, "job#0")
    _place(world, "other#0", weight=1.0)
    assert (world.share_mhz("job#0"), world.share_mhz("other#0")) == (100.0, 900.0)
    assert world.advance(10.0) == []
    assert (world.share_mhz("job#0"), world.share_mhz("other#0")) == (500.0, 500.0)
    assert world.next_end_s() == 14.0
    assert world.advance(14.0) == ["job#0"]
    assert world.share_mhz("other#0") == 1_000.0


@pytest.mark.parametrize(("checkpoint", "kept"), [(0.0, 0.0), (3_000.0, 6_000.0), (7_500.0, 7_500.0)])
def test_a_new_attempt_begins_at_the_last_checkpoint(checkpoint: float, kept: float) -> None:
    """The same attempt goes on where it was, a higher one at floor(done / checkpoint) checkpoints."""
    world = _world(hosts=2)
    world.add_task("job", [(4_000.0, 1_000.0), (6_000.0, 1_000.0)], 1, checkpoint)
    _place(world, "job#0")
    world.advance(5.0)
    world.remove("job#0", 5.0)
    _place(world, "job#0", "h1", now_s=7.0)
    assert world.next_end_s() is not None
    world.advance(10.0)
    assert world.done_mcycles("job", 10.0) == 8_000.0
    assert world.host_dies("h1", 10.0) == ["job#0"]
    _place(world, "job#0", "h0", now_s=20.0, attempt=2)
    assert world.done_mcycles("job", 20.0) == kept
    assert world.advance(100.0) == ["job#0"]
    assert world.completions["job"] == [(2, 20.0 + (10_000.0 - kept) / 1_000.0)]


def test_a_guest_of_an_older_attempt_is_idle() -> None:
    """It neither helps nor holds anyone up; its counter keeps what it did."""
    world = _world(hosts=2)
    world.add_task("gang", [(5_000.0, 1_000.0)], 2)
    _place(world, "gang#0", "h0")
    _place(world, "gang#1", "h1")
    world.advance(2.0)
    world.remove("gang#0", 2.0)
    _place(world, "gang#0", "h0", now_s=2.0, attempt=2)
    assert world.share_mhz("gang#1") == 0.0
    assert world.next_end_s() is None
    assert world.cpu_time_s("gang#1", 9.0) == 2.0
    world.remove("gang#1", 9.0)
    _place(world, "gang#1", "h1", now_s=10.0, attempt=2)
    assert world.advance(99.0) == ["gang#0", "gang#1"]
    assert world.completions["gang"] == [(2, 15.0)]


def test_a_task_that_is_started_again_after_its_end_ends_again() -> None:
    """The truth of a job that is run twice shows as two completions."""
    world = _world()
    world.add_task("job", [(1_000.0, 1_000.0)], 1)
    for now_s in (0.0, 10.0):
        _place(world, "job#0", now_s=now_s)
        world.advance(now_s + 1.0)
        world.remove("job#0", now_s + 1.0)
    assert world.completions["job"] == [(1, 1.0), (1, 11.0)]


def test_moving_keeps_the_work_and_begins_the_counters_anew() -> None:
    """Live: no time is lost, and an unchanged speed leaves the end exact."""
    world = _world(hosts=2)
    world.add_task("job", [(10_000.0, 1_000.0)], 1)
    _place(world, "job#0", memory_mib=300.0)
    world.move("job#0", "h1", 0.1)
    assert (world.where("job#0"), world.next_end_s()) == ("h1", 10.0)
    assert (world.memory_used_mib("h0"), world.memory_used_mib("h1")) == (0.0, 300.0)
    assert world.cpu_time_s("job#0", 3.1) == 3.0
    world.remove("job#0", 4.0)
    assert (world.where("job#0"), world.memory_used_mib("h1")) == (None, 0.0)


def test_guests_of_unknown_tasks_are_idle() -> None:
    """They hold memory and use no CPU."""
    world = _world()
    world.add_task("job", [(1_000.0, 1_000.0)], 1)
    for vm in ("stranger", "stranger#0", "job#1", "job#x"):
        _place(world, vm)
        world.set_running(vm, False, 0.0)
        world.set_running(vm, True, 0.0)
        assert world.cpu_time_s(vm, 100.0) == 0.0
    assert world.memory_used_mib("h0") == 400.0
    assert world.next_end_s() is None


def test_work_of_no_cycles_ends_when_it_runs() -> None:
    """A task without work still has to be run."""
    world = _world()
    world.add_task("empty", [(0.0, 1_000.0)], 1)
    _place(world, "empty#0", running=False)
    assert world.advance(5.0) == []
    world.set_running("empty#0", True, 6.0)
    assert world.advance(6.0) == ["empty#0"]


def test_a_guest_without_cpu_never_ends() -> None:
    """A cap of 0 stops it; it goes on when the cap is lifted."""
    world = _world()
    world.add_task("job", [(1_000.0, 1_000.0)], 1)
    _place(world, "job#0", cap_mhz=0.0)
    assert world.next_end_s() is None
    world.set_weight("job#0", 1_000.0, FREE, 9.0)
    assert world.next_end_s() == 10.0


def test_nothing_runs_twice_or_on_a_dead_host() -> None:
    """The world refuses what cannot be."""
    world = _world(hosts=2)
    _place(world, "vm#0")
    with pytest.raises(ContractViolation, match="alive on h0"):
        _place(world, "vm#0", "h1")
    assert world.host_dies("h1", 0.0) == []
    with pytest.raises(ContractViolation, match="not up"):
        _place(world, "other#0", "h1")
    with pytest.raises(ContractViolation, match="not up"):
        world.move("vm#0", "h1", 0.0)
    assert world.where("vm#0") == "h0"
    world.host_returns("h1")
    world.move("vm#0", "h1", 1.0)
    assert world.host_dies("h1", 2.0) == ["vm#0"]
    with pytest.raises(KeyError):
        world.remove("vm#0", 3.0)


@pytest.mark.parametrize(
    ("stages", "instances", "checkpoint"),
    [
        ([], 1, 0.0),
        ([(1.0, 1.0)], 0, 0.0),
        ([(-1.0, 1.0)], 1, 0.0),
        ([(math.nan, 1.0)], 1, 0.0),
        ([(math.inf, 1.0)], 1, 0.0),
        ([(1.0, 0.0)], 1, 0.0),
        ([(1.0, math.nan)], 1, 0.0),
        ([(1.0, 1.0)], 1, math.nan),
    ],
)
def test_bad_tasks_are_refused(stages: list[tuple[float, float]], instances: int, checkpoint: float) -> None:
    """No NaN gets in."""
    with pytest.raises(InvalidValue):
        _world().add_task("job", stages, instances, checkpoint)


def test_bad_hosts_and_names_taken_are_refused() -> None:
    """Names are unique, speeds positive."""
    world = _world()
    world.add_task("job", [(1.0, 1.0)], 1)
    with pytest.raises(ContractViolation):
        world.add_task("job", [(1.0, 1.0)], 1)
    with pytest.raises(ContractViolation):
        world.add_host(Node("h0", 1, 1.0, memory_mib=1))
    for factor in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InvalidValue):
            world.add_host(Node("h9", 1, 1.0, memory_mib=1), factor)


def test_a_thousand_changes_of_speed_leave_one_end_each() -> None:
    """Out-of-date entries of the calendar are dropped and never taken for ends."""
    world = _world(cores=2)
    for i in range(4):
        world.add_task(f"t{i}", [(5e6, 1_000.0)], 1)
        _place(world, f"t{i}#0")
    for step in range(1, 1_001):
        world.set_weight(f"t{step % 4}#0", 100.0 + step, FREE, float(step))
        assert world.advance(float(step)) == []
    assert sum(world.done_mcycles(f"t{i}", 1_000.0) for i in range(4)) == pytest.approx(2e6)
    assert len(world.advance(1e9)) == 4
    assert [len(times) for times in world.completions.values()] == [1] * 4


def test_who_goes_leaves_its_cpu_to_the_others_at_once() -> None:
    """Given a guest without a task that has half of a core, then a task has all of it from the moment that it goes."""
    world = _world(cores=1)
    world.add_task("job", [(1e6, 1_000.0)], 1)
    _place(world, "job#0")
    _place(world, "web#0")
    world.ask("web#0", 1_000.0, 0.0)
    assert world.next_end_s() == 2_000.0
    world.remove("web#0", 1_000.0)
    assert world.next_end_s() == 1_500.0


def _disk(io: float, count: int, servers: int = 1) -> World:
    """One host and so many guests of 1,000 s each, that are at its disk for a part of their time alone."""
    world = World()
    world.add_host(Node("h0", count, 1_000.0, memory_mib=4_096), disk_servers=servers)
    for i in range(count):
        world.add_task(f"t{i}", [(1e6, 1_000.0)], 1, io=io)
        _place(world, f"t{i}#0")
    return world


@pytest.mark.parametrize(
    ("io", "count", "servers", "slowed"),
    [
        (0.5, 1, 1, 1.0),
        (0.5, 2, 1, 1.25),
        (1.0, 2, 1, 2.0),
        (1.0, 3, 1, 3.0),
        (1.0, 3, 2, 1.5),
        (0.5, 3, 1, 16.0 / 10.0),  # G of three: (1 + 3 + 6 + 6) / 8, of two: (1 + 2 + 2) / 4
        (0.0, 3, 1, 1.0),
    ],
)
def test_guests_wait_for_each_other_at_the_disk(io: float, count: int, servers: int, slowed: float) -> None:
    world = _disk(io, count, servers)
    assert world.next_end_s() == pytest.approx(1_000.0 * slowed)
    assert world.cpu_time_s("t0#0", 500.0) == pytest.approx(500.0 / slowed)
    held_s, served_s = world.disk_s("t0#0", 500.0)
    assert served_s == pytest.approx(io * 500.0 / slowed)
    assert held_s == pytest.approx(500.0 - (1.0 - io) * 500.0 / slowed)
    assert len(world.advance(1_000.0 * slowed + 1e-6)) == count


def test_who_leaves_the_disk_lets_the_others_go_on_faster() -> None:
    world = _disk(1.0, 2)
    world.set_running("t1#0", False, 500.0)
    assert world.next_end_s() == pytest.approx(500.0 + 750.0)
    assert world.disk_s("t1#0", 2_000.0) == pytest.approx((500.0, 250.0))
    world.set_running("t1#0", True, 600.0)
    assert world.next_end_s() == pytest.approx(600.0 + 2.0 * 650.0)
    world.remove("t1#0", 700.0)
    assert world.next_end_s() == pytest.approx(700.0 + 600.0)
    assert world.host_disk_s("h0", 700.0) == pytest.approx((700.0, 700.0))
    assert world.used_frac("h0") == pytest.approx(0.5)


def test_members_of_a_gang_come_to_the_disk_only_when_all_execute() -> None:
    world = World()
    for host in ("h0", "h1"):
        world.add_host(Node(host, 2, 1_000.0, memory_mib=4_096))
    world.add_task("gang", [(1e6, 1_000.0)], 2, io=1.0)
    world.add_task("one", [(1e6, 1_000.0)], 1, io=1.0)
    _place(world, "one#0")
    _place(world, "gang#0")
    assert world.next_end_s() == 1_000.0
    _place(world, "gang#1", "h1", now_s=100.0)
    assert world.next_end_s() == pytest.approx(100.0 + 2.0 * 900.0)
    world.move("gang#0", "h1", 200.0)
    assert world.disk_s("gang#0", 200.0) == (0.0, 0.0)
    assert world.next_end_s() == pytest.approx(200.0 + 850.0)
    assert world.done_mcycles("gang", 300.0) == pytest.approx(50_000.0 + 50_000.0)


def test_a_guest_given_less_cpu_comes_to_the_disk_less_often() -> None:
    world = _disk(0.8, 2)
    assert world.next_end_s() == pytest.approx(1_640.0)
    world = World()
    world.add_host(Node("h0", 1, 1_000.0, memory_mib=4_096))
    for i in range(2):
        world.add_task(f"t{i}", [(1e6, 1_000.0)], 1, io=0.8)
        _place(world, f"t{i}#0")
    assert world.next_end_s() == pytest.approx(2_000.0 * 1.16)


def test_bad_parts_and_disks_are_refused() -> None:
    world = _world()
    for io in (-0.1, 1.1, math.nan):
        with pytest.raises(InvalidValue):
            world.add_task("job", [(1.0, 1.0)], 1, io=io)
    for servers in (0, 5_000):
        with pytest.raises(InvalidValue):
            world.add_host(Node("h9", 1, 1.0, memory_mib=1), disk_servers=servers)
