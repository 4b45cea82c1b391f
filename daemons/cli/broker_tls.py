"""`trimtab broker tls`: an authority for nothing but the broker, its certificate, and the configuration of RabbitMQ.

Everything is made by the program `openssl`; keys never leave the files that it writes.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Group
from rich.text import Text

from daemons.cli.numbers import Whole
from daemons.cli.output import emit, output_option
from daemons.cli.secret_files import folder_of_ours, write_secret
from shared.base.addresses import is_address
from shared.base.errors import Infeasible, InvalidInput, Problem
from shared.base.write_file import write_file

AUTHORITY_DAYS = 3_650
OPENSSL_S = 60.0
PLACE = "/etc/rabbitmq/tls"
_HOST = r"(?=.{1,253}$)(\*\.)?[A-Za-z0-9]([A-Za-z0-9-]{0,62})(\.[A-Za-z0-9]([A-Za-z0-9-]{0,62}))*"
_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_CONFIGURATION = """\
# Connections without TLS: from this machine only.
listeners.tcp.local = 127.0.0.1:5672
listeners.ssl.default = 5671
ssl_options.cacertfile = {place}/ca.pem
ssl_options.certfile = {place}/broker.pem
ssl_options.keyfile = {place}/broker.key
# Clients authenticate by password and always verify the broker.
ssl_options.verify = verify_none
ssl_options.versions.1 = tlsv1.3
ssl_options.versions.2 = tlsv1.2
# No message of Trimtab is longer; a longer one closes its sender's channel.
max_message_size = 4194304
"""
_REQUEST = "[req]\nprompt = no\ndistinguished_name = dn\n[dn]\nCN = {name}\n"
_AUTHORITY = "[ext]\nbasicConstraints = critical, CA:TRUE, pathlen:0\nkeyUsage = critical, keyCertSign, cRLSign\n"
_BROKER = (
    "[ext]\nbasicConstraints = critical, CA:FALSE\nkeyUsage = critical, digitalSignature\n"
    "extendedKeyUsage = serverAuth\nsubjectAltName = {names}\n"
)


def _hosts(_: click.Context, __: click.Parameter, value: str) -> tuple[str, ...]:
    hosts = tuple(dict.fromkeys(host.strip() for host in value.split(",")))
    wrong = [host for host in hosts if not (is_address(host) or re.fullmatch(_HOST, host))]
    if wrong:
        raise InvalidInput(Problem("--host", f"is {value[:60]!r}", "names or addresses of the broker, comma between"))
    return hosts


@click.command()
@click.option(
    "--host",
    required=True,
    metavar="NAME,NAME",
    callback=_hosts,
    help="Names and addresses by which clients reach the broker.",
)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("trimtab-broker-tls"),
    show_default=True,
    help="Folder for all files; an authority in it is used again.",
)
@click.option(
    "--days",
    type=Whole(1, AUTHORITY_DAYS),
    default=825,
    show_default=True,
    help="Validity of the broker's certificate in days.",
)
@output_option
def tls(host: tuple[str, ...], folder: Path, days: int) -> None:
    """Create a certificate authority, the broker's certificate and its TLS configuration.

    Run it again before the certificate expires: the authority stays, so nothing changes for clients.

    \b
    Example:
      trimtab broker tls --host broker.example,10.0.0.5
    """
    fresh = make(host, folder, days)
    files = [str(folder / name) for name in ("ca.pem", "ca.key", "broker.pem", "broker.key", "rabbitmq.conf")]
    todo = [
        f"install -d {PLACE} && install -m 644 {folder}/ca.pem {folder}/broker.pem {PLACE}/",
        f"install -m 640 -g rabbitmq {folder}/broker.key {PLACE}/",
        f"cat {folder}/rabbitmq.conf >>/etc/rabbitmq/rabbitmq.conf  # once",
        "systemctl restart rabbitmq-server",
        f"install -D -m 644 {folder}/ca.pem /etc/trimtab/broker-ca.pem  # on every machine; not a secret",
    ]
    head = (
        "a new authority and a certificate signed by it" if fresh else "a certificate signed by the existing authority"
    )
    lines = [f"{head}: {folder}", "on the broker's machine, as root:", *(f"  {line}" for line in todo)]
    lines.append(f"keep {folder}/ca.key secret: its owner can impersonate the broker")
    values = {"hosts": list(host), "new_authority": fresh, "files": files}
    emit(values, lambda: Group(*map(Text, lines)))


def make(hosts: Sequence[str], folder: Path, days: int) -> bool:
    """Write `ca.pem` and `ca.key` unless they are there, `broker.pem` and `broker.key` for these hosts, and
    `rabbitmq.conf`; keys have mode 0600. Whether the authority is new. Raises InvalidInput for a folder that cannot be
    used, Infeasible when openssl is not there or refuses."""
    folder_of_ours("--folder", folder)
    try:
        return _made(hosts, folder, days)
    except OSError as error:
        what = f"{error.filename or folder}: {error.strerror or error}"
        raise InvalidInput(Problem("--folder", what, "a folder that can be written to")) from error


def _made(hosts: Sequence[str], folder: Path, days: int) -> bool:
    there = [name for name in ("ca.pem", "ca.key") if (folder / name).exists()]
    if len(there) == 1:
        what = f"has {there[0]} but not the other half of the authority"
        raise InvalidInput(Problem(str(folder), what, "both of ca.pem and ca.key, or neither"))
    with tempfile.TemporaryDirectory(prefix="trimtab-", dir=folder) as scratch:
        place = Path(scratch)
        if not there:
            _write(place / "ca.conf", _REQUEST.format(name="Trimtab broker authority") + _AUTHORITY)
            days_of_it = ("-days", str(AUTHORITY_DAYS), "-extensions", "ext", "-config", "ca.conf")
            _openssl(place, "req", "-x509", *_CURVE, *days_of_it, "-keyout", "ca.key", "-out", "ca.pem")
        else:
            for name in there:
                write_secret("--folder", place / name, (folder / name).read_text("ascii"))
        names = ", ".join(f"{'IP' if is_address(host) else 'DNS'}:{host}" for host in hosts)
        _write(place / "broker.conf", _REQUEST.format(name=hosts[0][:64]) + _BROKER.format(names=names))
        _openssl(place, "req", *_CURVE, "-config", "broker.conf", "-keyout", "broker.key", "-out", "broker.csr")
        sign = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", str(days))
        extend = ("-extfile", "broker.conf", "-extensions", "ext")
        _openssl(place, "x509", "-req", "-in", "broker.csr", *sign, *extend, "-out", "broker.pem")
        _write(place / "rabbitmq.conf", _CONFIGURATION.format(place=PLACE))
        for name in (*({"ca.key", "ca.pem"} - {*there}), "broker.key", "broker.pem", "rabbitmq.conf"):
            (place / name).chmod(0o600 if name.endswith(".key") else 0o644)
            (place / name).replace(folder / name)
    return not there


def _write(file: Path, text: str) -> None:
    write_file("--folder", file, text)


def _openssl(folder: Path, *words: str) -> None:
    before = os.umask(0o077)
    try:
        done = subprocess.run(
            ["openssl", *words], cwd=folder, capture_output=True, text=True, timeout=OPENSSL_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Infeasible(f"openssl cannot be run ({error}): apt-get install openssl") from error
    finally:
        os.umask(before)
    if done.returncode:
        raise Infeasible(f"openssl {words[0]} failed: {done.stderr.strip()[-500:]}")
