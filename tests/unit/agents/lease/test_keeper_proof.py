"""Whatever the storage does, and whenever the keeper is killed: no host runs whose lease a reader calls proof."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from agents.lease.keeper import (
    FRESH_RENEWALS,
    Arm,
    Armed,
    Disarm,
    Due,
    Effect,
    End,
    Event,
    Failed,
    Keeper,
    Look,
    Looked,
    Pet,
    Stop,
    Terms,
    Write,
    Wrote,
)
from agents.lease.reader import Watch
from shared.values.lease import Lease, SeenLease
from tests.extent import examples

GRANULARITY_S = 1.0  # a watchdog counts whole seconds
STALL_S = 1.0  # at most so long between the look at the clock and the pet
NODE = "n1"


@dataclass(frozen=True)
class Storage:
    """What becomes of one write: how long it takes in renewals (inf: it hangs for ever), whether it ends well, when in
    this time others see it (None: never, unless it ends well), and how long the pet after it is held up."""

    took: float
    is_good: bool
    seen_frac: float | None
    stall_s: float


@dataclass(frozen=True)
class Plan:
    """A host, its storage write by write, and what is done to its keeper, in seconds from the beginning."""

    terms: Terms
    timeout_s: float
    writes: list[Storage]
    kills: list[tuple[float, float]]  # after the start of a process, and until the next one begins
    stop_s: float | None


class World:
    """Lives through a plan. `ran_until_s`: when the host was reset. `seen`: the leases as others see them, by time.
    `pets`: when the watchdog was petted, and when the write before had begun."""

    def __init__(self, plan: Plan, until_s: float) -> None:
        self._plan, self._until_s = plan, until_s
        self._writes = iter(plan.writes)
        self.ran_until_s = math.inf
        self.seen: list[tuple[float, Lease]] = []
        self.pets: list[tuple[float, float]] = []
        from_s, kills = 0.0, [*plan.kills]
        while from_s < min(until_s, self.ran_until_s):
            kill_s, pause_s = kills.pop(0) if kills else (math.inf, math.inf)
            self._live(from_s, from_s + kill_s)
            from_s += kill_s + pause_s

    def _live(self, from_s: float, killed_s: float) -> None:
        """One process of the keeper, until it is killed, ends or is reset with its host."""
        keeper = Keeper(self._plan.terms)
        now_s, is_open, begun_s = from_s, False, from_s
        answer: tuple[float, Event, float] | None = None
        todo: list[Effect] = keeper.start(now_s)
        while True:
            while todo:
                effect = todo.pop(0)
                if isinstance(effect, Look):
                    answer = (now_s, Looked(self.seen[-1][1] if self.seen else None), 0.0)
                elif isinstance(effect, Write):
                    begun_s = now_s
                    answer = self._written(effect.lease, now_s, min(killed_s, self._until_s))
                elif isinstance(effect, Arm):
                    is_open = True
                    self._petted(now_s)
                    todo += keeper.handle(Armed(self._plan.timeout_s), now_s)
                elif isinstance(effect, Pet):
                    stall_s = 0.0 if answer is None else answer[2]
                    if now_s + stall_s >= min(killed_s, self.ran_until_s):
                        break
                    now_s += stall_s
                    self.pets.append((now_s, begun_s))
                    self._petted(now_s)
                elif isinstance(effect, Disarm):
                    is_open, self.ran_until_s = False, math.inf
                elif isinstance(effect, End):
                    if is_open:
                        self._petted(now_s)  # by the kernel, which closes the device
                    return
            now_s, event, answer = self._next(keeper, now_s, answer)
            if now_s >= min(killed_s, self.ran_until_s, self._until_s):
                if is_open and killed_s < self.ran_until_s:
                    self._petted(killed_s)
                return
            todo = keeper.handle(event, now_s)

    def _next(
        self, keeper: Keeper, now_s: float, answer: tuple[float, Event, float] | None
    ) -> tuple[float, Event, tuple[float, Event, float] | None]:
        due_s = keeper.next_due_s
        moments: list[tuple[float, Event]] = [] if due_s is None else [(max(due_s, now_s), Due())]
        if self._plan.stop_s is not None and self._plan.stop_s > now_s:
            moments.append((self._plan.stop_s, Stop()))
        if answer is not None:
            moments.append(answer[:2])
        at_s, event = min(moments, key=lambda moment: moment[0], default=(math.inf, Due()))
        took_answer = answer is not None and event is answer[1]
        # The answer is kept for the stall of the pet that may follow it.
        return max(at_s, now_s), event, (math.inf, Due(), answer[2]) if took_answer and answer else answer

    def _written(self, lease: Lease, now_s: float, ended_s: float) -> tuple[float, Event, float]:
        kind = next(self._writes, Storage(0.01, True, 1.0, 0.0))
        done_s = now_s + kind.took * self._plan.terms.renew_s
        if kind.seen_frac is not None or (kind.is_good and done_s < ended_s):
            frac = 1.0 if kind.seen_frac is None else kind.seen_frac
            # One that was begun before the process or the host ended may arrive, but not after the next one.
            span_s = (done_s if done_s < math.inf else ended_s + 1.0) - now_s
            self.seen.append((now_s + frac * span_s, lease))
        return done_s, Wrote() if kind.is_good else Failed("no"), kind.stall_s

    def _petted(self, now_s: float) -> None:
        self.ran_until_s = now_s + self._plan.timeout_s + GRANULARITY_S

    def content(self, at_s: float) -> Lease | None:
        """The lease that others see at a moment: the newest that has arrived, and no older one afterwards."""
        arrived = [lease for seen_s, lease in self.seen if seen_s <= at_s]
        return arrived[-1] if arrived else None


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    renew_s = draw(st.sampled_from([0.5, 1.0, 5.0, 20.0]))
    expires_s = renew_s * draw(st.sampled_from([3.0, 4.0, 6.0]))
    storage = st.builds(
        Storage,
        took=st.one_of(
            st.floats(0.001, 0.5),
            st.floats(0.5, 4.0),
            st.floats(4.0, 30.0),
            st.just(math.inf),
            st.sampled_from([FRESH_RENEWALS - 1e-6, FRESH_RENEWALS]),
        ),
        is_good=st.sampled_from([True, True, True, False]),
        seen_frac=st.one_of(st.none(), st.floats(0.0, 1.0)),
        stall_s=st.floats(0.0, STALL_S),
    )
    kill = st.tuples(st.floats(0.01, 12.0), st.floats(0.01, 6.0))
    return Plan(
        terms=Terms(NODE, "boot-1", renew_s, expires_s),
        timeout_s=expires_s + draw(st.sampled_from([0.0, 0.0, 10.0])),
        writes=draw(st.lists(storage, max_size=25)),
        kills=[(at * renew_s, pause * renew_s) for at, pause in draw(st.lists(kill, max_size=3))],
        stop_s=draw(st.one_of(st.none(), st.floats(0.0, 40.0 * renew_s))),
    )


@st.composite
def cut_off_plans(draw: st.DrawFn) -> Plan:
    """The storage goes away after a renewal that is as slow as one may be, and others saw at once; the keeper is killed
    about when the watchdog would fire."""
    renew_s = draw(st.sampled_from([0.5, 5.0, 20.0]))
    expires_s = renew_s * draw(st.sampled_from([3.0, 6.0]))
    timeout_s = expires_s + draw(st.sampled_from([0.0, 10.0]))
    good = draw(st.integers(2, 6))
    last = Storage(draw(st.floats(1.0, 3.0)), True, draw(st.floats(0.0, 1.0)), draw(st.floats(0.0, STALL_S)))
    away = Storage(math.inf, True, None, 0.0)
    petted_s = (good - 1 + last.took) * renew_s + last.stall_s
    kill_s = petted_s + draw(st.floats(0.7, 1.1)) * (timeout_s + GRANULARITY_S)
    return Plan(
        terms=Terms(NODE, "boot-1", renew_s, expires_s),
        timeout_s=timeout_s,
        writes=[*[Storage(0.0001, True, 0.0, 0.0)] * good, last, *[away] * 20],
        kills=draw(st.sampled_from([[], [(kill_s, 0.01)]])),
        stop_s=None,
    )


def proofs(world: World, from_s: float, period_s: float, took_s: float, until_s: float) -> list[tuple[float, float]]:
    """When a reader that looks so often calls the lease proof: the beginnings and ends of its looks."""
    watch, found, begun_s = Watch(2.0 * (period_s + took_s)), [], from_s
    while begun_s < until_s:
        done_s = begun_s + took_s
        lease = world.content((begun_s + done_s) / 2.0)
        rows: tuple[SeenLease, ...] = watch.look({} if lease is None else {NODE: lease}, begun_s, done_s)
        found += [(begun_s, done_s) for row in rows if row.is_proof]
        begun_s = done_s + period_s
    return found


@settings(max_examples=examples(800))
@given(plan=plans() | cut_off_plans(), phase=st.floats(0.0, 1.0), took=st.sampled_from([0.001, 0.3, 1.5]))
def test_no_host_runs_whose_lease_is_proof(plan: Plan, phase: float, took: float) -> None:
    renew_s = plan.terms.renew_s
    until_s = 60.0 * renew_s + 4.0 * (2.0 * plan.timeout_s + 2.0 * renew_s)
    world = World(plan, until_s)

    for begun_s, _ in proofs(world, phase * renew_s, renew_s / 4.0, took * renew_s, until_s):
        assert world.ran_until_s <= begun_s


@settings(max_examples=examples(400))
@given(plan=plans() | cut_off_plans())
def test_the_watchdog_is_petted_only_after_a_fresh_renewal(plan: Plan) -> None:
    world = World(plan, 100.0 * plan.terms.renew_s)

    assert all(at_s - begun_s <= FRESH_RENEWALS * plan.terms.renew_s + STALL_S + 1e-9 for at_s, begun_s in world.pets)


def test_a_host_on_storage_that_works_is_never_reset_and_one_without_is_called_off() -> None:
    """So the property above is not empty."""
    terms = Terms(NODE, "boot-1", 5.0, 30.0)
    good = [Storage(0.01, True, 1.0, 0.0)] * 40

    healthy = World(Plan(terms, 30.0, good, [], None), 150.0)
    cut_off = World(Plan(terms, 30.0, [*good[:10], Storage(math.inf, True, None, 0.0)], [], None), 400.0)

    assert healthy.ran_until_s > 150.0
    assert proofs(healthy, 0.0, 5.0, 0.1, 150.0) == []
    assert cut_off.ran_until_s < 80.0
    first_s = proofs(cut_off, 0.0, 5.0, 0.1, 400.0)[0][0]
    assert cut_off.ran_until_s < first_s < 130.0


def test_a_keeper_killed_at_the_last_moment_is_still_reset_before_the_proof() -> None:
    """Given a write that hangs and a keeper killed just before the watchdog fires: the kernel pets once more."""
    terms = Terms(NODE, "boot-1", 5.0, 30.0)
    writes = [Storage(0.001, True, 1.0, 0.0)] * 3 + [Storage(math.inf, True, None, 0.0)] * 10

    world = World(Plan(terms, 30.0, writes, [(34.9, 1.0)], None), 400.0)

    assert 64.0 < world.ran_until_s < 67.0  # 31 s without the kill
    first_s = proofs(world, 0.0, 1.0, 0.01, 400.0)[0][0]
    assert world.ran_until_s < first_s
