"""A user who sends the largest texts at once keeps nobody from submitting, and takes little memory."""

from __future__ import annotations

import http.client
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.security.server import ATTACKER, CLOCK, PASSWORD, VISITOR, Attacked

LARGE = 'name = "a"\nrequired_labels = [' + "1," * 240_000 + "]\n"
SMALL = 'name = "b"\nenvironment = "night"\nclass = "x"\n'
LIMIT_S, PATIENCE_S = 20.0, 90.0
PAGE = "/workloads/submit"


class Person:
    """Somebody with a browser."""

    def __init__(self, portal: Attacked, source: str) -> None:
        self._portal, self._source = portal, source
        self._cookies: dict[str, str] = {}

    def send(self, method: str, path: str, **fields: str) -> tuple[int, str]:
        """The status and the text of an answer."""
        connection = self._portal.connect(self._source)
        connection.timeout = PATIENCE_S
        host, body = self._portal.host, urlencode(fields) if fields else None
        headers = {"Host": host, "Origin": f"https://{host}", "Content-Type": "application/x-www-form-urlencoded"}
        headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self._cookies.items())
        try:
            connection.request(method, path, body, headers)
            answer: http.client.HTTPResponse = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        for each in answer.headers.get_all("set-cookie", []):
            name, _, value = each.partition(";")[0].partition("=")
            self._cookies[name] = value
        return answer.status, text

    def post(self, path: str, page: str, **fields: str) -> tuple[int, str]:
        """Send the form of a page."""
        found = re.search(r'name="csrf" value="([^"]*)"', self.send("GET", page)[1])
        assert found is not None
        return self.send("POST", path, csrf=found[1], **fields)


def logged_in(portal: Attacked, name: str, source: str) -> Person:
    person = Person(portal, source)
    status, text = person.post("/login", "/login", name=name, password=PASSWORD)
    assert status == 303, text
    return person


@pytest.mark.full
@pytest.mark.alone
def test_large_texts_of_one_keep_nobody_from_submitting(portal: Attacked) -> None:
    portal.add_account("joe")
    portal.add_account("kim", "owner")
    joe, kim = logged_in(portal, "joe", ATTACKER), logged_in(portal, "kim", VISITOR)
    kim.post(PAGE, PAGE, toml=SMALL, do="check")  # its process is there
    with ThreadPoolExecutor(8) as pool:
        large = [pool.submit(joe.post, PAGE, PAGE, toml=LARGE, do="check") for _ in range(8)]
        CLOCK.sleep(0.5)
        begun_s = CLOCK.monotonic_s()
        status, text = kim.post(PAGE, PAGE, toml=SMALL, do="check")
        took_s = CLOCK.monotonic_s() - begun_s
        answers = [each.result() for each in large]
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{portal.process.pid}/status").read_text())

    assert status == 200, text
    assert took_s < LIMIT_S
    assert {each for each, _ in answers} == {422}
    assert max(text.count("<li>") for _, text in answers) < 120
    assert peak is not None
    assert int(peak[1]) < 512 * 1024
    print(f"{took_s:.2f} s, {int(peak[1]) / 1024:.0f} MiB")
