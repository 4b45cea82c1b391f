"""The portal before 1,000 nodes, 5,000 workloads and a month of history: 20 readers, what they cost the controller."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random
from statistics import median, quantiles
from typing import Any
from urllib.parse import urlsplit

import click
from msgspec import structs

from benchmarks import wire_broker
from benchmarks.portal_cluster import CLOCK, DECIDE_S, LOAD, READERS, ROOT, TERM, Cluster, cluster, cpu_s, memory_mib
from benchmarks.runner import Figure
from benchmarks.wire_broker import Driver
from benchmarks.wire_load import report
from daemons.portal.auth.sessions import COOKIE
from shared.base.clock import perf_s
from shared.config.common import Log, LogLevel
from shared.runtime.startup import configure_log

DECISIONS = 10
SPAN_S = DECIDE_S * (DECISIONS + 1)
FIRST_BYTE_MAX_S = 0.3
GROWTH_MAX = 1.25
SHOWN_MAX_S = 2.0
PROBE_S = 5.0  # between two reports whose way to the page is measured
GIVE_UP_S = 20.0
MILLI = 1e3
NODE = LOAD.names[-1]
SOME = LOAD.names[LOAD.nodes // 2]

# Every page by kind; a job, node, decision and so on in the middle of what there is.
PAGES = (
    ("now", "/"),
    ("decisions", "/decision"),
    ("a decision", "/decision/1440"),
    ("nodes", "/nodes"),
    ("nodes, sorted", "/nodes?sort=-cpu&page=3"),
    ("a node", f"/nodes/{SOME}?hours=168"),
    ("jobs", "/workloads"),
    ("jobs, sorted", "/workloads?sort=progress&page=7&q=job"),
    ("a job", f"/workloads/jobs/job-{SOME}-1"),
    ("web applications", "/workloads/web"),
    ("a web application", "/workloads/web/shop3"),
    ("VMs", "/vms"),
    ("a VM", f"/vms/one?vm=job-{SOME}-1%230&node={SOME}"),
    ("submit", "/workloads/submit"),
    ("environments", "/environments"),
    ("an environment", "/environments/site3"),
    ("forecast", "/forecast"),
    ("what if", "/what-if"),
    ("a report of 7 days", "/reports?from=7d&to=now"),
    ("a report of 30 days", "/reports?from=30d&to=now"),
    ("notifications", "/notifications"),
    ("audit", "/audit"),
    ("accounts", "/accounts"),
)


def figures(say: Callable[[str], None]) -> Iterator[Figure]:
    """Everything, in some minutes; nothing where there is no RabbitMQ."""
    yield from measured(say)


def measured(say: Callable[[str], None], made: Path | None = None, span_s: float = SPAN_S) -> Iterator[Figure]:
    """The same with a store that is there already, or for another time."""
    configure_log(Log(LogLevel.WARNING))
    try:
        with wire_broker.broker() as broker, tempfile.TemporaryDirectory(prefix="trimtab-bench-") as folder:
            say("a month of history, a controller, a portal")
            with cluster(broker, Path(folder), made) as it:
                yield from _measured(it, say, span_s)
    except wire_broker.NoBroker as reason:
        say(f"left out the portal: {reason}")


def _measured(it: Cluster, say: Callable[[str], None], span_s: float) -> Iterator[Figure]:
    say(f"{span_s / 2:g} s without readers")
    alone, alone_cpu = _alone(it, span_s / 2)
    say(f"{span_s:g} s with {READERS} readers")
    with _probing(it, say) as shown_s:
        found: list[dict[str, Any]] = []
        beside, beside_cpu = _during(it, lambda: found.append(_readers(it, span_s)))
    (seen,) = found
    say(f"{span_s / 2:g} s without readers")  # some before and some after, since machines grow slower and quicker
    after, after_cpu = _alone(it, span_s / 2)
    alone += after
    for what, times in sorted(seen["wrong"].items()):
        say(f"  wrong: {what}, {times} times")
    if not (alone and beside):
        raise RuntimeError(f"there were {len(alone)} decisions without readers and {len(beside)} with them")
    yield from _costs(alone, beside)
    yield from _pages(seen["times_s"], span_s)
    yield from _live(shown_s)
    yield Figure(BENCH, "answers that were wrong", sum(seen["wrong"].values()), "", most=0)
    for name, process, without, used in (
        ("controller", it.controller, alone_cpu[0] + after_cpu[0], beside_cpu[0]),
        ("portal", it.portal, alone_cpu[1] + after_cpu[1], beside_cpu[1]),
    ):
        yield Figure(BENCH, f"{name}: share of a core without readers", without / span_s, "")
        yield Figure(BENCH, f"{name}: share of a core with them", used / span_s, "")
        for part, mib in memory_mib(process).items():
            yield Figure(BENCH, f"{name}: memory (RSS){part and ', '}{part}", mib, "MiB")


BENCH = f"portal, {LOAD.nodes} nodes, {LOAD.workloads} workloads, 30 days"


def _alone(it: Cluster, span_s: float) -> tuple[list[float], tuple[float, float]]:
    """`_during` without readers, once what was begun for some is over."""
    CLOCK.sleep(DECIDE_S)
    return _during(it, lambda: CLOCK.sleep(span_s))


def _during(it: Cluster, work: Callable[[], object]) -> tuple[list[float], tuple[float, float]]:
    """How long the decisions took that came meanwhile, and the CPU time of controller and portal themselves."""
    before, processes = len(it.decided_s()), (it.controller, it.portal)
    used = [cpu_s(process)[process.pid] for process in processes]
    work()
    spent = [cpu_s(process)[process.pid] - begun for process, begun in zip(processes, used, strict=True)]
    return it.decided_s()[before:], (spent[0], spent[1])


def _readers(it: Cluster, span_s: float) -> dict[str, Any]:
    plan = {"url": it.url, "words": it.words[:READERS], "pages": PAGES, "span_s": span_s}
    file = it.folder / "readers.json"
    file.write_text(json.dumps(plan), encoding="utf-8")
    file.chmod(0o600)
    command = [sys.executable, "-m", "benchmarks.portal_readers", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=2 * span_s + 60.0)
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


# --- figures ------------------------------------------------------------------------------------------------------


def _costs(alone: Sequence[float], beside: Sequence[float]) -> Iterator[Figure]:
    growth = median(beside) / median(alone)
    yield Figure(BENCH, "time of a decision with readers / without", growth, "", most=GROWTH_MAX)
    yield Figure(BENCH, f"time of a decision without readers, median of {len(alone)}", median(alone) * MILLI, "ms")
    yield Figure(BENCH, f"time of a decision with them, median of {len(beside)}", median(beside) * MILLI, "ms")


def _pages(times_s: Mapping[str, Sequence[float]], span_s: float) -> Iterator[Figure]:
    every = [time for kind, times in times_s.items() if kind != "picture" for time in times]
    yield Figure(BENCH, "pages a second", len(every) / span_s, "/s")
    for kind, times in {"all pages": every, **times_s}.items():
        most = None if kind == "picture" else FIRST_BYTE_MAX_S * MILLI
        cuts = quantiles(times, n=100, method="inclusive") if len(times) > 1 else [times[0]] * 99
        yield Figure(BENCH, f"{kind}: first byte, 95th percentile of {len(times)}", cuts[94] * MILLI, "ms", most=most)
        yield Figure(BENCH, f"{kind}: first byte, median", cuts[49] * MILLI, "ms")
        yield Figure(BENCH, f"{kind}: first byte, slowest", max(times) * MILLI, "ms")


def _live(shown_s: Sequence[float]) -> Iterator[Figure]:
    if not shown_s:
        raise RuntimeError("no report was shown")
    what = f"from a report to the page that shows it, slowest of {len(shown_s)}"
    yield Figure(BENCH, what, max(shown_s), "s", most=SHOWN_MAX_S)
    yield Figure(BENCH, "from a report to the page that shows it, median", median(shown_s), "s")


# --- from a report to the page ------------------------------------------------------------------------------------


@contextmanager
def _probing(it: Cluster, say: Callable[[str], None]) -> Iterator[list[float]]:
    """Sends reports of a node of its own meanwhile; what it yields holds how long each took to be shown."""
    shown_s: list[float] = []
    ended = threading.Event()
    thread = threading.Thread(target=_probe, args=(it, ended, shown_s, say), daemon=True)
    thread.start()
    try:
        yield shown_s
    finally:
        ended.set()
        thread.join(2 * GIVE_UP_S)


def _probe(it: Cluster, ended: threading.Event, shown_s: list[float], say: Callable[[str], None]) -> None:
    driver, chance = Driver(it.broker_url), Random(1)
    line = _Line(it)
    try:
        for seq in count(1):
            driver.wait(PROBE_S + chance.random())
            if ended.is_set():
                return
            used = 0.11 + 0.08 * (seq % 10)
            told = report(NODE, seq, CLOCK.now_s(), TERM)
            driver.send([replace(told, sample=structs.replace(told.sample, cpu_frac=used))])
            took_s = line.shown_s(f">{100.0 * used:.0f} %<")
            if took_s is None:
                say(f"  a report was not shown within {GIVE_UP_S:g} s")
            elif seq > 1:  # with the first the node comes up
                shown_s.append(took_s)
    finally:
        line.close()
        driver.close()


class _Line:
    """A page that is open and follows what changes: it hears of a change and asks for its part anew."""

    def __init__(self, it: Cluster) -> None:
        parts = urlsplit(it.url)
        self._place = (str(parts.hostname), int(parts.port or 80))
        self._headers = {"Cookie": f"{COOKIE}={it.words[-1]}"}
        self._pages = http.client.HTTPConnection(*self._place, timeout=GIVE_UP_S)
        self._socket = socket.create_connection(self._place, timeout=GIVE_UP_S)
        lines = [f"GET /live?views=nodes HTTP/1.1\r\nHost: {parts.netloc}\r\n"]
        lines += [f"{name}: {value}\r\n" for name, value in self._headers.items()]
        self._socket.sendall("".join((*lines, "\r\n")).encode())
        self._told = self._socket.makefile("rb")

    def shown_s(self, text: str) -> float | None:
        """Seconds until the page shows a text in the row of the node; None when that takes too long."""
        begun_s = perf_s()
        while perf_s() - begun_s < GIVE_UP_S:
            while not self._told.readline().startswith(b"event: changed"):
                pass
            self._pages.request("GET", f"/nodes?q={NODE}", headers=self._headers)
            if text in self._pages.getresponse().read().decode():
                return perf_s() - begun_s
        return None

    def close(self) -> None:
        """End both connections."""
        self._pages.close()
        self._socket.close()


@click.command()
@click.option("--store", "made", type=click.Path(path_type=Path), help="A store that history_store has made.")
@click.option("--seconds", "span_s", type=float, default=SPAN_S, show_default=True, help="Without readers, and with.")
def main(made: Path | None, span_s: float) -> None:
    """Measure with a store that is there already."""
    for each in measured(click.echo, made, span_s):
        bound = "" if each.most is None else f"  (at most {each.most:g}: {'holds' if each.holds else 'NO'})"
        click.echo(f"{each.what}: {each.value:,.4g} {each.unit}{bound}")


if __name__ == "__main__":
    main()
