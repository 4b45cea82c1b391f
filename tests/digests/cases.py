"""The runs whose digests are kept: fault seeds without and with environments, a day, and a `trimtab sim run`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from click.testing import CliRunner

from daemons.cli.main import main
from sim_backend.faults.run import FaultRun, RunKind, loop_settings
from tests.digests.recorder import Digest, Recorder, digest_of

DIGESTS = Path(__file__).with_name("digests.json")
SEEDS = 30
DAY_HOURS = 24
RUN = ("--nodes", "6", "--jobs", "24", "--policy", "apc")


def seed(kind: RunKind, number: int) -> Digest:
    """Play a fault seed to its end."""
    script = kind.script(number)
    run = FaultRun(script, loop_settings(script))
    recorder = Recorder(run.loop)
    run.run()
    return recorder.digest()


def sim_run() -> Digest:
    """Run `trimtab sim run`; its report, without how long it took."""
    with TemporaryDirectory() as folder:
        outcome = CliRunner().invoke(main, ["sim", "run", *RUN, "--output-folder", folder])
        assert outcome.exit_code == 0, outcome.output
        report = json.loads((Path(folder) / "report.json").read_text("utf-8"))
    report.pop("wall_s")
    return digest_of(report)


def _cases() -> Mapping[str, Callable[[], Digest]]:
    plain, environments = RunKind(), RunKind(environments=True)
    found: dict[str, Callable[[], Digest]] = {"run": sim_run}
    for number in range(SEEDS):
        found[f"plain-{number:02}"] = partial(seed, plain, number)
        found[f"environments-{number:02}"] = partial(seed, environments, number)
    found["day"] = partial(seed, RunKind(environments=True, hours=DAY_HOURS), 0)
    return found


CASES = _cases()
QUICK = ("run", "plain-00", "plain-07", "environments-00")
