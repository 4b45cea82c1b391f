"""HAProxy 2.6 or newer as the load balancer: instances come and go through its runtime API, applications by a reload
(docs/how-to/load-balancer.md)."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass

from daemons.config.controller import BalancerHaproxy, BalancerKeys
from daemons.drivers.load_balancers.haproxy_config import (
    DesiredProxy,
    bad_name,
    server_of,
    vm_of,
    wanted_of,
    without_servers,
)
from daemons.drivers.load_balancers.haproxy_folder import Folder
from daemons.drivers.load_balancers.haproxy_runtime import Master, Runtime
from daemons.drivers.load_balancers.haproxy_state import (
    Counters,
    Table,
    at_work,
    commands,
    differences,
    emptying,
    held,
    looking,
    parse_process,
    parse_requests,
    parse_table,
    requests,
)
from shared.base.errors import InvalidInput, Problem, TransientError
from shared.ports.effects import Balance, Balanced
from shared.values.scalars import check_name
from shared.values.web_app import FlowSample, Serving

DETAIL_LENGTH_MAX = 1000
SAID_LENGTH_MAX = 300
ROUNDS_MAX = 3  # when somebody that stays is up after the first, who leaves can be drained
NO_SERVING = "it does not say how it is served: its file needs [serving] with port and listen"


@dataclass(frozen=True, slots=True)
class _Reading:
    at_s: float
    counters: Counters


class Haproxy:
    """Implements `shared.ports.controller.LoadBalancer`. May be called from several threads, for each application from
    one at a time, or from one for its instances and one for its measurements. Raises InvalidInput when
    `balancer.haproxy.ports` is no range."""

    name = "haproxy"
    measures = True

    def __init__(self, keys: BalancerKeys) -> None:
        self._keys: BalancerHaproxy = keys.haproxy
        ports = self._keys.ports
        if len(ports) != 2 or ports[0] > ports[1]:
            raise InvalidInput(
                Problem("balancer.haproxy.ports", f"is {list(ports)}", "the lowest and the highest port")
            )
        self._runtime = Runtime(self._keys.socket, self._keys.limit_s)
        self._master = Master(self._keys.master_socket, self._keys.limit_s, self._keys.reload_limit_s)
        self._folder = Folder(self._keys.folder, lambda: self._master.reload(self._serves))
        self._readings: dict[str, _Reading] = {}
        self._in_vain: dict[str, tuple[str, int]] = {}

    def set_backends(self, order: Balance) -> Balanced:
        """See `LoadBalancer`. Not ok, with the reason: an application that does not say how it is served, or on a port
        that it may not have; instances of which none has an address; a configuration that HAProxy refuses."""
        if (name := bad_name(order)) is not None:
            return self._answer(order.app, f"{name!r} is not a valid HAProxy name")
        if order.serving is None:
            stays = any(not backend.drain for backend in order.backends)
            return self._answer(order.app, NO_SERVING) if stays else self._end(order)
        refusal = self._refusal(order.app, order.serving)
        return self._answer(order.app, refusal) if refusal else self._serve(wanted_of(order, order.serving, self._keys))

    def measure(self, app: str, now_s: float) -> FlowSample | None:
        """See `LoadBalancer`. The mean is from the whole head of a request to the begin of its answer, the time in the
        queue among it. Percentiles are not measured. Raises InvalidValue for what is no name."""
        check_name("app", app)
        _, table = self._look(app)
        before = self._readings.pop(app, None)
        if table is not None:
            self._readings[app] = _Reading(now_s, table.counters)
        if before is None or table is None:
            return None
        return table.counters.since(before.counters, now_s - before.at_s)

    # --- an application that is served --------------------------------------------------------------------------------

    def _serve(self, wanted: DesiredProxy) -> Balanced:
        app = wanted.app
        process, table = self._look(app)
        if table is None or table.digest != wanted.digest:
            if refusal := self._load(wanted, table, process):
                return self._answer(app, refusal)
            process, table = self._look(app)
        if table is None or table.digest != wanted.digest:
            self._in_vain[app] = (wanted.digest, process)
            return self._answer(
                app, f"HAProxy does not read {self._keys.folder}: it is to be started with -f for it too"
            )
        self._in_vain.pop(app, None)
        if self._folder.text(app) != wanted.text:
            self._folder.write(app, wanted.text)
        said, steps = "", commands(wanted, table)
        for _ in range(ROUNDS_MAX):
            if not steps:
                break
            said = self._runtime.ask((*steps, *looking(app)))
            table = parse_table(app, said)
            if table is None:
                raise TransientError("HAProxy restarted during the update")
            steps = commands(wanted, table) if differences(wanted, table) else []
        return self._judged(wanted, table, said)

    def _judged(self, wanted: DesiredProxy, table: Table, said: str) -> Balanced:
        wrong = differences(wanted, table)
        if wrong:
            heard = " ".join(said.split())[:SAID_LENGTH_MAX]
            return self._answer(wanted.app, f"{'; '.join(wrong)[:SAID_LENGTH_MAX]}; HAProxy said: {heard}")
        lost = f"left out, without an address: {', '.join(wanted.lost)}" if wanted.lost else ""
        if wanted.lost and not wanted.servers:
            return self._answer(wanted.app, lost)
        leaving = wanted.leaving - held(wanted, table)
        return Balanced(wanted.app, True, self._drained(wanted.app, leaving, table), lost[:DETAIL_LENGTH_MAX])

    def _load(self, wanted: DesiredProxy, table: Table | None, process: int) -> str:
        """Have HAProxy reload with an application's new form: why it does not, "" when it does."""
        if self._in_vain.get(wanted.app) == (wanted.digest, process):
            return (
                f"HAProxy does not read {self._keys.folder}, or refused what is in it, and has not been started since"
            )
        held = table is not None and self._folder.port(wanted.app) == wanted.listen
        if not held and _taken(self._keys.address, wanted.listen):
            self._folder.release(wanted.app)
            return f"port {wanted.listen} is in use by another program"
        done = False
        try:
            done = self._folder.change(wanted.app, wanted.text_with(at_work(wanted, table)))
        finally:
            if not done:
                self._folder.release(wanted.app)
        if not done:
            self._in_vain[wanted.app] = (wanted.digest, process)
        return "" if done else "HAProxy refused its configuration; HAProxy's own log says why"

    def _refusal(self, app: str, serving: Serving) -> str:
        """Return why an application may not listen on its configured port."""
        low, high = self._keys.ports
        if not low <= serving.listen <= high:
            return f"listen = {serving.listen} is not among the ports {low} to {high} that applications may have"
        other = self._folder.claim(app, serving.listen)
        return f"listen = {serving.listen} is taken by {other}" if other else ""

    # --- an application that is gone ----------------------------------------------------------------------------------

    def _end(self, order: Balance) -> Balanced:
        """End an application: drain its last instances; without any, HAProxy stops listening for it."""
        app = order.app
        self._readings.pop(app, None)
        _, table = self._look(app)
        leaving = frozenset(server_of(backend.vm) for backend in order.backends)
        text = self._folder.text(app)
        if leaving:
            if text is not None and (left := without_servers(text)) != text:
                self._folder.write(app, left)
            if table is not None and (steps := emptying(app, leaving, table)):
                table = parse_table(app, self._runtime.ask((*steps, *looking(app))))
            return Balanced(app, True, self._drained(app, leaving, table))
        if (table is not None or text is not None) and not self._folder.change(app, None):
            return self._answer(app, "HAProxy cannot work with what is left without it; HAProxy's own log says why")
        self._folder.release(app)
        return Balanced(app, True)

    def _drained(self, app: str, leaving: frozenset[str], table: Table | None) -> tuple[str, ...]:
        """Instances that have no request left, of those processes either that a reload has replaced."""
        has = table.servers if table is not None else {}
        empty = {name for name in leaving if name not in has or not has[name].sessions}
        if not empty:
            return ()
        try:
            for process in self._master.processes().leaving:
                in_progress = parse_requests(app, self._master.ask(process, requests(app)))
                empty -= {name for name, count in in_progress.items() if count}
        except TransientError:
            return ()  # nobody can tell: the limit for draining ends it
        return tuple(vm_of(name) for name in sorted(empty))

    # --- asking -------------------------------------------------------------------------------------------------------

    def _look(self, app: str) -> tuple[int, Table | None]:
        """HAProxy's process, and what it has of an application."""
        printed = self._runtime.ask(looking(app))
        return parse_process(printed), parse_table(app, printed)

    def _serves(self, process: int) -> bool:
        return parse_process(self._runtime.ask(["show info"])) == process

    @staticmethod
    def _answer(app: str, refusal: str) -> Balanced:
        return Balanced(app, False, (), refusal[:DETAIL_LENGTH_MAX])


def _taken(address: str, port: int) -> bool:
    """Return whether another program listens there. A reload would find out too, but would interrupt the other
    applications' listening for a moment."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("" if address == "*" else address, port))
            tried.listen(1)
        except OSError as error:
            return error.errno == errno.EADDRINUSE  # anything else is HAProxy's to say
    return False
