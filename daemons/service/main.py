"""The controller as a process: `trimtab-controller` runs the core on its store, broker and a worker that decides."""

from __future__ import annotations

import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from daemons.config.controller import ControllerConfig
from daemons.controller.core.controller import Controller
from daemons.controller.core.leadership import Role
from daemons.decision.pipeline import PrepareRequest
from daemons.drivers.fencing import check_fencing, with_fencing
from daemons.drivers.load_balancers import make_balancer
from daemons.drivers.load_balancers.calling import Caller
from daemons.drivers.notifiers import Sender, make_channels, notify_of
from daemons.drivers.power import make_driver
from daemons.drivers.price_feed import PriceFeed, feed_of, prices_of
from daemons.drivers.web_metrics import Readers
from daemons.service.assurance_settings import admission_of, assurance_of
from daemons.service.history_filter import is_noted
from daemons.service.meter import ControllerMeter
from daemons.service.power_settings import draws_of
from daemons.service.recorder import Recorder
from daemons.service.settings_from_config import choice_of
from daemons.service.settings_from_config import settings_of as settings_of
from daemons.service.table_files import DEFAULT_FOLDER
from daemons.service.table_server import TableServer
from daemons.service.window_settings import windows_of
from daemons.service.worker import Worker
from daemons.store import Batch, History, Pruned, Retention, SqlStore, Steps
from daemons.store.engine import parse_url
from daemons.values.settings import PolicyChoice
from shared.base.errors import InvalidInput, Problem, StaleTerm, StoreUnavailable, TransientError, UnknownPolicy
from shared.config.common import Metrics
from shared.metrics import exposition
from shared.metrics.exposition import MetricsServer
from shared.ports import effects as fx
from shared.ports.bus import Bus
from shared.ports.controller import LoadBalancer, NotifyChannel, PowerAnswer, PowerDriver, Store
from shared.ports.plugins import find_policy
from shared.protocol import topology
from shared.protocol.messages import Happened
from shared.runtime import startup
from shared.runtime.connection_thread import Buried, ConnectionSpec
from shared.runtime.lanes import Lane
from shared.runtime.shell import Shell, Times
from shared.runtime.systemd_notify import Notifier

PREFETCH = 1000
DEFAULT_CONFIG = "/etc/trimtab/controller.toml"
NO_POWER = "no power driver"
NO_FEED = "no file of prices is configured"
NO_TABLES = "nobody computes tables"
HISTORY_S = 5.0  # how often what has gathered goes to the store
FIRST_PRUNE_S = 300.0  # after the start: a controller that takes over has other things to write first
PRUNE_S = 86_400.0
BOUND_S = 3_600.0

MakeStore = Callable[[str, Retention], Store]


class Decider(Protocol):
    """What computes decisions; see `daemons.service.worker.Worker`."""

    def warm(self) -> bool:
        """Be ready for the first request."""
        ...

    def compute(self, request: Any, limit_s: float) -> tuple[Any, str]:
        """Return the outcome, or None and why there is none."""
        ...

    def close(self) -> None:
        """End, also in the middle of a computation."""
        ...


@runtime_checkable
class Archive(Protocol):
    """A store that also keeps history; see `daemons.store.SqlStore`. All may raise StoreUnavailable."""

    def append(self, batch: Batch) -> None:
        """Store what has gathered, all or nothing."""
        ...

    def prune_steps(self, keep: Retention, now_s: float) -> Steps:
        """Delete rows that are older or more than `keep` allows at `now_s`, in short steps."""
        ...

    def bound_steps(self, keep: Retention) -> Steps:
        """Delete the oldest snapshots beyond the limit, also in short steps."""
        ...


