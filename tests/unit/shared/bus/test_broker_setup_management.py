"""The broker's management interface: answers that are none, and where the administrator's password goes."""

from __future__ import annotations

import pytest

from shared.base.errors import BusUnavailable, PermanentError, TransientError
from shared.bus.broker_setup import ManagementApi
from tests.ports import free_port
from tests.support.notify_servers import web_server


def test_a_password_is_sent_on_to_no_other_address() -> None:
    with web_server() as web:
        web.statuses = [302]
        with pytest.raises(PermanentError, match="refused POST definitions: 302 said so"):
            ManagementApi(f"http://127.0.0.1:{web.port}/", "admin", "hunter2").apply({})

    ((path, headers, body),) = web.received
    assert (path, headers["Authorization"], body) == ("/api/definitions", "Basic YWRtaW46aHVudGVyMg==", b"{}")


def test_what_is_no_json_is_told() -> None:
    with web_server() as web:
        web.statuses = [200]
        with pytest.raises(PermanentError, match="something else than JSON"):
            ManagementApi(f"http://127.0.0.1:{web.port}", "admin", "hunter2").apply({})


def test_an_answer_that_drips_is_given_up() -> None:
    with web_server() as web:
        web.drips = True
        with pytest.raises(BusUnavailable, match=r"no answer within 0\.3 s.*management plugin"):
            ManagementApi(f"http://127.0.0.1:{web.port}", "admin", "hunter2", 0.3).apply({})


def test_nobody_there_may_come_and_an_address_that_is_none_will_not() -> None:
    with pytest.raises(TransientError, match="ConnectionRefusedError"):
        ManagementApi(f"http://127.0.0.1:{free_port()}", "admin", "hunter2").present()
    with pytest.raises(PermanentError, match="that can be asked"):
        ManagementApi("ftp://127.0.0.1", "admin", "hunter2").present()
