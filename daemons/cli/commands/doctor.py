"""`trimtab doctor`: checks an installation and says how to repair it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import ssl
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import click
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from rich.console import RenderableType
from rich.text import Text

from daemons.cli.output import REFUSED, emit, output_option
from daemons.cli.tables import Fitted, stacked
from daemons.config.controller import ControllerConfig
from daemons.config.fencing import FencingKeys
from daemons.drivers.fencing import check_fencing, with_fencing
from daemons.drivers.power import make_driver
from daemons.drivers.power.exec import commands
from daemons.drivers.price_feed import feed_of
from daemons.values.text_format import time_text
from shared.base.clock import SystemClock
from shared.base.deadline import Deadline, connected
from shared.base.errors import InvalidInput, InvalidValue
from shared.base.http_client import OK, HttpError, Request, exchange
from shared.base.printable import one_line
from shared.base.secrets import completed, is_absent, path_of
from shared.bus.rabbitmq.addresses import tls_advice, tls_context
from shared.config.agent import AgentConfig
from shared.config.broker_url import Address, Tls, parse_url
from shared.config.common import Bus, Metrics
from shared.config.toml import load
from shared.metrics.exposition import PATH, address_of
from shared.ports import plugins
from shared.values.nodes import PowerOperation

DISTRIBUTION = "trimtab"
AGENT_CONFIG = Path("/etc/trimtab/agent.toml")
AGENT = "trimtab-agent"
IMPORT_NAMES = ("agents", "daemons", "shared", "sim_backend")
OLDEST_PYTHON = (3, 11)
DATA_VARIABLE = "TRIMTAB_DATA"
CONTROLLER_EXTRA = "controller"
ANSWER_S = 3.0
PAGE_BYTES_MAX = 64 << 20
OURS = b'trimtab_build_info{component="controller"'
DAY_S = 86_400.0
SOON_S = 30 * DAY_S
CERTIFICATE = "broker certificate"
RENEW = "make a new one (`trimtab broker tls`); once it has expired no daemon and no command can connect"
NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME
TAKEN = "set another address in metrics.listen; until then the controller runs without metrics"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at. Not `ok`: the installation is broken and `fix` says what to do. `warning`: it works, but
    something that some commands need is not there."""

    name: str
    ok: bool
    detail: str
    fix: str = ""
    warning: bool = False


@click.command()
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also check this configuration of a controller, and what it needs on this machine.",
)
@output_option
def doctor(config: Path | None) -> None:
    """Check the installation and print how to repair it: Python, dependencies, plug-ins, data, working folder.

    Exit status 1 when a check fails.

    \b
    Example:
      trimtab doctor --config /etc/trimtab/controller.toml
    """
    checks = [*examine(), *(configuration(config) if config is not None else ())]
    ok = all(check.ok for check in checks)
    emit({"checks": [asdict(check) for check in checks], "ok": ok}, lambda: _for_people(checks))
    if not ok:
        click.get_current_context().exit(REFUSED)


def examine() -> Iterator[Check]:
    """Yield every check, in a fixed order."""
    yield _python()
    yield from _dependencies()
    yield from import_names(metadata.packages_distributions())
    yield from _plugins()
    yield data(os.environ.get(DATA_VARIABLE, ""))
    yield working_folder(Path.cwd())


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    oldest = ".".join(map(str, OLDEST_PYTHON))
    ok = sys.version_info >= OLDEST_PYTHON
    return Check("python", ok, f"{version} (needs {oldest} or newer)", "" if ok else f"install Python {oldest}")


def _dependencies() -> Iterator[Check]:
    """Yield one check per dependency of the controller and the command."""
    for text in metadata.requires(DISTRIBUTION) or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": CONTROLLER_EXTRA}):
            yield dependency(requirement.name, requirement.specifier)


def dependency(name: str, needed: SpecifierSet) -> Check:
    """Check that a distribution is installed, in a version that is `needed`."""
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Check(f"dependency {name}", False, "not installed", f"pip install '{name}{needed}'")
    ok = needed.contains(version, prereleases=True)
    detail = f"{version} (needs {needed})" if needed else version
    return Check(f"dependency {name}", ok, detail, "" if ok else f"pip install --upgrade '{name}{needed}'")


