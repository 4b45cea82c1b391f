"""What tests of several folders share."""

from __future__ import annotations

import gc
import importlib.util
import os
import socket
import sys
from collections.abc import Generator, Iterator
from itertools import chain, islice
from pathlib import Path
from types import ModuleType

import pytest
import structlog
from hypothesis import HealthCheck, settings

from shared.runtime.startup import GARBAGE_AFTER
from tests.extent import examples

# A test says the same each time and on a machine that does other work: examples are the same ones, no limit is of time.
settings.register_profile(
    "trimtab",
    deadline=None,
    derandomize=True,
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("search", settings.get_profile("trimtab"), derandomize=False)
settings.load_profile("trimtab")

HAS_FAILED = pytest.StashKey[bool]()
HERE = Path(__file__).parent
LONG = {"integration", "docs", "digests", "fuzz", "security", "simulation"}  # folders


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Each worker tells pytest-rerunfailures's server of each test in two small messages, of which the second waited
    for the first to be acknowledged: 20 ms a test."""
    told_by = getattr(getattr(config, "failures_db", None), "sock", None)
    if told_by is not None:
        told_by.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests on real processes and other long ones first, in equal parts on all workers: they wait for much and keep few
    processors busy, so that others run beside them. Those of one file stay together, since they share a scene."""
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        if not LONG.isdisjoint(item.path.relative_to(HERE).parts):
            files.setdefault(item.path, []).append(item)
    parts: list[list[pytest.Item]] = [[] for _ in range(workers)]
    for at, file in enumerate(sorted(files)):
        parts[at % workers] += files[file]
    short = iter([item for item in items if item.path not in files])
    left = len(items)
    for at, part in enumerate(parts):  # as pytest-xdist shares them out
        size = left // (workers - at)
        part += islice(short, max(0, size - len(part)))
        left -= len(part)
    items[:] = [*chain.from_iterable(parts), *short]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays: looking through it for garbage, again and again, took half of the time for that. Later
    it is looked for as rarely as in a daemon."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(GARBAGE_AFTER, *gc.get_threshold()[1:])
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note whether a try has failed."""
    report = yield
    item.stash[HAS_FAILED] = report.failed or (report.when != "setup" and item.stash.get(HAS_FAILED, False))
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """What a test shares with others is made anew once it has failed: nobody finds what it left, nor its second try.

    Before pytest-rerunfailures keeps it for that.
    """
    if item.stash.get(HAS_FAILED, False):
        item.session._setupstate.teardown_exact(None)


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """What a test sets up for the log ends with the test: the stream that it goes to is closed then."""
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def own_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are as wide as COLUMNS says; no test depends on the terminal that it was started from."""
    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def libvirt_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a file of the agent name the driver libvirt, also where the library is missing: nothing of it is called."""
    if importlib.util.find_spec("libvirt") is None:
        monkeypatch.setitem(sys.modules, "libvirt", ModuleType("libvirt"))


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of public logs and traces that TRIMTAB_DATA names: without it the test is skipped, on CI it fails."""
    folder = Path(os.environ.get("TRIMTAB_DATA", ""))
    if os.environ.get("TRIMTAB_DATA") and folder.is_dir():
        return folder
    reason = "TRIMTAB_DATA does not name the folder of the public logs and traces"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What a test failed with at its first try (`--reruns`), also where it passed later: a defect to look into. Then
    how much the fuzz tests tried, and what it took."""
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"first try of {report.nodeid}", sep="_")
        terminalreporter.line(report.longreprtext)
    for report in terminalreporter.stats.get("passed", []) + terminalreporter.stats.get("failed", []):
        for name, words in report.user_properties:
            if name == "fuzz":
                terminalreporter.line(f"{report.nodeid}: {words}")
