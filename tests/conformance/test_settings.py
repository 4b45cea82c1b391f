"""Every key of every file makes a difference that can be seen, by the table in `tests.conformance.settings`.

A key without a row fails, a row without its key too; so does one whose two values, or the same value twice, do not show
what they should."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.service.main import check_config
from daemons.cli.connection import OperatorConfig
from daemons.config.controller import ControllerConfig
from daemons.manifests.agreement import AgreementFile
from daemons.manifests.job import JobFile
from daemons.manifests.load import LoadFile
from daemons.manifests.web_app import WebFile
from daemons.portal.config import PortalConfig
from daemons.portal.main import check as check_portal
from daemons.service.main import check as check_controller
from shared.config.agent import AgentConfig
from tests.conformance.settings import agent, agreements, controller_core, controller_nodes, controller_service, daemons, jobs, portal, web
from tests.conformance.settings.keys import keys_of
from tests.conformance.settings.row import Given, Harness, Row

HERE = {"public_url": "http://127.0.0.1:8443"}
PROGRAMS = {"hypervisor.driver": "process"}

FILES: dict[str, tuple[type[Any], tuple[Row, ...]]] = {
    "controller": (
        ControllerConfig,
        (
            *controller_core.TABLE,
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
    "agreement": (AgreementFile, agreements.TABLE),
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


@pytest.fixture(scope="module")
def seen() -> dict[tuple[Harness, str], object]:
    """What a harness has shown of a text: many rows begin with the same."""
    return {}


@pytest.mark.parametrize("row", [*_rows()])
def test_a_key_makes_a_difference(row: Row, seen: dict[tuple[Harness, str], object], tmp_path: Path) -> None:
    one, other = row.texts()
    assert one != other

    def observed(text: str, name: str) -> object:
        folder = tmp_path / name
        folder.mkdir()
        return row.harness(Given(text, folder))

    if (row.harness, one) not in seen:
        seen[row.harness, one] = observed(one, "one")
        assert seen[row.harness, one] == observed(one, "again"), "what is observed is not of the file alone"
    assert seen[row.harness, one] != observed(other, "other"), "the key makes no difference"