def import_names(owners: Mapping[str, list[str]]) -> Iterator[Check]:
    """Check that no other distribution owns Trimtab's import names, and that all four come from one place."""
    for name in IMPORT_NAMES:
        others = sorted({owner for owner in owners.get(name, ()) if owner.lower() != DISTRIBUTION})
        fix = f"pip uninstall {' '.join(others)}, or give Trimtab a virtual environment of its own"
        detail = f"also owned by {', '.join(others)}" if others else "not shared"
        yield Check(f"import name {name}", not others, detail, fix if others else "")
    places = {name: _folder(name) for name in IMPORT_NAMES}
    ok = len(set(places.values())) == 1 and None not in places.values()
    detail = f"all in {places['shared']}" if ok else ", ".join(f"{name}: {place}" for name, place in places.items())
    fix = "" if ok else "remove the other folders from PYTHONPATH, or run from another folder"
    yield Check("one installation", ok, detail, fix)


def _folder(package: str) -> str | None:
    """Return the folder that holds a package; None if it cannot be found."""
    spec = importlib.util.find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec else []
    return str(Path(places[0]).resolve().parent) if places else None


def _plugins() -> Iterator[Check]:
    """Check that every registered command, driver and policy can be imported."""
    driver = driver_of_agent(AGENT_CONFIG, Path(sys.executable).parent)
    for group in (
        plugins.COMMANDS,
        plugins.ENV_COMMANDS,
        plugins.HYPERVISORS,
        plugins.POWER,
        plugins.BALANCERS,
        plugins.NOTIFIERS,
        plugins.ENVIRONMENTS,
        *map(plugins.policy_group, plugins.POLICY_ROLES),
    ):
        for point in sorted(metadata.entry_points(group=group), key=lambda point: point.name):
            yield plugin(point, driver)


def plugin(point: metadata.EntryPoint, driver: str = "") -> Check:
    """Check that an entry point can be imported and that its other requirements are installed. Missing parts of an
    extra are a warning, except for `driver`, the driver that this machine's agent uses."""
    name = f"{point.group.removeprefix('trimtab.')} {point.name}"
    try:
        made = point.load()
    except Exception as error:  # noqa: BLE001 - a plug-in may raise anything while it is imported: that is the finding
        detail = f"{point.value}: {type(error).__name__}: {error}"
        if point.extras and isinstance(error, ImportError):
            return Check(name, True, detail, f"pip install '{DISTRIBUTION}[{','.join(point.extras)}]'", warning=True)
        return Check(name, False, detail, "reinstall the plug-in, or uninstall the distribution that registers it")
    check_installed = getattr(sys.modules.get(getattr(made, "__module__", "")), "check_installed", None)
    try:
        if check_installed is not None:
            check_installed()
    except InvalidInput as error:
        (problem,) = error.problems
        used = point.group == plugins.HYPERVISORS and point.name == driver
        return Check(name, not used, problem.what, f"install {problem.expected}", warning=not used)
    return Check(name, True, point.value)


def driver_of_agent(path: Path, programs: Path) -> str:
    """Return the hypervisor driver of this machine's agent ("": there is no agent, or its file cannot be read)."""
    if not (path.is_file() and (programs / AGENT).exists()):
        return ""
    try:
        return load(path, AgentConfig).hypervisor.driver
    except (InvalidInput, OSError):
        return ""


def data(folder: str) -> Check:
    """Check the folder of public logs; only replays of them need it."""
    fix = f"set {DATA_VARIABLE} to the folder of the public logs and traces; only their replays and tests need it"
    if not folder:
        return Check("data", True, f"{DATA_VARIABLE} is not set", fix, warning=True)
    if not (Path(folder).is_dir() and os.access(folder, os.R_OK | os.X_OK)):
        return Check("data", True, f"{DATA_VARIABLE} = {folder}: not a readable folder", fix, warning=True)
    return Check("data", True, f"{DATA_VARIABLE} = {folder}")


