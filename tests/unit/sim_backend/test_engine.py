"""The engine of virtual time: order within an instant, timers, sources."""

from functools import partial

import pytest

from shared.base.errors import ContractViolation
from sim_backend.engine import Engine, Rank


class Queue:
    """A source that does what was put in, each at its time."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.items: list[tuple[float, str]] = []

    def next_due_s(self) -> float | None:
        return self.items[0][0] if self.items else None

    def step(self, now_s: float) -> bool:
        if not self.items or self.items[0][0] > now_s:
            return False
        self.log.append(self.items.pop(0)[1])
        return True


def test_instant_runs_world_then_script_then_answers_then_timers() -> None:
    engine = Engine()
    log: list[str] = []
    world, answers = Queue(log), Queue(log)
    engine.add_source(Rank.ANSWERS, answers)
    engine.add_source(Rank.WORLD, world)
    engine.start_timer("a", "t", 5.0, lambda: log.append("timer"))
    answers.items = [(5.0, "answer 1"), (5.0, "answer 2")]
    engine.at(5.0, 1, lambda: log.append("second script"))
    engine.at(5.0, 0, lambda: log.append("first script"))
    world.items = [(5.0, "world")]

    engine.run_until(10.0)

    assert log == ["world", "first script", "second script", "answer 1", "answer 2", "timer"]
    assert engine.now_s == 10.0


def test_what_a_timer_causes_comes_before_the_next_timer() -> None:
    engine = Engine()
    log: list[str] = []
    answers = Queue(log)
    engine.add_source(Rank.ANSWERS, answers)

    def one() -> None:
        log.append("one")
        answers.items.append((1.0, "answer"))

    engine.start_timer("a", "one", 1.0, one)
    engine.start_timer("a", "two", 1.0, lambda: log.append("two"))

    engine.run_until(1.0)

    assert log == ["one", "answer", "two"]


def test_timers_of_one_instant_fire_in_the_order_of_setting_also_when_set_for_the_past() -> None:
    engine, log = Engine(3.0), []
    engine.start_timer("a", "late", 2.0, lambda: log.append("first set"))
    engine.start_timer("a", "later", 1.0, lambda: log.append("second set"))

    engine.run_until(3.0)

    assert log == ["first set", "second set"]


def test_setting_a_timer_again_replaces_it_and_takes_a_new_place() -> None:
    engine = Engine()
    log: list[str] = []
    engine.start_timer("a", "x", 1.0, lambda: log.append("old x"))
    engine.start_timer("a", "y", 2.0, lambda: log.append("y"))
    engine.start_timer("a", "x", 2.0, lambda: log.append("x"))

    engine.run_until(5.0)

    assert log == ["y", "x"]


def test_stopped_timers_do_not_fire_and_owners_are_apart() -> None:
    engine = Engine()
    log: list[str] = []
    for owner in ("a", "b"):
        for name in ("x", "y"):
            engine.start_timer(owner, name, 1.0, partial(log.append, owner + name))
    engine.stop_timer("a", "x")
    engine.stop_timer("a", "never set")
    engine.stop_timers("b")

    engine.run_until(1.0)

    assert log == ["ay"]


def test_a_timer_may_set_itself_again() -> None:
    engine, times = Engine(), []

    def fire() -> None:
        times.append(engine.now_s)
        engine.start_timer("a", "tick", engine.now_s + 2.0, fire)

    engine.start_timer("a", "tick", 1.0, fire)
    engine.run_until(6.0)

    assert times == [1.0, 3.0, 5.0]


def test_nothing_after_the_limit_and_time_stops_there() -> None:
    engine = Engine()
    log: list[str] = []
    engine.at(5.0, 0, lambda: log.append("at"))
    engine.at(5.000001, 0, lambda: log.append("after"))

    engine.run_until(5.0)

    assert (log, engine.now_s, engine.next_due_s()) == (["at"], 5.0, 5.000001)


def test_stop_ends_the_run_between_instants() -> None:
    engine = Engine()
    log: list[float] = []
    for time_s in (1.0, 2.0, 3.0):
        engine.at(time_s, 0, lambda: log.append(engine.now_s))

    engine.run_until(9.0, stop=lambda: len(log) == 2)

    assert (log, engine.now_s) == ([1.0, 2.0], 2.0)


def test_clocks_hear_of_each_instant_before_anything_acts_and_the_observer_after_each_event() -> None:
    engine = Engine()
    log: list[str] = []
    engine.clocks.append(lambda now_s: log.append(f"clock {now_s}"))
    engine.after_event = lambda: log.append("after")
    engine.at(1.0, 0, lambda: log.append("event"))
    engine.at(1.0, 0, lambda: log.append("event"))

    engine.run_until(2.0)

    assert log == ["clock 1.0", "event", "after", "event", "after"]


def test_an_instant_without_end_is_refused() -> None:
    engine = Engine()

    def again() -> None:
        engine.at(engine.now_s, 0, again)

    engine.at(1.0, 0, again)
    with pytest.raises(ContractViolation, match=r"at 1\.0 s"):
        engine.run_until(2.0, events_max=100)