class _Pruning:
    """A pruning run. `what` is pruned; `counts`: rows deleted so far; `after`: the input for the core afterwards."""

    def __init__(self, what: str, steps: Steps, after: fx.Pruned | None = None) -> None:
        self.what, self.counts, self.after = what, Counter[str](), after
        self._steps = steps

    def step(self) -> bool:
        """Do the next step; false when there is none."""
        for name, rows in self._steps:
            if name and rows:
                self.counts[name] += rows
            return True
        return False

    def counted(self) -> dict[str, int]:
        """Return the number of deleted rows, for the log."""
        return asdict(Pruned(**self.counts)) if self.what == "history" else dict(self.counts)


class ControllerShell(Shell):
    """Runs a controller's core.

    The store is written in one lane, in order. Decisions are computed in another, one at a time, and their missing
    tables in a third, by `preparer`. Each node has a lane of its own while it is fenced or woken. Web applications
    share a fixed number of lanes, in which their counters are read and their balancers updated. While the controller is
    the leader, and the store is an `Archive`, history is written every five seconds, after each audited request and at
    the end. Data older than `keep` are deleted once a day; inputs of decisions beyond its limit once an hour. Both run
    in steps, between which other writes continue.
    """

    def __init__(
        self,
        core: Controller,
        link: ConnectionSpec,
        store: Store,
        decider: Decider,
        power: PowerDriver | None = None,
        *,
        seed: int,
        clock: Times | None = None,
        notifier: Notifier | None = None,
        keep: Retention | None = None,
        preparer: Decider | None = None,
        feed: PriceFeed | None = None,
        balancer: LoadBalancer | None = None,
        channels: Mapping[str, NotifyChannel] | None = None,
        first_prune_s: float = FIRST_PRUNE_S,
    ) -> None:
        super().__init__("controller", core, link, seed, clock, notifier, {"controller": core.name})
        self.controller = core
        self._store = store
        self._decider = decider
        self._preparer = preparer
        self._power = power
        self._feed_of_prices = feed
        self._store_lane = self.lane("store")
        self._decide_lane = self.lane("decide")
        self._prepare_lane = self.lane("prepare")
        self._price_lane = self.lane("prices")
        self._power_lanes: dict[str, tuple[Lane, int]] = {}  # with how much is in progress in it
        self._archive = store if isinstance(store, Archive) else None
        self.keep = keep or Retention()
        self._history = History()
        self._appending = self._pruning = False
        self._append_s = self.clock.monotonic_s() + HISTORY_S
        self._prune_s = self._bound_s = self.clock.monotonic_s() + first_prune_s
        self._carry |= Caller(balancer, self.lane, self.post, self.clock).carries
        self._carry |= Sender(channels or {}, self.lane, self.post).carries
        self._carry |= {
            fx.Declare: self._declare,
            fx.Write: lambda effect: self._store_lane.do(partial(self._write, effect)),
            fx.TakeLead: lambda effect: self._store_lane.do(partial(self._take_lead, effect)),
            fx.Compute: self._begin_to_compute,
            fx.Power: self._ask_power,
            fx.Scrape: Readers(self.lane, self.post, self.clock).scrape,
            fx.Audited: self._audited,
            fx.Record: Recorder(
                decider, self._decide_lane.do, self.ask, self._history.snapshot, lambda: self.exit_status is not None
            ),
            fx.ReadPrices: lambda _: self._price_lane.do(self._read_prices),
        }
        self._decide_lane.do(self._warm)

    def status(self) -> str:
        """Return the role, the term and the broker's state."""
        leadership = self.controller.leadership
        term = f", term {leadership.term}" if leadership.term else ""
        return f"{leadership.role.value}{term}, {super().status()}"

    def _close(self) -> None:
        self._decider.close()
        if self._preparer is not None:
            self._preparer.close()
        if self._leads():
            self._append(math.inf)
        super()._close()

    # --- history ----------------------------------------------------------------------------------------------------

    def _leads(self) -> bool:
        return self.controller.leadership.role is Role.LEADING

    def _note(self, event: fx.Input, now_s: float) -> None:
        """Note the input for history, also while leadership is being taken: inputs that come then are held and
        processed later."""
        core = self.controller
        if self._archive is not None and core.leadership.role is not Role.STANDBY and is_noted(event, core, now_s):
            self._history.input(event, now_s)

    def _buried(self, buried: Buried) -> None:
        """Handle buried deliveries as every shell does, and notify the core, which knows the subject of the alarm."""
        super()._buried(buried)
        self._feed(fx.Unreadable(buried.sender, buried.reason, buried.count, buried.queue, buried.unanswered))

    def _publish(self, effect: fx.Publish) -> bool:
        """Publish as every shell does, and record it: orders when they are sent, events in any case."""
        sent = super()._publish(effect)
        if self._archive is not None and (sent or isinstance(effect.message, Happened)):
            self._history.effect(effect, self.clock.now_s())
        return sent

    def _audited(self, effect: fx.Audited) -> None:
        """Noted, and stored at the next turn: its request is acknowledged and does not come again."""
        self._history.audit(effect)
        self._append_s = self.clock.monotonic_s()

    def _tend(self) -> None:
        super()._tend()
        if self._archive is None or not self._leads():
            return
        now_s = self.clock.monotonic_s()
        if now_s >= self._append_s and not self._appending:
            self._append_s = now_s + HISTORY_S
            self._append(self.clock.now_s())
        if self._pruning or now_s < min(self._prune_s, self._bound_s):
            return
        self._pruning, self._bound_s = True, now_s + BOUND_S
        if now_s >= self._prune_s:
            self._prune_s = now_s + PRUNE_S
            wall_s = self.clock.now_s()
            forgotten = fx.Pruned(self.keep.jobs_before_s(wall_s))
            work = _Pruning("history", self._archive.prune_steps(self.keep, wall_s), forgotten)
        else:
            work = _Pruning("snapshots", self._archive.bound_steps(self.keep))
        self._store_lane.do(partial(self._prune, work))

    def _append(self, until_s: float) -> None:
        """Have everything stored that is complete at `until_s`."""
        if self._archive is not None and (batch := self._history.take(until_s)):
            self._appending = True
            self._store_lane.do(partial(self._append_batch, self._archive, batch))

    def _appended(self, left: Batch | None = None) -> None:
        """Handle the store's answer; `left` could not be stored."""
        self._appending = False
        if left is not None:
            self._history.give_back(left)

    # --- in lanes ---------------------------------------------------------------------------------------------------

    def _write(self, effect: fx.Write) -> None:
        try:
            self._store.write(effect.term, effect.records)
        except StaleTerm as error:
            answer = fx.Written(effect.write_id, False, True, str(error))
        except StoreUnavailable as error:
            answer = fx.Written(effect.write_id, False, False, str(error))
        else:
            answer = fx.Written(effect.write_id, True)
        self.post(answer)

    def _take_lead(self, effect: fx.TakeLead) -> None:
        try:
            taken = self._store.take_lead(effect.controller)
        except StoreUnavailable as error:
            self.log.error("the store does not answer", error=str(error))
            taken = fx.LeadTaken(0)
        self.post(taken)

    def _append_batch(self, archive: Archive, batch: Batch) -> None:
        try:
            archive.append(batch)
        except StoreUnavailable as error:
            self.log.error("history not stored yet", dropped=self._history.dropped, error=str(error))
            self.ask(partial(self._appended, batch))
        else:
            self.ask(self._appended)

    def _prune(self, work: _Pruning) -> None:
        """Do one step and put the next behind what was to be written meanwhile."""
        if self.exit_status is not None:
            return
        try:
            more = work.step()
        except StoreUnavailable as error:
            self.log.error(f"{work.what} not pruned", error=str(error))
            self.ask(self._pruned)
            return
        if more:
            self._store_lane.do(partial(self._prune, work))
            return
        if work.after is not None:
            self.post(work.after)
        if work.what == "history" or work.counts:
            self.log.info(f"{work.what} pruned", **work.counted())
        self.ask(self._pruned)

    def _pruned(self) -> None:
        self._pruning = False

    def _warm(self) -> None:
        if self.exit_status is None:
            self._decider.warm()

    def _begin_to_compute(self, effect: fx.Compute) -> None:
        if not isinstance(effect.request, PrepareRequest):
            self._decide_lane.do(partial(self._compute, self._decider, effect))
        elif self._preparer is not None:
            self._prepare_lane.do(partial(self._compute, self._preparer, effect))
        else:
            self.post(fx.Computed(effect.compute_id, None, NO_TABLES))

    def _compute(self, by: Decider, effect: fx.Compute) -> None:
        if self.exit_status is None:
            outcome, error = by.compute(effect.request, effect.limit_s)
            self.post(fx.Computed(effect.compute_id, outcome, error))

    def _ask_power(self, effect: fx.Power) -> None:
        if self._power is None:
            self.post(fx.PowerDone(effect.node, effect.operation, False, NO_POWER))
            return
        lane, in_progress = self._power_lanes.get(effect.node) or (self.lane(f"power {effect.node}"), 0)
        self._power_lanes[effect.node] = (lane, in_progress + 1)
        lane.do(partial(self._operate_power, self._power, effect))

    def _power_operated(self, node: str) -> None:
        """Handle the end of an operation: a lane without further work ends, since its node may be gone."""
        lane, in_progress = self._power_lanes.pop(node)
        if in_progress > 1:
            self._power_lanes[node] = (lane, in_progress - 1)
        else:
            self.end_lane(lane)

    def _read_prices(self) -> None:
        feed = self._feed_of_prices
        self.post(fx.PricesRead(error=NO_FEED) if feed is None else feed.read())

    def _operate_power(self, power: PowerDriver, effect: fx.Power) -> None:
        try:
            answer = power.operate(effect.operation, effect.node, effect.mac_addresses)
        except TransientError as error:
            answer = PowerAnswer(False, str(error))
        self.post(fx.PowerDone(effect.node, effect.operation, answer.ok, answer.detail))
        self.ask(partial(self._power_operated, effect.node))