def configuration(path: Path) -> Iterator[Check]:
    """Check that the controller's file can be read, and that the power driver it names can work on this machine."""
    try:
        config = completed(load(path, ControllerConfig), path, only_look=True)
        driver = with_fencing(make_driver(config.power), config.fencing)
    except InvalidInput as error:
        yield Check("configuration", False, str(error), f"correct {path}")
        return
    yield Check("configuration", True, str(path))
    does = ", ".join(sorted(driver.does)) or "nothing"
    unproven = driver.name != "none" and PowerOperation.FENCE not in driver.does
    fix = (
        "it cannot fence nodes: set fencing.methods, or an operator must confirm that an unreachable node is off "
        "(`trimtab nodes confirm-off`)"
        if unproven
        else ""
    )
    yield Check("power driver", True, f"{driver.name} does {does}", fix, warning=unproven)
    if driver.name == "exec":
        for operation, command in commands(config.power.exec).items():
            yield program(operation, command[0])
    if config.fencing.methods:
        yield fencing(config.fencing)
    feed = feed_of(config.prices)
    if feed is not None:
        wrong = feed.read().error
        fix = "correct or replace the file; until then prices are forecasts" if wrong else ""
        yield Check("prices", not wrong, wrong or config.prices.file, fix)
    if config.metrics.listen:
        yield metrics(config.metrics)
    yield from broker(config.bus, SystemClock().now_s())


def broker(bus: Bus, now_s: float) -> Iterator[Check]:
    """Check the broker's certificate, if the connection requires one."""
    if not bus.url.startswith("amqps:"):
        return
    tls = bus.tls
    try:
        address = parse_url(bus.url)
        lacking = [place for place in (tls.ca_file, tls.cert_file, tls.key_file) if is_absent(place)]
        if lacking:
            fix = f"check it by hand: openssl s_client -connect {address.host}:{address.port}"
            detail = f"only the unit has {', '.join(lacking)}: not checked"
            yield Check(CERTIFICATE, True, detail, fix, warning=True)
            return
        yield certificate(address, tls, now_s)
    except InvalidValue as error:
        yield Check(CERTIFICATE, False, str(error), "correct [bus] and [bus.tls]")


def certificate(address: Address, tls: Tls, now_s: float) -> Check:
    """Check the certificate that a broker presents. Raises InvalidValue for files that cannot be used."""
    where = f"{address.host}:{address.port}"
    try:
        return judged(where, *presented(address, tls), now_s)
    except ssl.SSLError as error:
        return _distrusted(address, tls, error, now_s)
    except OSError as error:
        fix = "check that the broker runs and can be reached"
        return Check(CERTIFICATE, True, f"{where}: {error.strerror or error}", fix, warning=True)


def presented(address: Address, tls: Tls, whenever: bool = False) -> tuple[float, float]:
    """Return the start and end of the validity of a broker's certificate, in seconds since the epoch. It is verified as
    by every client, but regardless of its dates if `whenever`. No message is sent to the broker. Raises OSError, and
    InvalidValue for files that cannot be used."""
    context, name = tls_context(address, tls)
    if whenever:
        context.verify_flags |= NO_CHECK_TIME
    deadline = Deadline(ANSWER_S)
    with connected(address.host, address.port, deadline) as plain:
        plain.settimeout(deadline.wait_s())  # for the whole handshake
        with context.wrap_socket(plain, server_hostname=name) as secured:
            shown = secured.getpeercert() or {}
    begins, ends = (ssl.cert_time_to_seconds(str(shown[key])) for key in ("notBefore", "notAfter"))
    return float(begins), float(ends)


def _distrusted(address: Address, tls: Tls, error: ssl.SSLError, now_s: float) -> Check:
    """Return the failed check of a broker that clients refuse; if the cause is the validity period of its certificate,
    with that period."""
    where = f"{address.host}:{address.port}"
    with suppress(OSError):  # it is refused for something else too: that is what `error` says
        found = judged(where, *presented(address, tls, whenever=True), now_s)
        if not found.ok:
            return found
    return Check(CERTIFICATE, False, f"{where}: {tls_advice(error)}", "correct the broker's certificate or [bus.tls]")


