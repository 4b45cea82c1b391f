"""Run everything that `make test` leaves out, in parts, one after another: `python -m tests.full [PART...]`.

Each part has the machine for itself. Its output goes to out/full/PART.log; at the end a table says which parts passed,
how long they took, and how many tests needed a second try: each is a defect to look into, and is printed. What was
skipped is printed with its reason.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOGS = ROOT / "out" / "full"
PYTEST = (sys.executable, "-m", "pytest", "--reruns", "1")
PARALLEL = ("-n", os.environ.get("WORKERS", "3"), "--dist", "worksteal")
PACKAGE_TESTS = (
    "tests/integration/test_package.py",
    "tests/integration/test_first_day.py",
    "tests/integration/test_advisories.py",
)
OWN_PART = ("tests/lab", "tests/browser", "tests/soak", *PACKAGE_TESTS)
SEEDS, DAYS = os.environ.get("SEEDS", "0-199"), os.environ.get("DAYS", "0-19")
EXISTING = os.environ.get("EXISTING", "0-399")
FUZZ = os.environ.get("FUZZ", "500000")
SKIPPED = re.compile(r"^SKIPPED \[\d+\] (.+)$", re.MULTILINE)
RETRIED = re.compile(r"\b(\d+) rerun\b")
TAIL_LINES = 40


@dataclass(frozen=True, slots=True)
class Part:
    """Commands that run alone on the machine."""

    name: str
    what: str
    commands: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a part went. `retries`: how many tests were run a second time."""

    name: str
    passed: bool
    seconds: float
    retries: int


def _pytest(marks: str, *words: str) -> tuple[str, ...]:
    return (*PYTEST, "-m", marks, *words)


def _ignored() -> tuple[str, ...]:
    return tuple(word for path in OWN_PART for word in ("--ignore", path))


def _faults(*words: str) -> tuple[str, ...]:
    return (str(Path(sys.executable).with_name("trimtab")), "sim", "faults", *words)


PARTS = (
    Part(
        "cases",
        "every case and example, kill matrices, experiments",
        (_pytest("(full or accept or hypothesis) and not alone", *PARALLEL, *_ignored(), "tests"),),
    ),
    Part(
        "machine",
        "what measures this machine's time",
        (_pytest("(full or accept) and alone", *_ignored(), "tests"),),
    ),
    Part("soak", "real daemons for half an hour: faults, a month of decisions", (_pytest("full", "tests/soak"),)),
    Part("lab", "hosts with libvirt and QEMU", (_pytest("full or accept", "tests/lab"),)),
    Part("browser", "every page of the portal in Chromium", (_pytest("full", "tests/browser"),)),
    Part(
        "fuzz",
        "half a million inputs that are nearly right",
        ((sys.executable, "-m", "tests.fuzz", "--cases", FUZZ),),
    ),
    Part(
        "packages",
        "the Debian packages on machines of their own, known vulnerabilities of what they hold",
        (_pytest("full", *PACKAGE_TESTS),),
    ),
    Part(
        "lowest",
        "the quick tests with the oldest versions that setup.cfg allows",
        ((sys.executable, "-m", "tests.lowest"),),
    ),
    Part(
        "seeds",
        "fault seeds of two hours: plain, with environments, with adopted VMs; and of a day",
        (
            _faults("--seeds", SEEDS),
            _faults("--environments", "--seeds", SEEDS),
            _faults("--existing-vms", "--seeds", EXISTING),
            _faults("--environments", "--hours", "24", "--seeds", DAYS),
        ),
    ),
)


def run(part: Part) -> Verdict:
    """Run a part; its output is in its log, the end of it is printed where it failed."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{part.name}.log"
    began_s = time.monotonic()
    passed = True
    with log.open("wb") as out:
        for command in part.commands:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env={**os.environ, "TRIMTAB_TESTS": "thorough"},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                check=False,
            )
            passed = passed and done.returncode == 0
    text = log.read_text("utf-8", errors="replace")
    if not passed:
        print("\n".join(text.splitlines()[-TAIL_LINES:]), flush=True)
    for first_try in re.findall(r"^_+ first try of (.+?) _+$", text, re.MULTILINE):
        print(f"{part.name}: a second try of {first_try} (its first is in {log.relative_to(ROOT)})", flush=True)
    for skipped in SKIPPED.findall(text):
        print(f"{part.name}: skipped {skipped}", flush=True)
    return Verdict(part.name, passed, time.monotonic() - began_s, retries_in(text))


def retries_in(text: str) -> int:
    """Count the tests of a pytest log that were run a second time."""
    return sum(int(count) for count in RETRIED.findall(text))


def table(verdicts: Sequence[Verdict]) -> str:
    """Format one line for each part."""
    rows = [f"{'part':10} {'result':7} {'minutes':>7} {'retries':>7}"]
    rows += [
        f"{one.name:10} {'passed' if one.passed else 'FAILED':7} {one.seconds / 60:7.1f} {one.retries:7d}"
        for one in verdicts
    ]
    return "\n".join(rows)


def main(names: Sequence[str]) -> int:
    """Run the parts of these names, or all; returns the exit status."""
    known = {part.name: part for part in PARTS}
    unknown = [name for name in names if name not in known]
    if unknown:
        lines = "\n".join(f"  {part.name:10} {part.what}" for part in PARTS)
        print(f"there is no part {unknown[0]!r}; the parts are:\n{lines}", file=sys.stderr)
        return 2
    verdicts = []
    for part in [known[name] for name in names] or PARTS:
        print(f"{part.name}: {part.what}", flush=True)
        verdicts.append(run(part))
    print(table(verdicts))
    return 0 if all(verdict.passed for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
