"""The portal as a process: `trimtab-portal` serves the pages; `trimtab-portal account` creates and repairs accounts."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import sys
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path

from daemons.config.portal import PortalConfig, SecondFactor
from daemons.portal.app import app
from daemons.portal.auth.account_command import account_command
from daemons.portal.auth.authentication import Authentication, SignOn
from daemons.portal.auth.passwords import Hasher
from daemons.portal.auth.schema import Base
from daemons.portal.client.amqp_client import AmqpClient
from daemons.portal.client.controller_client import PORTAL
from daemons.portal.client.view_cache import ViewCache
from daemons.portal.config import host_of, origin_of, problems_of
from daemons.portal.context import Portal, Settings
from daemons.portal.forms.texts import NotUnderstood
from daemons.portal.http.limits import AddressLimits, Bounds
from daemons.portal.http.middleware import Rules
from daemons.portal.http.server import listening, server
from daemons.portal.metrics import Metered, MeteredClient, PortalMeter
from daemons.portal.what_if.runs import Runs
from daemons.report.cluster_report import check_zone
from daemons.store.reading import reading
from shared.base.clock import SystemClock
from shared.base.errors import InvalidInput, PermanentError, Problem, StoreUnavailable
from shared.base.secrets import path_of, secret_of
from shared.config.common import Metrics
from shared.metrics import exposition
from shared.metrics.exposition import MetricsServer, is_local, registry_of
from shared.protocol import topology
from shared.runtime import startup
from shared.runtime.garbage_collection import collect_young
from shared.runtime.logs import get_logger
from shared.runtime.server_tls import load_certificate, tls_of
from shared.runtime.systemd_notify import Notifier

DEFAULT_CONFIG = "/etc/trimtab-portal/portal.toml"
STORE_VARIABLE = "TRIMTAB_STORE_URL"  # of `trimtab sim what-if`
STATUS_S = 10.0
SWITCH_S = 0.0005
"""After how long a thread that computes makes way for one that waits: the event loop does little between two calls of
the system, and at each of them would wait for Python's usual 5 ms beside a thread that reads the store."""
DAY_S = 86_400.0
NICENESS = 10  # beside controllers: measuring, carrying out and deciding go before pages


def check(config: PortalConfig) -> None:
    """Raises InvalidInput with everything that is wrong with a configuration beyond the form of its keys."""
    wrong = problems_of(config)
    for look in (
        lambda: config.bus.url and startup.broker(config.bus.url, config.bus.tls, config.bus.plain),
        lambda: user_of(config),
        lambda: exposition.check(config.metrics),
    ):
        try:
            look()
        except InvalidInput as error:
            wrong += error.problems
    if wrong:
        raise InvalidInput(*dict.fromkeys(wrong))
    if config.metrics.listen and not is_local(config.metrics.listen):
        print(
            f"metrics.listen is {config.metrics.listen}: anyone who reaches it can read the metrics without an account",
            file=sys.stderr,
        )


def user_of(config: PortalConfig) -> str:
    """Return the portal's user at the broker. Raises InvalidInput for a user that is not a portal's."""
    user = startup.bus_user(config.bus.url)
    if user and not user.startswith(topology.PORTAL_USER_PREFIX):
        raise InvalidInput(Problem("bus.url", f"names the user {user!r}", f"a user {PORTAL}.NAME"))
    return user


def rules_of(config: PortalConfig) -> Rules:
    """Whom the portal believes."""
    return Rules(
        frozenset({host_of(config.public_url)}),
        frozenset({origin_of(config.public_url)}),
        config.proxy.trusted,
        config.public_url.startswith("https://"),
        bool(config.proxy.trusted) and not config.tls.cert_file,
    )


def authentication_of(config: PortalConfig, base: Base, clock: SystemClock) -> Authentication:
    """Build the authentication from the configuration."""
    secret = secret_of("proxy.sign_on_file", config.proxy.sign_on_file) if config.proxy.sign_on_file else ""
    return Authentication(
        base,
        clock,
        Hasher(),
        idle_s=config.sessions.idle_s,
        absolute_s=config.sessions.absolute_s,
        keep_log_s=config.store.log_days * DAY_S,
        trusts=rules_of(config).trusts,
        sign_on=SignOn(secret) if secret else None,
        second_factor=config.login.second_factor is SecondFactor.PROVIDERS,
    )


def runs_of(config: PortalConfig, clock: SystemClock) -> Runs | None:
    """Return the what-ifs; None if there is no history to run again. Raises PermanentError for a folder that cannot be
    created."""
    if not config.history.url:
        return None
    what_if = config.what_if
    try:
        return Runs(
            Path(what_if.folder),
            clock,
            {STORE_VARIABLE: config.history.url},
            at_once=what_if.at_once,
            limit_s=what_if.limit_s,
        )
    except OSError as error:
        raise PermanentError(f"what_if.folder {what_if.folder}: {error.strerror}") from error


