"""Scripted faults of the in-process bus: a plan that is a value, and the dice that carry it out from its seed."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from shared.base.errors import InvalidValue
from sim_backend.bus.routing import topic_matches


class FaultKind(StrEnum):
    """What can go wrong with a publish (all but `PARTITION`) or with a user's connection."""

    DROP = "drop"
    DELAY = "delay"
    DUPLICATE = "duplicate"
    REORDER = "reorder"
    LOSE_CONFIRM = "lose-confirm"
    PARTITION = "partition"


@dataclass(frozen=True, slots=True)
class FaultRule:
    """What happens to publishes that match.

    `routing_key` and `user` (the publisher) are topic patterns, `exchange` is exact (None: any). Each match inside
    [from_s, until_s) is hit with `probability`, at most `count` times. `delay_s` is a (least, most) pair of seconds,
    drawn uniformly: how long DELAY holds a message and all that follow it to the same queue, how long REORDER holds
    it while others pass, how far behind the original the copy of DUPLICATE comes. DROP and LOSE_CONFIRM both end in
    `Confirm(ok=False)`, but LOSE_CONFIRM leaves the message in its queues.
    """

    kind: FaultKind
    exchange: str | None = None
    routing_key: str = "#"
    user: str = "#"
    probability: float = 1.0
    from_s: float = float("-inf")
    until_s: float = float("inf")
    count: int | None = None
    delay_s: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        if self.kind is FaultKind.PARTITION:
            raise InvalidValue("kind", self.kind, "a fault of single messages; a partition is a Partition")
        if not 0.0 <= self.probability <= 1.0:
            raise InvalidValue("probability", self.probability, "0 to 1")
        check_range("delay_s", self.delay_s)

    def covers(self, user: str, exchange: str, routing_key: str) -> bool:
        """Return whether the rule covers publishes of this user, exchange and routing key."""
        return (
            self.exchange in (None, exchange)
            and topic_matches(self.routing_key, routing_key)
            and topic_matches(self.user, user)
        )


@dataclass(frozen=True, slots=True)
class Partition:
    """Users (topic patterns) cut off from the broker during [from_s, until_s).

    Nothing they send arrives, nothing reaches them. Broker and user give the connection up after the plan's
    `heartbeat_s`, at the latest when the partition ends: the user gets `Lost`, its unacknowledged deliveries return
    to their queues, and it cannot connect again before `until_s`.
    """

    users: tuple[str, ...]
    from_s: float
    until_s: float

    def __post_init__(self) -> None:
        if not self.from_s < self.until_s:
            raise InvalidValue("until_s", self.until_s, f"more than from_s = {self.from_s}")

    def cuts(self, user: str) -> bool:
        """Return whether the partition cuts off the user."""
        return any(topic_matches(pattern, user) for pattern in self.users)


@dataclass(frozen=True, slots=True)
class BusFaults:
    """A plan of faults; the same plan and the same calls give the same run.

    `latency_s`: (least, most) seconds from publisher to queue, drawn uniformly, order kept. `confirm_timeout_s`: when
    a publisher gives up waiting for a confirm. `heartbeat_s`: see `Partition`.
    """

    seed: int = 0
    rules: tuple[FaultRule, ...] = ()
    partitions: tuple[Partition, ...] = ()
    latency_s: tuple[float, float] = (0.0, 0.0)
    confirm_timeout_s: float = 5.0
    heartbeat_s: float = 20.0

    def __post_init__(self) -> None:
        check_range("latency_s", self.latency_s)
        for field in ("confirm_timeout_s", "heartbeat_s"):
            if not getattr(self, field) >= 0.0:
                raise InvalidValue(field, getattr(self, field), "0 or more")


def check_range(field: str, value: tuple[float, float]) -> None:
    """Raises InvalidValue unless the pair is 0 <= least <= most."""
    least, most = value
    if not 0.0 <= least <= most:
        raise InvalidValue(field, value, "a pair 0 <= least <= most")


@dataclass(slots=True)
class Fate:
    """What happens to one publish. `delay_s` from publisher to queue; `loose`: others may pass it; `copy_after_s`:
    a second copy comes that much later (None: no copy)."""

    delay_s: float = 0.0
    dropped: bool = False
    confirm_lost: bool = False
    loose: bool = False
    copy_after_s: float | None = None


class Dice:
    """Decides the fate of each publish by a plan. Counts in `counts` what it did."""

    def __init__(self, plan: BusFaults) -> None:
        self.counts: Counter[FaultKind] = Counter()
        self._plan = plan
        self._rng = random.Random(plan.seed)
        self._left = [rule.count for rule in plan.rules]
        self._rules: dict[tuple[str, str, str], tuple[int, ...]] = {}

    def fate(self, user: str, exchange: str, routing_key: str, now_s: float) -> Fate:
        """Return the fate of a publish: every rule that covers it is applied, in the plan's order, until one drops
        it."""
        fate = Fate(self._draw(self._plan.latency_s))
        for index in self._concerned(user, exchange, routing_key):
            if self._hits(index, now_s):
                self._apply(self._plan.rules[index], fate)
                if fate.dropped:
                    break
        return fate

    def _concerned(self, user: str, exchange: str, routing_key: str) -> tuple[int, ...]:
        key = (user, exchange, routing_key)
        found = self._rules.get(key)
        if found is None:
            found = tuple(i for i, rule in enumerate(self._plan.rules) if rule.covers(*key))
            self._rules[key] = found
        return found

    def _hits(self, index: int, now_s: float) -> bool:
        rule, left = self._plan.rules[index], self._left[index]
        if left == 0 or not rule.from_s <= now_s < rule.until_s:
            return False
        if rule.probability < 1.0 and self._rng.random() >= rule.probability:
            return False
        if left is not None:
            self._left[index] = left - 1
        self.counts[rule.kind] += 1
        return True

    def _apply(self, rule: FaultRule, fate: Fate) -> None:
        match rule.kind:
            case FaultKind.DROP:
                fate.dropped = True
            case FaultKind.LOSE_CONFIRM:
                fate.confirm_lost = True
            case FaultKind.DUPLICATE:
                fate.copy_after_s = self._draw(rule.delay_s)
            case FaultKind.DELAY:
                fate.delay_s += self._draw(rule.delay_s)
            case FaultKind.REORDER:
                fate.delay_s += self._draw(rule.delay_s)
                fate.loose = True

    def _draw(self, bounds: tuple[float, float]) -> float:
        least, most = bounds
        return least if least == most else self._rng.uniform(least, most)
