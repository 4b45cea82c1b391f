"""Counters of web applications: what a page says, what has happened between two, what a broken server does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from daemons.drivers.web_metrics import PAGE_BYTES_MAX, Scraper, between, http_fetch, read_page
from shared.base.errors import TransientError
from shared.ports.effects import Scrape
from shared.values.web_app import FLOWS_MAX, FlowSample


def page(served: int, rejected: int = 0, fast: int = 0, slow: int = 0, seconds: float = 0.0, queued: int = 0) -> str:
    """A page of one flow; `fast` requests were answered within 0.1 s, `slow` ones within 0.5 s, the rest later."""
    return f"""# HELP trimtab_flow_requests_total Requests.
# TYPE trimtab_flow_requests_total counter
trimtab_flow_requests_total{{flow="browse",outcome="served",server="a"}} {served - served // 2}
trimtab_flow_requests_total{{flow="browse",outcome="served",server="b"}} {served // 2}
trimtab_flow_requests_total{{flow="browse",outcome="rejected",server="a"}} {rejected}
# TYPE trimtab_flow_response_seconds histogram
trimtab_flow_response_seconds_bucket{{flow="browse",le="0.1"}} {fast}
trimtab_flow_response_seconds_bucket{{flow="browse",le="0.5"}} {fast + slow}
trimtab_flow_response_seconds_bucket{{flow="browse",le="+Inf"}} {served}
trimtab_flow_response_seconds_sum{{flow="browse"}} {seconds}
trimtab_flow_response_seconds_count{{flow="browse"}} {served}
# TYPE trimtab_flow_queued gauge
trimtab_flow_queued{{flow="browse"}} {queued}
some_other_metric{{flow="browse"}} 7
"""


def sample(before: str, after: str, percentile: float = 0.0) -> FlowSample | None:
    return between("browse", read_page(before)["browse"], read_page(after)["browse"], 10.0, percentile)


def test_what_happened_between_two_pages() -> None:
    found = sample(page(100, 5, seconds=10.0), page(300, 15, seconds=40.0, queued=3))
    assert found == FlowSample("browse", 10.0, 0, served=200, rejected=10, queued=3, mean_s=0.15)


@pytest.mark.parametrize(
    ("percentile", "expected_s"),
    [(0.25, 0.05), (0.5, 0.1), (0.75, 0.1 + 0.4 * 25 / 40), (0.9, 0.5), (0.99, 0.5)],
)
def test_percentiles_are_read_off_the_histogram(percentile: float, expected_s: float) -> None:
    """Of 100 requests 50 take up to 0.1 s, 40 up to 0.5 s, 10 longer: of these only the beginning is known."""
    found = sample(page(100, fast=90, slow=10), page(200, fast=140, slow=50), percentile)
    assert found is not None
    assert found.percentile_s == pytest.approx(expected_s)


def test_nothing_answered_takes_no_time() -> None:
    assert sample(page(100, seconds=10.0), page(100, seconds=10.0), 0.9) == FlowSample("browse", 10.0)


def test_counters_that_begin_anew_say_nothing() -> None:
    assert sample(page(300), page(10)) is None
    assert sample(page(300, rejected=5), page(400, rejected=1)) is None


def test_the_histogram_counts_what_was_answered_where_nothing_else_does() -> None:
    lines = [line for line in page(300).splitlines() if "outcome" not in line]
    before = [line for line in page(100).splitlines() if "outcome" not in line]
    found = sample("\n".join(before) + "\n", "\n".join(lines) + "\n")
    assert found is not None
    assert found.served == 200


@pytest.mark.parametrize(
    "text",
    [
        *("<html>", 'trimtab_flow_requests_total{flow="browse" 12\n', "a b c d\n", 'x{le="0.1",} one\n', "\0"),
        *('x{a="b", =""} 1\n', f'x{{a="b"}} 1 {10**400}\n'),
    ],
)
def test_what_is_no_page_of_metrics(text: str) -> None:
    with pytest.raises(TransientError, match="not a page of metrics"):
        read_page(text)


def test_figures_that_cannot_be_are_left_out() -> None:
    text = "".join(
        f'trimtab_flow_requests_total{{flow="{name}",outcome="served"}} {value}\n'
        for name, value in (("a", "NaN"), ("b", "-1"), ("c", "+Inf"), ("d", "1e300"), ("e", "5"), ("", "5"))
    )
    assert list(read_page(text)) == ["e"]
    many = "".join(f'trimtab_flow_queued{{flow="f{number}"}} 1\n' for number in range(2 * FLOWS_MAX))
    assert len(read_page(many)) == FLOWS_MAX


# --- again and again --------------------------------------------------------------------------------------------------


class Pages:
    """Gives one page after the other, `step_s` apart; one that is an error is raised."""

    def __init__(self, *pages: str | TransientError, step_s: float = 5.0) -> None:
        self.pages, self.time_s, self.step_s = list(pages), 0.0, step_s

    def fetch(self, url: str) -> str:
        assert url.endswith("/metrics")
        self.time_s += self.step_s
        found = self.pages.pop(0)
        if isinstance(found, TransientError):
            raise found
        return found

    def scraper(self) -> Scraper:
        return Scraper(self.fetch, lambda: self.time_s, lambda: 1000.0 + self.time_s)


SCRAPE = Scrape("shop", "http://lb/metrics", (("browse", 0.5),))


def test_the_first_reading_says_nothing_yet() -> None:
    scraper = Pages(page(100), page(300, fast=200)).scraper()
    first, second = scraper.scrape(SCRAPE), scraper.scrape(SCRAPE)
    assert (first.flows, first.error, first.at_s) == ((), "", 1005.0)
    assert second.flows == (FlowSample("browse", 5.0, served=200, percentile_s=0.05),)


def test_a_reading_that_fails_makes_the_next_window_longer() -> None:
    scraper = Pages(page(100), TransientError("no route"), page(300)).scraper()
    answers = [scraper.scrape(SCRAPE) for _ in range(3)]
    assert [answer.error for answer in answers] == ["", "no route", ""]
    assert [flow.window_s for flow in answers[2].flows] == [10.0]


def test_another_page_begins_anew() -> None:
    scraper = Pages(page(100), page(300), page(350)).scraper()
    scraper.scrape(SCRAPE)
    assert scraper.scrape(Scrape("shop", "http://other/metrics")).flows == ()
    assert [flow.served for flow in scraper.scrape(Scrape("shop", "http://other/metrics")).flows] == [50]


# --- over HTTP --------------------------------------------------------------------------------------------------------


@contextmanager
def server(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """A server that answers every request so; gives its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *_: object) -> None:
            """Not to standard error."""

    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.daemon_threads = True
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{made.server_address[1]}/metrics"
    finally:
        made.shutdown()
        thread.join()
        made.server_close()


def fetch(url: str, limit_s: float = 5.0) -> str:
    return http_fetch(url, limit_s)


def send(handler: BaseHTTPRequestHandler, status: int, body: bytes, **headers: str) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


def test_a_page_over_http() -> None:
    with server(lambda handler: send(handler, 200, page(5).encode())) as url:
        assert read_page(fetch(url))["browse"].counts["served"] == 5.0


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda handler: send(handler, 500, b"no"), "status 500"),
        (lambda handler: send(handler, 302, b"", Location="file:///etc/passwd"), "status 302"),
        (lambda handler: send(handler, 200, b"#" * (PAGE_BYTES_MAX + 1)), "more than"),
        (lambda handler: handler.wfile.write(b"nonsense\r\n\r\n"), "BadStatusLine"),
        (lambda _: None, "Remote"),
    ],
)
def test_what_is_no_answer(answer: Callable[[BaseHTTPRequestHandler], None], said: str) -> None:
    with server(answer) as url, pytest.raises(TransientError, match=said):
        fetch(url)


def test_a_server_that_sends_a_byte_now_and_then_is_given_up() -> None:
    """Each byte comes within the time-out of the socket; all of them together do not."""
    ended = threading.Event()

    def trickle(handler: BaseHTTPRequestHandler) -> None:
        send(handler, 200, b"")
        try:
            while not ended.wait(0.05):
                handler.wfile.write(b"#")
                handler.wfile.flush()
        except OSError:
            return

    with server(trickle) as url:
        with pytest.raises(TransientError, match=r"within 0\.3 s"):
            fetch(url, 0.3)
        ended.set()


def test_a_server_that_says_nothing_is_given_up() -> None:
    ended = threading.Event()

    def wait(_: BaseHTTPRequestHandler) -> None:
        ended.wait(30.0)

    with server(wait) as url:
        with pytest.raises(TransientError, match="timed out"):
            fetch(url, 0.2)
        ended.set()


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/x", "file:///etc/passwd", "ftp://127.0.0.1/x"])
def test_nobody_there_and_other_protocols(url: str) -> None:
    with pytest.raises(TransientError):
        fetch(url, 1.0)