# --- the composition root ------------------------------------------------------------------------------------------


def link_of(name: str, connect: startup.Connect) -> ConnectionSpec:
    """Return a controller's link: its own queues of reports and of questions, and the one queue that all controllers
    share."""
    reports, questions = topology.report_queue(name), topology.question_queue(name)

    def set_up(bus: Bus) -> None:
        bus.declare(topology.CONTROLLER)
        bus.declare(topology.DEAD_LETTERS)
        bus.declare(reports)
        bus.declare(questions)
        bus.consume(reports.name, PREFETCH, acknowledged=False)
        bus.consume(questions.name, PREFETCH, acknowledged=False)
        bus.consume(topology.CONTROLLER_QUEUE, PREFETCH)

    return ConnectionSpec(connect, set_up, frozenset({reports.name, questions.name}))


def name_of(config: ControllerConfig) -> str:
    """Return the controller's name: as configured, else from the broker's user, else the host's with the process id.
    Raises InvalidInput when the broker's user is another controller's."""
    user = startup.bus_user(config.bus.url)
    own = user.removeprefix(topology.CONTROLLER_USER_PREFIX) if user.startswith(topology.CONTROLLER_USER_PREFIX) else ""
    name = config.name or own or f"{startup.host_name()}-{os.getpid()}"
    if user and user != topology.CONTROLLER_USER_PREFIX + name:
        expected = repr(topology.CONTROLLER_USER_PREFIX + (config.name or "NAME"))
        raise InvalidInput(Problem("bus.url", f"has the user {user!r}", expected))
    return name