def judged(where: str, begins_s: float, ends_s: float, now_s: float) -> Check:
    """Check a certificate that is valid from `begins_s` until `ends_s`."""
    begins, ends = (time_text(at_s).replace("T", " ") for at_s in (begins_s, ends_s))  # as programs find it in the JSON
    if now_s < begins_s:
        fix = "check the clocks of this machine and of the one that made it"
        return Check(CERTIFICATE, False, f"{where}: not valid before {begins}", fix)
    if now_s > ends_s:
        return Check(CERTIFICATE, False, f"{where}: expired at {ends}", RENEW)
    if ends_s - now_s < SOON_S:
        days = int((ends_s - now_s) // DAY_S)
        return Check(CERTIFICATE, True, f"{where}: expires at {ends}, in {days} days", RENEW, warning=True)
    return Check(CERTIFICATE, True, f"{where}: valid until {ends}")


def metrics(settings: Metrics) -> Check:
    """Check that a controller serves its metrics at the configured address with the configured certificate, or
    could."""
    listen, place = settings.listen, settings.certificate_file
    if is_absent(place):
        return Check("metrics", True, f"{listen}: only the unit has {place}: not checked", warning=True)
    try:
        context = _shows(path_of(place)) if place else None
    except OSError as error:
        fix = "check metrics.certificate_file and its permissions"
        return Check("metrics", True, f"{place}: {error.strerror or error}", fix, warning=True)
    url = f"{'https' if place else 'http'}://{listen}{PATH}"
    try:
        with exchange(Request(url, context=context), Deadline(ANSWER_S)) as answer:
            found = answer.status == OK and OURS in answer.read(PAGE_BYTES_MAX)
    except HttpError:
        return _to_be_had(listen)
    if found:
        return Check("metrics", True, f"{listen}: served")
    return Check("metrics", True, f"{listen}: another program answers there", TAKEN, warning=True)


def _shows(certificate: str) -> ssl.SSLContext:
    """Return a context for a server that presents this certificate, or one of its chain, under any name. Raises
    OSError."""
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _to_be_had(listen: str) -> Check:
    host, port = address_of(listen)
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            return Check("metrics", True, f"{listen}: free")
    except OSError as error:
        return Check("metrics", True, f"{listen}: {error.strerror}", TAKEN, warning=True)


def program(operation: PowerOperation, name: str) -> Check:
    """Check that a program of the power driver can be run here, as far as the caller's permissions show."""
    found = shutil.which(name)
    fix = "" if found else "install it, make it executable, or give its full path in [power.exec]"
    return Check(f"power {operation}", found is not None, found or f"{name}: not an executable program", fix)


def fencing(keys: FencingKeys) -> Check:
    """Check that the fence agents know their options, without asking any device."""
    try:
        check_fencing(keys)
    except InvalidInput as error:
        return Check("fencing", False, str(error), "correct [fencing]")
    return Check("fencing", True, f"{', then '.join(keys.methods)}; `trimtab nodes fence-status NODE` asks the devices")


def working_folder(folder: Path) -> Check:
    """Reports and stores are written below the working folder."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return Check("working folder", True, f"{folder} can be written")
    except OSError as error:
        return Check("working folder", False, f"{folder}: {error.strerror}", "run from a folder that you can write to")


def _for_people(checks: list[Check]) -> RenderableType:
    """Return every check on one line; below, in full, those that failed or warn, with their fixes."""
    rows = [(check.name, _word(check), one_line(check.detail)) for check in checks]
    faults = [check for check in checks if check.warning or not check.ok]
    return stacked(Fitted("trimtab doctor", ("check", "result", "detail"), rows), *map(_fault, faults))


def _word(check: Check) -> str:
    return "warning" if check.warning else "ok" if check.ok else "failed"


def _fault(check: Check) -> Text:
    fix = f"\n  fix: {check.fix}" if check.fix else ""
    return Text(f"{_word(check)}: {check.name}: {one_line(check.detail)}{fix}", "yellow" if check.warning else "red")
