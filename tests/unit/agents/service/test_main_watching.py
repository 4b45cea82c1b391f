"""Real shells: agents probe real servers on loopback, and an instance that stops answering is replaced."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from msgspec import structs

from shared.protocol.operator_messages import SubmitWeb
from shared.values.health import Probe, ProbeKind
from shared.values.vms import VmState, VmStatus
from shared.values.web_app import WebApp
from tests.support.shell_harness import LockedHypervisor, RealRig, wait_for

ADDRESSES = {"n1": "127.0.0.1", "n2": "127.0.0.2"}


class Site(ThreadingHTTPServer):
    """What answers at the address of one node, with `status`."""

    status = 200


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Site)
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_args: object) -> None:
        """It does not log."""


@contextmanager
def sites() -> Iterator[dict[str, Site]]:
    """A server on the same port of every node's address."""
    made: dict[str, Site] = {}
    try:
        for name, address in ADDRESSES.items():
            port = next(iter(made.values())).server_address[1] if made else 0
            made[name] = Site((address, int(port)), Handler)
            threading.Thread(target=made[name].serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield made
    finally:
        for site in made.values():
            site.shutdown()
            site.server_close()


class Addressless(LockedHypervisor):
    """Guests that have no addresses of their own."""

    def vms(self, now_s: float) -> tuple[VmStatus, ...]:
        return tuple(structs.replace(status, address="") for status in super().vms(now_s))


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[RealRig]:
    made = RealRig(tmp_path, nodes=2)
    made.addresses = dict(ADDRESSES)
    for name, hypervisor in made.hypervisors.items():
        made.hypervisors[name] = Addressless(hypervisor.inner, made.clock, made.lock)
    yield made
    made.end()


def home(rig: RealRig) -> str:
    """The node on which the instance runs ("": on none)."""
    with rig.lock:
        return next(
            (
                name
                for name, hypervisor in rig.cluster.hypervisors.items()
                for domain in hypervisor.domains.values()
                if domain.state is VmState.RUNNING
            ),
            "",
        )


def test_an_instance_that_stops_answering_is_replaced(rig: RealRig) -> None:
    with sites() as servers:
        port = int(servers["n1"].server_address[1])
        probe = Probe(ProbeKind.HTTP, port, "/healthz", period_s=0.2, limit_s=1.0, fall=2, rise=1, grace_s=0.5)
        rig.start()
        assert rig.ask(
            SubmitWeb("s", WebApp("shop", (), 1000, max_mhz=1000.0, min_instances=1, max_instances=2, probe=probe))
        ).done
        wait_for(lambda: home(rig))
        wait_for(lambda: rig.lines("watch received"))
        wait_for(lambda: [line for line in rig.lines("happened") if line["what"] == "web-instance-started"])

        servers[home(rig)].status = 503

        wait_for(lambda: [line for line in rig.lines("happened") if line["what"] == "web-instance-replaced"])
        told = next(line for line in rig.lines("happened") if line["what"] == "web-instance-unhealthy")
        assert told["detail"].endswith("HTTP 503")
        for server in servers.values():
            server.status = 200
        wait_for(lambda: len([line for line in rig.lines("happened") if line["what"] == "web-instance-started"]) == 2)
        wait_for(lambda: home(rig))
        assert [line["detail"] for line in rig.lines("probe failed")][:1] == ["HTTP 503"]
