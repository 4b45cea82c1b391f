"""Every key of every file makes a difference that can be seen, by the table in `tests.conformance.settings`.

A key without a row fails, a row without its key too; so does one whose two values, or the same value twice, do not show
what they should."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agents.service.main import check_config
from daemons.cli.connection import OperatorConfig
from daemons.config.controller import ControllerConfig
from daemons.config.portal import PortalConfig
from daemons.drivers.notifiers.command import CommandKeys
from daemons.drivers.notifiers.mail import EmailKeys
from daemons.drivers.notifiers.webhook import WebhookKeys
from daemons.manifests.agreement import AgreementFile
from daemons.manifests.job import JobFile
from daemons.manifests.load import LoadFile
from daemons.manifests.vm_terms import VmFile
from daemons.manifests.web_app import WebFile
from daemons.portal.main import check as check_portal
from daemons.service.main import check as check_controller
from shared.config.agent import AgentConfig
from tests.conformance.settings import (
    agent,
    agreements,
    channels,
    controller_core,
    controller_failover,
    controller_nodes,
    controller_service,
    daemons,
    jobs,
    portal,
    vms,
    web,
)
from tests.conformance.settings.keys import keys_of
from tests.conformance.settings.row import Given, Harness, Row

WAITING_MAX = 16
HERE = {"public_url": "http://127.0.0.1:8443"}
PROGRAMS = {"hypervisor.driver": "process"}

FILES: dict[str, tuple[type[Any], tuple[Row, ...]]] = {
    "controller": (
        ControllerConfig,
        (
            *controller_core.TABLE,
            *controller_failover.TABLE,
            *controller_nodes.TABLE,
            *controller_service.TABLE,
            *daemons.rows(ControllerConfig, check_controller),
        ),
    ),
    "agent": (AgentConfig, (*agent.TABLE, *daemons.rows(AgentConfig, check_config, PROGRAMS))),
    "portal": (PortalConfig, (*portal.TABLE, *daemons.rows(PortalConfig, check_portal, HERE))),
    "job": (JobFile, jobs.TABLE),
    "load": (LoadFile, jobs.LOADS),
    "web": (WebFile, web.TABLE),
    "vms": (VmFile, vms.TABLE),
    "agreement": (AgreementFile, agreements.TABLE),
    "channel by a program": (CommandKeys, channels.COMMAND),
    "channel by a webhook": (WebhookKeys, channels.WEBHOOK),
    "channel by mail": (EmailKeys, channels.EMAIL),
    "operator": (OperatorConfig, (*portal.OPERATOR, *daemons.broker_rows(OperatorConfig, {}))),
}


def _rows() -> Iterator[Any]:
    for name, (_, table) in FILES.items():
        for row in table:
            yield pytest.param(row, id=f"{name}-{row.key}")


@pytest.mark.parametrize("name", FILES)
def test_every_key_has_a_row(name: str) -> None:
    cls, table = FILES[name]
    keys, rows = [*keys_of(cls)], [row.key for row in table]
    assert [key for key in keys if key not in rows] == [], "keys that nothing shows"
    assert [key for key in rows if key not in keys] == [], "rows of keys that are not there"
    assert sorted({*rows}) == sorted(rows), "keys with two rows"


class Observations:
    """What harnesses show of texts: of one and the same they are asked twice, and many rows begin with the same. Those
    that wait are looked at side by side, from the beginning."""

    def __init__(self, folder: Path, rows: Iterable[Row]) -> None:
        self._folder, self._count = folder, itertools.count()
        self._pool = ThreadPoolExecutor(WAITING_MAX)
        self._seen: dict[tuple[Harness, str], list[Future[object]]] = {}
        for row in rows:
            one, other = row.texts()
            self._ask(row, one, 2)
            self._ask(row, other, 1)

    def _ask(self, row: Row, text: str, times: int) -> list[Future[object]]:
        found = self._seen.setdefault((row.harness, text), [])
        while len(found) < times:
            folder = self._folder / f"{next(self._count)}"
            folder.mkdir()
            found.append(self._pool.submit(row.harness, Given(text, folder)))
            if not row.waits:
                found[-1].exception()  # one after the other: together they are no faster
        return found

    def of(self, row: Row) -> tuple[object, object, object]:
        """What the first text shows, twice, and the second."""
        one, other = row.texts()
        first, again = self._ask(row, one, 2)[:2]
        return first.result(), again.result(), self._ask(row, other, 1)[0].result()

    def close(self) -> None:
        """Nobody asks any more."""
        self._pool.shutdown()


@pytest.fixture(scope="module")
def observations(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observations]:
    wanted = [item.callspec.params.get("row") for item in request.session.items if hasattr(item, "callspec")]
    waiting = [row for row in wanted if isinstance(row, Row) and row.waits]
    made = Observations(tmp_path_factory.mktemp("settings"), waiting)
    yield made
    made.close()


@pytest.mark.parametrize("row", [*_rows()])
def test_a_key_makes_a_difference(row: Row, observations: Observations) -> None:
    one, other = row.texts()
    assert one != other
    first, again, second = observations.of(row)
    assert first == again, "what is observed is not of the file alone"
    assert first != second, "the key makes no difference"
