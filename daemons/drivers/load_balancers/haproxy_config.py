"""What HAProxy is to do for a web application, as its configuration and as commands of its runtime API. Pure."""

from __future__ import annotations

import ipaddress
import math
import re
import string
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

from daemons.config.controller import BalancerHaproxy
from shared.ports.effects import Backend, Balance
from shared.values.health import Probe, ProbeKind
from shared.values.web_app import Distribution, Serving

WEIGHT_MAX = 256
WEIGHT = 100  # of each where weights do not matter
PLAIN = frozenset(string.ascii_letters + string.digits + "/._-~%&=?+:@,")  # mean nothing in a configuration
QUICK_S = 1.0  # between checks of an instance that is not, or may not be, up
ALGORITHMS = {
    Distribution.LEAST_CONNECTIONS: ("balance leastconn",),
    Distribution.ROUND_ROBIN: ("balance roundrobin",),
    Distribution.SOURCE: ("balance source", "hash-type consistent"),
    Distribution.WEIGHTED: ("balance roundrobin",),
}
USUAL = Distribution.LEAST_CONNECTIONS  # where an order does not say
OBSERVED = "observe layer4 error-limit 3 on-error sudden-death"  # a check that then fails is the last
SERVER = "    server "
APP, VM = re.compile(r"[A-Za-z0-9_-]{1,128}"), re.compile(r"[A-Za-z0-9_-]{1,128}(#[0-9]{1,9})?")
SAFE_METHODS = "METH_GET METH_HEAD METH_OPTIONS"  # what may be asked twice


def proxy_of(app: str) -> str:
    """HAProxy's name of an application."""
    return f"trimtab-{app}"


def bad_name(order: Balance) -> str | None:
    """Return a name in an order that HAProxy must not get, None when all are good."""
    names = ((APP, order.app), *((VM, backend.vm) for backend in order.backends))
    return next((name for form, name in names if not form.fullmatch(name)), None)


def server_of(vm: str) -> str:
    """HAProxy's name of an instance: it takes no `#`, and our names no dot."""
    return vm.replace("#", ".")


def vm_of(server: str) -> str:
    """Return the instance that HAProxy knows by this name."""
    return server.replace(".", "#")


def variable_of(app: str, what: str) -> str:
    """Return the name of an HAProxy variable for an application; such names take no `-`."""
    return f"proc.trimtab.{app.replace('-', '.')}.{what}"


def milliseconds(seconds: float) -> int:
    """Whole ones, at least one."""
    return max(1, round(1000.0 * seconds))


@dataclass(frozen=True, slots=True)
class Server:
    """An instance as HAProxy is to know it: IP address in its shortest form, port, weight of at most 256, and requests
    that it works on at a time."""

    name: str
    address: str
    port: int
    weight: int
    request_max: int


@dataclass(frozen=True, slots=True)
class DesiredProxy:
    """What HAProxy is to do for an application. `form`: the part of its configuration that takes a reload. `check`: how
    each server is checked. leaving: servers that get nothing new; lost: instances without an address."""

    app: str
    listen: int
    form: str
    check: str
    queue_max: int
    servers: tuple[Server, ...]
    leaving: frozenset[str]
    lost: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Identifier that distinguishes one form from another."""
        return sha256(self.form.encode()).hexdigest()[:16]

    @property
    def text(self) -> str:
        """The whole configuration of the application."""
        return self.text_with(self.servers)

    def text_with(self, servers: Iterable[Server]) -> str:
        """Return the configuration with the given servers instead of the desired ones."""
        head = (
            f"# {self.app}: written by Trimtab, again at every change. Changes of yours are lost.",
            "global",
            f"    set-var {variable_of(self.app, 'form')} str({self.digest})",
            f"    set-var {variable_of(self.app, 'queue')} int({self.queue_max})",
        )
        lines = (f"{SERVER}{one.name} {_socket_address(one.address, one.port)} {self.settings(one)}" for one in servers)
        return "\n".join((*head, self.form, *lines)) + "\n"

    def settings(self, server: Server) -> str:
        """Return the settings that follow a server's name and address, in every place that defines one."""
        return f"weight {server.weight} maxconn {server.request_max} {self.check}"

    def adding(self, server: Server) -> tuple[str, ...]:
        """Commands that add a server, which gets nothing before a check has found it healthy."""
        name = f"{proxy_of(self.app)}/{server.name}"
        add = f"add server {name} {_socket_address(server.address, server.port)} {self.settings(server)}"
        return (add, f"enable health {name}", *self.using(server.name))

    def using(self, server: str) -> tuple[str, ...]:
        """Return the commands that bring a server from maintenance into use, once a check has found it healthy. A
        server that leaves maintenance is up. It leaves it drained: a program that does not listen yet would use up all
        retries of a request, and queued requests it got would lose their place."""
        name = f"{proxy_of(self.app)}/{server}"
        return (f"set server {name} state drain", f"set server {name} health down", f"set server {name} state ready")