class Process:
    """Everything that runs, in one event loop."""

    def __init__(self, path: Path, config: PortalConfig, notifier: Notifier) -> None:
        self._path, self._config, self._notifier = path, config, notifier
        self._clock = SystemClock()
        self._sessions: int | None = None
        self._base = Base(config.store.url)
        self._base.open()
        connect = startup.broker(config.bus.url, config.bus.tls, config.bus.plain)
        self._amqp_client = AmqpClient(connect, user_of(config), self._clock, startup.seed())
        self._reading = reading(config.history.url) if config.history.url else None
        meter = PortalMeter(startup.version(), self._clock.monotonic_s, self._readers, lambda: self._sessions)
        controller_client = MeteredClient(self._amqp_client, meter)
        authentication = authentication_of(config, self._base, self._clock)
        settings = Settings(origin_of(config.public_url), config.read_only, config.server.readers_max)
        rules, runs = rules_of(config), runs_of(config, self._clock)
        limits = AddressLimits(Bounds(config.server.connections_max, config.server.address_max))
        authentication.on_refused = limits.on_refused = meter.refused
        self._portal = Portal(
            controller_client,
            ViewCache(controller_client),
            authentication,
            rules=rules,
            settings=settings,
            reading=self._reading,
            runs=runs,
            limits=limits,
        )
        self._tls = self._certificate()
        self._server = server(
            Metered(app(self._portal), meter),
            limits,
            self._tls,
            request_s=config.server.request_s,
            is_proxy=rules.trusts,
        )
        self._metrics = metrics_server(config.metrics, meter)
        self._status = 0

    def _certificate(self) -> ssl.SSLContext | None:
        files = self._config.tls
        return tls_of(path_of(files.cert_file), path_of(files.key_file)) if files.cert_file else None

    async def run(self) -> int:
        """Serve until asked to stop; the exit status."""
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        self._amqp_client.on_defect = self._end
        self._amqp_client.start()
        self._server.on_started = self._notifier.ready
        sock = listening(self._config.server.address, self._config.server.port)
        get_logger("portal").info("listening", address=sock.getsockname()[0], port=sock.getsockname()[1])
        if self._metrics is not None:
            self._metrics.start()
        watchdog = asyncio.create_task(self._tend())
        warming = asyncio.create_task(self._warm())
        try:
            await self._server.serve([sock])
        finally:
            watchdog.cancel()
            warming.cancel()
            await self._portal.authentication.tell_refusals()
            self._close()
        return self._status

    async def _warm(self) -> None:
        """Have what reports and drawing need read before somebody waits for it; that takes seconds."""
        with suppress(BrokenProcessPool):  # the request for a report fails with it
            if self._reading is not None:
                await self._portal.spans.do(check_zone, "UTC")
        with suppress(NotUnderstood):
            await self._portal.texts.warm()
        await self._portal.pictures.warm()

    def stop(self) -> None:
        """Stop: new connections are refused, answers in progress continue for a moment."""
        self._notifier.stopping()
        self._server.should_exit = True

    def _end(self, error: BaseException) -> None:
        """Handle a defect that ended the bus thread: the supervisor restarts the process."""
        get_logger("portal").error("the thread of the bus has died", error=type(error).__name__)
        self._status = startup.DEFECT
        self.stop()

    def _reload(self) -> None:
        """Read log level and certificates again."""
        exposition.reload(lambda: DAEMON.read(self._path), self._config, self._metrics)
        if self._tls is not None:
            try:
                files = self._config.tls
                load_certificate(self._tls, path_of(files.cert_file), path_of(files.key_file))
            except InvalidInput as error:
                get_logger("reload").error("certificate not reloaded", problems=[str(it) for it in error.problems])

    async def _tend(self) -> None:
        """Report to the supervisor that the loop runs, and the state; remove the garbage of requests, of which a quiet
        portal has few."""
        every_s = min(self._notifier.watchdog_s or STATUS_S, STATUS_S)
        counting: asyncio.Task[None] | None = None
        while True:
            broker = "connected to the broker" if self._amqp_client.is_connected else "no connection to the broker"
            self._notifier.watchdog()
            self._notifier.status(f"{broker}, {self._portal.readers} browsers follow changes")
            if counting is None or counting.done():  # a store that hangs does not keep the supervisor waiting
                counting = asyncio.create_task(self._count())
            collect_young()
            await asyncio.sleep(every_s)

    def _readers(self) -> int:
        return self._portal.readers

    async def _count(self) -> None:
        """Look how many sessions there are, for the metrics; that the store is away is noted there."""
        authentication, now_s = self._portal.authentication, self._clock.now_s()
        await authentication.tell_refusals(now_s)
        try:
            self._sessions = await authentication.keep(lambda: authentication.sessions.count(now_s))
        except StoreUnavailable:
            self._sessions = None

    def _close(self) -> None:
        if self._metrics is not None:
            self._metrics.stop()
        self._amqp_client.close()
        if self._reading is not None:
            self._reading.close()
        self._base.close()


def metrics_server(settings: Metrics, meter: PortalMeter) -> MetricsServer | None:
    """Serves what the portal counts of itself; None where that is not wanted. A port that cannot be had is logged."""
    return MetricsServer(settings, registry_of(meter.families)) if settings.listen else None


def _run(path: Path, config: PortalConfig) -> int:
    os.nice(NICENESS)
    sys.setswitchinterval(SWITCH_S)
    return asyncio.run(Process(path, config, Notifier()).run())


DAEMON = startup.Daemon("trimtab-portal", PortalConfig, DEFAULT_CONFIG, _run, check)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the `trimtab-portal` command; return its exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] == ["account"]:
        return account_command(given[1:])
    return DAEMON.main(given)


if __name__ == "__main__":
    sys.exit(main())