def open_store(url: str, keep: Retention) -> SqlStore:
    """Open the store of a URL; a new leader gets only retained data from it."""
    return SqlStore(url, keep=keep)


def build(
    config: ControllerConfig,
    connect: startup.Connect,
    seed: int,
    make_store: MakeStore = open_store,
    decider: Decider | None = None,
    power: PowerDriver | None = None,
    first_prune_s: float = FIRST_PRUNE_S,
) -> ControllerShell:
    """Build a controller's shell from its configuration. Raises InvalidInput for a policy or parameters that cannot
    work."""
    name, tables = name_of(config), TableServer(tables_folder(config.store.url))
    balancer, keep = make_balancer(config.balancer), Retention(**asdict(config.store.retention))
    core = Controller(name, settings_of(config, power, balancer.measures))
    return ControllerShell(
        core,
        link_of(name, connect),
        make_store(config.store.url, keep),
        Worker(tables) if decider is None else decider,
        power,
        seed=seed,
        notifier=Notifier(),
        keep=keep,
        preparer=Worker(tables),
        feed=feed_of(config.prices),
        balancer=balancer,
        channels=make_channels(config.notify),
        first_prune_s=first_prune_s,
    )


def tables_folder(store_url: str) -> Path:
    """Return the folder of tables: beside the file of the store, else in the default folder of a package."""
    url = parse_url(store_url)
    beside = Path(url.database or "").parent / Path(DEFAULT_FOLDER).name
    return beside if url.drivername == "sqlite" else Path(DEFAULT_FOLDER)