def wanted_of(order: Balance, serving: Serving, keys: BalancerHaproxy) -> DesiredProxy:
    """Return the state of HAProxy that an order describes."""
    request_max = serving.instance_max or order.limits.instance_max or keys.instance_max
    queue_max = serving.queue_max or order.limits.queue_max or keys.queue_max
    found = [(backend, _canonical(backend.address)) for backend in order.backends if not backend.drain]
    weights = _weights([backend for backend, _ in found], serving.distribution or USUAL)
    servers = tuple(
        Server(server_of(backend.vm), address, serving.port, weight, request_max)
        for (backend, address), weight in zip(found, weights, strict=True)
        if address
    )
    return DesiredProxy(
        order.app,
        serving.listen,
        form_of(order.app, serving, order.probe, keys),
        check=check_of(serving, order.probe, keys),
        queue_max=queue_max,
        servers=servers,
        leaving=frozenset(server_of(backend.vm) for backend in order.backends if backend.drain),
        lost=tuple(backend.vm for backend, address in found if not address),
    )


def without_servers(text: str) -> str:
    """Return a configuration as `DesiredProxy.text` without its instances."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(SERVER))


def form_of(app: str, serving: Serving, probe: Probe | None, keys: BalancerHaproxy) -> str:
    """Return the configuration of an application except for the parts that change at runtime."""
    return "\n".join((*_defaults(app, serving, probe, keys), *_listen(app, serving, probe, keys)))


def _defaults(app: str, serving: Serving, probe: Probe | None, keys: BalancerHaproxy) -> Iterable[str]:
    check_limit_s = probe.limit_s if probe is not None else keys.check_limit_s
    return (
        f"defaults {proxy_of(app)}",
        "    mode http",
        "    log global",
        "    option httplog",
        "    option dontlognull",
        f"    timeout connect {milliseconds(keys.connect_limit_s)}",
        f"    timeout client {milliseconds(keys.idle_limit_s)}",
        f"    timeout http-request {milliseconds(keys.idle_limit_s)}",
        f"    timeout server {milliseconds(keys.response_limit_s)}",
        f"    timeout queue {milliseconds(serving.queue_limit_s)}",
        f"    timeout check {milliseconds(check_limit_s)}",
    )


def _listen(app: str, serving: Serving, probe: Probe | None, keys: BalancerHaproxy) -> Iterable[str]:
    """Return the listen section. `spent` adds up the microseconds from a request to the start of its answer, `errors`
    counts the servers' own 5xx."""
    proxy, spent, errors = proxy_of(app), variable_of(app, "spent"), variable_of(app, "errors")
    return (
        f"listen {proxy} from {proxy}",
        f"    bind {_socket_address(keys.address, serving.listen)}",
        *(f"    {line}" for line in ALGORITHMS[serving.distribution or USUAL]),
        "    option forwardfor",
        "    option idle-close-on-response",
        "    http-reuse safe",
        "    option redispatch 1",
        "    retries 3",
        "    retry-on conn-failure empty-response",
        f"    http-request disable-l7-retry unless {' or '.join(SAFE_METHODS.split())}",
        f"    http-request deny deny_status 503 if {{ queue({proxy}),sub({variable_of(app, 'queue')}) -m int ge 0 }}",
        "    http-request set-var(txn.trimtab_begun) date(0,us)",
        "    http-response set-var(txn.trimtab_spent) date(0,us),sub(txn.trimtab_begun)",
        f"    http-response set-var({spent}) var({spent},0),add(txn.trimtab_spent)",
        f"    http-response set-var({errors}) var({errors},0),add(1) if {{ status ge 500 }}",
        *_http_check(app, probe),
    )


def _http_check(app: str, probe: Probe | None) -> Iterable[str]:
    if probe is None or probe.kind is not ProbeKind.HTTP:
        return ()
    uri = quoted(probe.path)
    return ("    option httpchk", f"    http-check send meth GET uri {uri} ver HTTP/1.1 hdr Host {app}")


def check_of(serving: Serving, probe: Probe | None, keys: BalancerHaproxy) -> str:
    """Return the check of each server: by the probe of its instance, else by a connection."""
    period_s, fall, rise = keys.check_s, keys.check_fall, keys.check_rise
    if probe is not None:
        period_s, fall, rise = probe.period_s, probe.fall, probe.rise
    port = probe.port if probe is not None and probe.port and probe.port != serving.port else 0
    quick = milliseconds(min(period_s, QUICK_S))
    check = (
        f"check inter {milliseconds(period_s)} fastinter {quick} downinter {quick} fall {fall} rise {rise} {OBSERVED}"
    )
    return f"{check} port {port}" if port else check


def quoted(text: str) -> str:
    """Quote text of printable ASCII as one word of a configuration."""
    return "".join(one if one in PLAIN else f"\\x{ord(one):02x}" for one in text)


def _canonical(address: str) -> str:
    """Return an IP address in its shortest form, "" for anything else."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return ""
    return "" if "%" in address else str(found)


def _socket_address(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _weights(backends: list[Backend], distribution: Distribution) -> list[int]:
    """Whole weights in proportion, the largest 256; a weight that is none counts as the smallest."""
    if distribution is not Distribution.WEIGHTED:
        return [WEIGHT for _ in backends]
    good = [one.weight if math.isfinite(one.weight) and one.weight > 0.0 else 0.0 for one in backends]
    most = max(good, default=0.0) or 1.0
    return [max(1, round(WEIGHT_MAX * weight / most)) for weight in good]
