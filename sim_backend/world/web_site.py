"""The true behaviour of a web application: its demand, the throughput of its instances and its response times.

The entry router is sampled at intervals ("looks"). Between two looks arrivals are evenly spaced. They and queued
requests go to the executing instances, such that all have the same utilization relative to the CPU they can have. Work
that is not done waits at the router. Requests that would wait longer than `queue_s`, and all requests while there is no
instance, are rejected.

A router that discovers the instances itself resends the requests of an instance that disappears to others. A router
with configured instances uses exactly those. If an instance disappears without draining, its requests since the last
look are lost. If it is stopped while draining, its unanswered requests are lost.

Mean response time of a flow = t_min + excess + the wait at the router. The excess is that of one queue for all
instances, with W the CPU that they can have and L the CPU in use: processor sharing d / (W - L), or, as no request runs
faster than one vCPU of p MHz, Sakasegawa's approximation of M/M/m for m = W / p above p.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from shared.ports.effects import Backend
from shared.values.jobs import INSTANCE_SEPARATOR
from shared.values.web_app import FlowSample, ModelForm
from sim_backend.world.demand import Demand
from sim_backend.world.world import World

ANSWER_LEAST_S = 1.0  # so long, at least, an instance has requests that it was given before
BUSY_MAX = 0.98  # part of its CPU that an instance can use: beyond it requests wait at the router


@dataclass(frozen=True, slots=True)
class TrueFlow:
    """A flow as it really is. `percentile`: which one the balancer measures too (0: none)."""

    name: str
    demand: Demand
    work_mcycles: float
    t_min_s: float = 0.0
    percentile: float = 0.0


@dataclass(frozen=True, slots=True)
class TrueWeb:
    """An application as it really is. response_factor: how many times as long as its form says the part of a response
    time is that CPU shortens. noise_frac: log-deviation of measured response times; arrivals vary as those of a
    Poisson process if `chance`, else they come at the rate of the demand exactly. The seed is that of both."""

    flows: tuple[TrueFlow, ...]
    form: ModelForm = ModelForm.MULTI_SERVER
    queue_s: float = 10.0
    response_factor: float = 1.0
    noise_frac: float = 0.02
    chance: bool = True
    seed: int = 0


@dataclass(frozen=True, slots=True)
class SiteSample:
    """The truth of the time up to `at_s`: instances and the CPU that they could have and used at its end (MHz), mean
    response time by flow (s; None: nothing was answered), requests answered and rejected a second over all flows, what
    was measured of each, and the CPU that what arrived takes (MHz)."""

    at_s: float
    instances: int
    available_mhz: float
    used_mhz: float
    mean_s: tuple[float | None, ...]
    served_per_s: float
    rejected_per_s: float
    samples: tuple[FlowSample, ...] = ()
    load_mhz: float = 0.0


@dataclass(slots=True)
class _Lane:
    """One flow: arrivals a second until the next look, requests waiting, and totals that whole counts come from."""

    flow: TrueFlow
    rate_per_s: float = 0.0
    waiting: float = 0.0
    offered: float = 0.0
    served: float = 0.0
    rejected: float = 0.0
    told: dict[str, int] = field(default_factory=dict)

    def news(self, what: str) -> int:
        """Return the number of whole requests in a total that were not returned before."""
        total = math.floor(float(getattr(self, what)) + 1e-9)
        news = total - self.told.get(what, 0)
        self.told[what] = total
        return news


class WebSite:
    """Application `app`, whose instances are the guests app#0, app#1, ... of a world. `lost`: requests that an instance
    was given and never answered. `is_ill`: whether an instance does not serve although it executes."""

    def __init__(self, app: str, truth: TrueWeb, world: World) -> None:
        self.app, self.truth = app, truth
        self.is_ill: Callable[[str], bool] = _well
        self.looks: list[SiteSample] = []
        self.lost = 0.0
        self._world = world
        self._lanes = [_Lane(flow) for flow in truth.flows]
        self._chance = Random(truth.seed)
        self._since_s: float | None = None
        self._available_mhz = 0.0  # at the last look
        self._owed_mcycles = 0.0  # CPU that answered requests have not used yet
        self._done: dict[str, float] = {}  # work of each instance when last looked at
        self._routes: frozenset[str] | None = None  # None: it finds them by itself
        self._given: dict[str, float] = {}  # part of the requests that each instance gets
        self._draining: dict[str, tuple[float, float]] = {}  # until when it has requests, and how many

    def look(self, now_s: float, next_s: float) -> tuple[FlowSample, ...]:
        """Return the measurements since the last look (nothing at the first), and let the instances work until the
        next. The world must be up to date with `now_s`."""
        samples: tuple[FlowSample, ...] = ()
        executing = self._serving(now_s)
        vms = executing if self._routes is None else [vm for vm in executing if vm in self._routes]
        if self._since_s is not None and now_s > self._since_s:
            samples = self._close(vms, self._since_s, now_s)
        self._since_s = now_s
        self._lose_undrained(executing, now_s)
        self._begin(vms, now_s, next_s)
        return samples

    def _serving(self, now_s: float) -> list[str]:
        """Instances that execute and are not ill; those that are do nothing."""
        executing = self._world.executing(self.app + INSTANCE_SEPARATOR)
        for vm in executing:
            if self.is_ill(vm):
                self._world.ask(vm, 0.0, now_s)
        return [vm for vm in executing if not self.is_ill(vm)]

    def route(self, backends: Sequence[Backend], now_s: float, next_s: float) -> tuple[FlowSample, ...]:
        """Take a look, and from now on send requests to exactly these instances."""
        samples = self.look(now_s, next_s)
        answer_s = max(
            [ANSWER_LEAST_S, *(mean for look in self.looks[-1:] for mean in look.mean_s if mean is not None)]
        )
        per_s = math.fsum(lane.rate_per_s for lane in self._lanes)
        for backend in backends:
            if backend.drain and backend.vm in self._given:
                in_hand = per_s * self._given[backend.vm] * answer_s
                self._draining.setdefault(backend.vm, (now_s + answer_s, in_hand))
        left = {backend.vm for backend in backends if backend.drain}
        self._draining = {vm: figures for vm, figures in self._draining.items() if vm in left}
        self._routes = frozenset(backend.vm for backend in backends if not backend.drain)
        for vm in self._world.executing(self.app + INSTANCE_SEPARATOR):
            if vm not in self._routes:
                self._world.ask(vm, 0.0, now_s)
        self.look(now_s, next_s)
        return samples

    def is_drained(self, vm: str, now_s: float) -> bool:
        """Return whether an instance without new requests has answered its earlier ones."""
        return now_s >= self._draining.get(vm, (0.0, 0.0))[0]

    def _lose_undrained(self, executing: Sequence[str], now_s: float) -> None:
        for vm in [vm for vm in self._draining if vm not in executing]:
            until_s, in_hand = self._draining.pop(vm)
            self.lost += in_hand if now_s < until_s else 0.0

    # --- what was ------------------------------------------------------------------------------------------------

    def _close(self, vms: Sequence[str], since_s: float, now_s: float) -> tuple[FlowSample, ...]:
        window_s = now_s - since_s
        before_mcycles = self._waiting_mcycles()
        done_mcycles = self._work_done(vms, now_s)
        for lane in self._lanes:
            arrived = lane.rate_per_s * window_s
            lane.offered += arrived
            lane.waiting += arrived - self._lose(lane, arrived, vms)
        todo = self._waiting_mcycles()
        available_mhz = math.fsum(self._world.available_mhz(vm) for vm in vms)
        answered = self._answered(todo, done_mcycles, min(self._available_mhz, available_mhz) * window_s)
        served = [lane.waiting * (answered / todo if todo > 0.0 else 0.0) for lane in self._lanes]
        for lane, count in zip(self._lanes, served, strict=True):
            lane.served += count
            lane.waiting -= count
        rejected = self._reject(available_mhz)
        busy_mhz = answered / window_s
        wait_s = (before_mcycles + self._waiting_mcycles()) / 2 / busy_mhz if busy_mhz > 0.0 else 0.0
        means = [
            lane.flow.t_min_s + wait_s + self._excess_s(lane.flow.work_mcycles, vms, available_mhz, busy_mhz)
            if count > 0.0 and vms
            else None
            for lane, count in zip(self._lanes, served, strict=True)
        ]
        per_s = sum(served) / window_s, rejected / window_s
        samples = tuple(self._sample(lane, mean, window_s) for lane, mean in zip(self._lanes, means, strict=True))
        load_mhz = math.fsum(lane.rate_per_s * lane.flow.work_mcycles for lane in self._lanes)
        self.looks.append(
            SiteSample(
                now_s,
                len(vms),
                available_mhz,
                used_mhz=done_mcycles / window_s,
                mean_s=tuple(means),
                served_per_s=per_s[0],
                rejected_per_s=per_s[1],
                samples=samples,
                load_mhz=load_mhz,
            )
        )
        return samples

    def best_s(self, load_mhz: float, mhz: float, vcpu_mhz: float) -> tuple[float, ...]:
        """Return the mean response time of each flow (s) with so much CPU (MHz) and nothing queued; inf where the load
        is more than can be used of it."""
        if load_mhz >= BUSY_MAX * mhz:
            return (math.inf,) * len(self._lanes)
        return tuple(
            lane.flow.t_min_s + self._excess_of(lane.flow.work_mcycles, mhz, load_mhz, vcpu_mhz) for lane in self._lanes
        )

    def _lose(self, lane: _Lane, arrived: float, vms: Sequence[str]) -> float:
        """Return the number of arrived requests that were sent to instances that have disappeared; they are answered
        with errors."""
        if self._routes is None:
            return 0.0
        lost = arrived * math.fsum(part for vm, part in self._given.items() if vm not in vms)
        lane.rejected += lost
        self.lost += lost
        return lost

    def _answered(self, todo: float, done_mcycles: float, could_mcycles: float) -> float:
        """Mcycles of requests answered. Where an instance did not get through its part and others could have, the
        router sent it to them in time; the CPU for that is used later."""
        paid = min(self._owed_mcycles, done_mcycles)
        self._owed_mcycles -= paid
        if todo > BUSY_MAX * could_mcycles:
            return min(todo, done_mcycles - paid)
        self._owed_mcycles += max(0.0, todo - (done_mcycles - paid))
        return todo

    def _work_done(self, vms: Sequence[str], now_s: float) -> float:
        """Return the work of all instances since the last look. Work of an instance that has disappeared is lost: its
        requests are resent."""
        done = {vm: self._world.done_without_task_mcycles(vm, now_s) for vm in vms}
        last, self._done = self._done, done
        # An instance that came to life again counts from 0.
        return math.fsum(work - (last.get(vm, 0.0) if last.get(vm, 0.0) <= work else 0.0) for vm, work in done.items())

    def _reject(self, available_mhz: float) -> float:
        """Turn away what would wait too long; returns how many."""
        waiting = self._waiting_mcycles()
        most = self.truth.queue_s * available_mhz
        if waiting <= most:
            return 0.0
        away = 1.0 - most / waiting
        total = 0.0
        for lane in self._lanes:
            count = lane.waiting * away
            lane.waiting -= count
            lane.rejected += count
            total += count
        return total

    def _excess_s(self, work_mcycles: float, vms: Sequence[str], available_mhz: float, used_mhz: float) -> float:
        if available_mhz <= 0.0:
            return 0.0
        vcpu_mhz = math.fsum(self._world.core_mhz(vm) for vm in vms) / len(vms)
        return self._excess_of(work_mcycles, available_mhz, used_mhz, vcpu_mhz)

    def _excess_of(self, work_mcycles: float, mhz: float, load_mhz: float, vcpu_mhz: float) -> float:
        return self.truth.response_factor * excess_s(self.truth.form, work_mcycles, mhz, load_mhz, vcpu_mhz)

    def _sample(self, lane: _Lane, mean_s: float | None, window_s: float) -> FlowSample:
        flow = lane.flow
        mean, percentile = 0.0, 0.0
        if mean_s is not None:
            mean = mean_s * math.exp(self.truth.noise_frac * self._chance.gauss(0.0, 1.0))
            if flow.percentile > 0.0:  # an exponential tail
                percentile = flow.t_min_s - max(0.0, mean - flow.t_min_s) * math.log1p(-flow.percentile)
        offered, served, rejected = (lane.news(what) for what in ("offered", "served", "rejected"))
        if not served:
            mean = percentile = 0.0
        queued = math.floor(lane.waiting + 0.5)
        return FlowSample(
            flow.name,
            window_s,
            offered,
            served=served,
            rejected=rejected,
            queued=queued,
            mean_s=mean,
            percentile_s=percentile,
        )

    # --- what comes ----------------------------------------------------------------------------------------------

    def _begin(self, vms: Sequence[str], now_s: float, next_s: float) -> None:
        length_s = next_s - now_s
        for lane in self._lanes:
            lane.rate_per_s = self._arrivals(lane.flow.demand((now_s + next_s) / 2) * length_s) / length_s
        available = {vm: self._world.available_mhz(vm) for vm in vms}
        total_mhz = self._available_mhz = math.fsum(available.values())
        asked_mhz = (self._waiting_mcycles() + self._owed_mcycles) / length_s
        asked_mhz += math.fsum(lane.rate_per_s * lane.flow.work_mcycles for lane in self._lanes)
        busy = min(BUSY_MAX, asked_mhz / total_mhz) if total_mhz > 0.0 else 0.0
        self._given = {vm: mhz / total_mhz if total_mhz > 0.0 else 0.0 for vm, mhz in available.items()}
        for vm, mhz in available.items():
            self._done.setdefault(vm, self._world.done_without_task_mcycles(vm, now_s))
            self._world.ask(vm, busy * mhz, now_s)

    def _arrivals(self, expected: float) -> float:
        if not self.truth.chance:
            return expected
        return max(0.0, round(expected + math.sqrt(expected) * self._chance.gauss(0.0, 1.0)))

    def _waiting_mcycles(self) -> float:
        return math.fsum(lane.waiting * lane.flow.work_mcycles for lane in self._lanes)


def excess_s(form: ModelForm, work_mcycles: float, available_mhz: float, used_mhz: float, vcpu_mhz: float) -> float:
    """Return the mean time in s that one queue before all instances adds to the shortest (see above)."""
    busy = min(used_mhz / available_mhz, BUSY_MAX)
    servers = available_mhz / vcpu_mhz
    if form is not ModelForm.MULTI_SERVER or servers <= 1.0:
        return work_mcycles / (available_mhz * (1.0 - busy))
    waits: float = busy ** (math.sqrt(2.0 * (servers + 1.0)) - 1.0) / (servers * (1.0 - busy))
    return work_mcycles / vcpu_mhz * (1.0 + waits)


def _well(_vm: str) -> bool:
    return False