def check(config: ControllerConfig) -> None:
    """Raise InvalidInput with everything that a controller could not start with, but for a broker that is not named."""
    policies = config.policies
    looks: tuple[Callable[[], object], ...] = (
        lambda: name_of(config),
        lambda: config.bus.url and startup.broker(config.bus.url, config.bus.tls, config.bus.plain),
        lambda: _check_policy("placement", choice_of(policies, policies.placement)),
        lambda: _check_policy("provisioning", choice_of(policies, policies.provisioning)),
        lambda: _check_policy("admission", admission_of(policies)),
        lambda: assurance_of(config.assurance),
        lambda: windows_of(config.windows),
        lambda: prices_of(config.prices),
        lambda: make_driver(config.power),
        lambda: check_fencing(config.fencing),
        lambda: make_balancer(config.balancer),
        lambda: notify_of(config.notify),
        lambda: make_channels(config.notify),
        lambda: draws_of(config.power.draw),
        lambda: exposition.check(config.metrics),
    )
    problems: dict[Problem, None] = {}
    for look in looks:
        try:
            look()
        except InvalidInput as error:
            problems |= dict.fromkeys(error.problems)
    if problems:
        raise InvalidInput(*problems)


def _check_policy(role: str, choice: PolicyChoice | None) -> None:
    if choice is None:
        return
    try:
        policy = find_policy(role, choice.name)
    except UnknownPolicy as error:
        named = (Problem(f"policies.{role}", each.what, each.expected) for each in error.problems)
        raise InvalidInput(*named) from error
    policy.check_params(choice.params)


def _run(path: Path, config: ControllerConfig) -> int:
    connect = startup.broker(config.bus.url, config.bus.tls, config.bus.plain)
    power = with_fencing(make_driver(config.power), config.fencing)
    shell = build(config, connect, startup.seed(), power=power)
    metrics = serve_metrics(shell, config.metrics)
    shell.on_reload = lambda: exposition.reload(lambda: DAEMON.read(path), config, metrics)
    shell.heed_signals()
    return shell.run()


def serve_metrics(shell: ControllerShell, settings: Metrics) -> MetricsServer | None:
    """Have the shell metered and that served; a port or a certificate that cannot be had is an alarm."""
    tables = shell.controller.queries.tables

    def trouble(why: str) -> None:
        shell.ask(lambda: tables.note("metrics-unserved", why, shell.clock.now_s()))

    meter = ControllerMeter(tables, startup.version(), shell.clock.monotonic_s)
    return exposition.serve(shell, meter, settings, trouble)


DAEMON = startup.Daemon("trimtab-controller", ControllerConfig, DEFAULT_CONFIG, _run, check)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the `trimtab-controller` command; return its exit status."""
    return DAEMON.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
