"""Everything that reads a file, each with the whole files that are changed for it.

A command is given the changed file in the place of `{}`; `{:BASE}` is another file as it is. A reader without a command
line is called.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fuzz.bases import saved_lines
from tests.fuzz.mutations import Form, mutated
from tests.fuzz.scene import Ended, Scene, called, judged

JSON = ("--output", "json")
STREAMS = ("events",)
"""Commands whose JSON is an object on each line."""


@dataclass(frozen=True, slots=True)
class Reader:
    """`files`: what is changed. `words`: the command, of `program`. `share`: how often it is tried beside others.
    `is_long`: what it is asked for may take long within its bounds, so that it is interrupted after a while."""

    name: str
    form: Form
    files: tuple[str, ...]
    words: tuple[str, ...] = ()
    program: str = "trimtab"
    share: float = 1.0
    is_long: bool = False
    call: Callable[[Scene, Path], str] | None = None
    whole: Callable[[Scene, bytes], bytes] | None = None
    more: tuple[tuple[str, ...], ...] = ((),)

    def run(self, scene: Scene, rng: random.Random) -> str:
        """One case: what is wrong with how it ended ("": nothing)."""
        file = rng.choice(self.files)
        content = mutated(scene.bases[file], self.form, rng)
        target = file
        if self.whole is not None:
            content, target = self.whole(scene, content), "saved"
        scene.put(target, content)
        if self.call is not None:
            return self.call(scene, scene.folder / target)
        words = [target if word == "{}" else word for word in (*self.words, *rng.choice(self.more))]
        wants_json = self.program == "trimtab" and "--output" not in words and rng.random() < 0.5
        ended = self.ended(scene, [*words, *(JSON if wants_json else ())])
        stream = wants_json and self.words[0] in STREAMS
        return judged(ended, wants_json and not stream, _reads_like_nan(content), self.is_long, stream)

    def ended(self, scene: Scene, words: Sequence[str]) -> Ended:
        """How the command ends."""
        return run_program(scene, self.program, words)


def run_program(scene: Scene, program: str, words: Sequence[str]) -> Ended:
    """Run one of the programs here."""
    if program == "trimtab":
        return scene.trimtab(words)
    return scene.daemon(_mains()[program], words)


def _mains() -> dict[str, Callable[[Sequence[str]], int]]:
    import agents.service.main
    import daemons.portal.main
    import daemons.service.main

    return {
        "trimtab-agent": agents.service.main.main,
        "trimtab-controller": daemons.service.main.main,
        "trimtab-portal": daemons.portal.main.main,
    }


def _reads_like_nan(content: bytes) -> bool:
    lowered = content.lower()
    return any(word in lowered for word in (b'"nan', b'"inf', b'"-nan', b'"-inf'))


def _again(part: int) -> Callable[[Scene, bytes], bytes]:
    """Put a changed line into a saved request."""

    def whole(scene: Scene, line: bytes) -> bytes:
        lines = saved_lines(scene.bases["saved"])
        lines[part] = line
        return b"".join(gzip.compress(each, 1, mtime=0) for each in lines)

    return whole


# --- readers without a command line ---------------------------------------------------------------------------------


def _journal(_: Scene, path: Path) -> str:
    from contextlib import closing

    from agents.disk_journal import DiskJournal
    from shared.base.errors import InvalidInput, StoreUnavailable

    def read() -> None:
        with closing(DiskJournal(path)) as journal:
            journal.records()

    return called(read, InvalidInput, StoreUnavailable)


def _record(scene: Scene, _: Path) -> str:
    from agents.hypervisors.process.record import read

    return called(lambda: read(scene.folder))


def _metrics(_: Scene, path: Path) -> str:
    from daemons.drivers.web_metrics import read_page
    from shared.base.errors import TransientError

    return called(lambda: read_page(path.read_text("utf-8", "replace")), TransientError)


def _helper(_: Scene, path: Path) -> str:
    import os

    from agents.helper.errors import Refusal
    from agents.helper.policy import read

    return called(lambda: read(str(path), os.getuid()), Refusal)


def _template(_: Scene, path: Path) -> str:
    from agents.hypervisors.libvirt import templates
    from shared.base.errors import InvalidInput, InvalidValue
    from shared.config.agent import LibvirtTemplate
    from shared.values.vms import VmSpec

    def read() -> None:
        keys = {"a": LibvirtTemplate(file=str(path), volume="base.qcow2", first_address="192.0.2.1")}
        found = templates.read_all(keys)["a"]
        spec = VmSpec("shop#1", 1, 1, memory_mib=500, vcpus=1, cpu_mhz=1_000.0, template="a", arguments=("x", "y"))
        templates.check(found, spec)
        templates.filled(found, spec, "n1", "volume")

    return called(read, InvalidInput, InvalidValue)


def _tables(_: Scene, path: Path) -> str:
    from daemons.service.table_files import unpacked

    return called(lambda: unpacked(path.read_bytes()), ValueError, OSError, KeyError)


_PLACE: tuple[tuple[str, ...], ...] = (
    ("--policy", "apc"),
    ("--policy", "first-fit"),
    ("--policy", "edf"),
    ("--policy", "apc", "--sharing", "composed", "--heads", "2"),
)
_DIRECT = ("--nodes", "40")
_DAYS = ("--prices", "days.csv", "--from", "2022-06-11", "--first-day", "2", "--days", "1", "--policies", "static")

READERS: tuple[Reader, ...] = (
    Reader("job", Form.TOML, ("job.toml", "gang.toml", "three-machines-job.toml"), words=("jobs", "submit", "{}")),
    Reader("web", Form.TOML, ("web.toml", "three-machines-web.toml"), words=("web", "submit", "{}")),
    Reader(
        "agreement",
        Form.TOML,
        ("env-batch.toml", "env-web.toml", "environment-type-env-render.toml", "environment-type-env-session.toml"),
        words=("env", "create", "{}", "--dry-run"),
    ),
    Reader(
        "rules",
        Form.TOML,
        ("rules.toml",),
        words=("nodes", "fit", "--vcpus", "2", "--memory", "1GiB", "--rules", "{}"),
        share=0.5,
    ),
    Reader("terms", Form.TOML, ("vms.toml",), words=("vms", "adopt", "--all", "--dry-run", "--terms", "{}")),
    Reader("agreement-xml", Form.XML, ("env-batch.xml",), words=("env", "create", "{}", "--dry-run")),
    Reader(
        "reservation", Form.TOML, ("env-web.toml", "env-batch.toml"), words=("assurance", "reserve", "{}"), share=0.5
    ),
    Reader("promise", Form.TOML, ("env-web.toml", "env-batch.toml"), words=("assurance", "check", "{}"), share=0.5),
    Reader("load", Form.TOML, ("load.toml",), words=("load", "{}", "--dry-run")),
    Reader("place", Form.JSON, ("snapshot.json",), words=("sim", "place", "{}"), more=_PLACE),
    Reader("dilation", Form.JSON, ("dilation.json",), words=("sim", "dilation", "{}")),
    Reader("log", Form.SWF, ("coordinate-jobs.swf",), words=("sim", "replay", "{}", *_DIRECT), share=0.5, is_long=True),
    Reader(
        "log-in-loop",
        Form.SWF,
        ("days.swf",),
        words=("sim", "replay", "{}", "--nodes", "2", "--engine", "closed-loop"),
        share=0.02,
        is_long=True,
    ),
    Reader("log-of-days", Form.SWF, ("days.swf",), words=("sim", "days", "{}", *_DAYS), share=0.02, is_long=True),
    Reader(
        "prices-of-days",
        Form.CSV,
        ("days.csv",),
        words=("sim", "days", "days.swf", "--prices", "{}", *_DAYS[2:]),
        share=0.02,
        is_long=True,
    ),
    Reader(
        "advice-log",
        Form.SWF,
        ("coordinate-jobs.swf",),
        words=("env", "advise", "--log", "{}", "--demand", "coordinate-demand.csv", "--nodes", "40"),
        share=0.03,
        is_long=True,
    ),
    Reader(
        "advice-demand",
        Form.CSV,
        ("coordinate-demand.csv",),
        words=("env", "advise", "--log", "coordinate-jobs.swf", "--demand", "{}", "--nodes", "40"),
        share=0.03,
        is_long=True,
    ),
    Reader("coordinate", Form.TOML, ("coordinate.toml",), words=("sim", "coordinate", "{}"), share=0.4, is_long=True),
    Reader(
        "coordinate-demand",
        Form.CSV,
        ("coordinate-demand.csv",),
        words=("sim", "coordinate", "coordinate.toml"),
        share=0.2,
        is_long=True,
    ),
    Reader(
        "provision",
        Form.TOML,
        ("provision-small.toml", "provision-series.toml"),
        words=("sim", "provision", "{}", "--policies", "static"),
        share=0.15,
        is_long=True,
    ),
    Reader(
        "provision-whole",
        Form.TOML,
        ("provision-thesis.toml", "provision-day-ahead.toml"),
        words=("sim", "provision", "{}", "--policies", "static"),
        share=0.01,
        is_long=True,
    ),
    Reader(
        "prices",
        Form.CSV,
        ("provision-day-ahead.csv",),
        words=("sim", "provision", "provision-series.toml", "--policies", "static"),
        share=0.1,
        is_long=True,
    ),
    Reader("assured", Form.CSV, ("assure-small.csv", "assure-demand.csv"), words=("sim", "assure", "{}"), share=0.3),
    Reader("requests", Form.CSV, ("requests.csv",), words=("sim", "demand", "{}")),
    Reader("saved", Form.BINARY, ("saved",), words=("snapshot", "decide", "{}"), share=0.5),
    Reader(
        "saved-header",
        Form.JSON,
        ("saved-header.json",),
        words=("snapshot", "decide", "saved"),
        share=0.5,
        whole=_again(0),
    ),
    Reader("saved-request", Form.JSON, ("saved-request.json",), words=("snapshot", "decide", "saved"), whole=_again(1)),
    Reader(
        "operator",
        Form.TOML,
        ("three-machines-operator.toml",),
        words=("status", "--config", "{}", "--timeout", "1"),
        share=0.5,
    ),
    Reader("doctor", Form.TOML, ("three-machines-controller.toml",), words=("doctor", "--config", "{}"), share=0.02),
    Reader(
        "controller",
        Form.TOML,
        ("controller-keys.toml", "three-machines-controller.toml", "debian-controller.toml"),
        words=("--check", "--config", "{}"),
        program="trimtab-controller",
    ),
    Reader(
        "agent",
        Form.TOML,
        (
            "agent-keys.toml",
            "three-machines-agent.toml",
            "agent-process.toml",
            "debian-agent.toml",
            "agent-templates.toml",
        ),
        words=("--check", "--config", "{}"),
        program="trimtab-agent",
    ),
    Reader(
        "portal",
        Form.TOML,
        ("portal-keys.toml", "debian-portal.toml"),
        words=("--check", "--config", "{}"),
        program="trimtab-portal",
    ),
    Reader(
        "settings",
        Form.TOML,
        ("controller-keys.toml",),
        words=(
            "sim",
            "what-if",
            "--store",
            "sqlite:///store.db",
            "--from",
            "1970-01-02T00:00Z",
            "--to",
            "1970-01-03T00:00Z",
            "--settings",
            "{}",
        ),
        share=0.05,
    ),
    Reader(
        "backup", Form.BINARY, ("store.db",), words=("store", "restore", "{}", "--url", "sqlite:///new.db"), share=0.05
    ),
    Reader(
        "store",
        Form.BINARY,
        ("store.db",),
        words=("store", "backup", "new.bak", "--url", "sqlite:///store.db"),
        share=0.03,
    ),
    Reader(
        "history",
        Form.BINARY,
        ("store.db",),
        words=("events", "--store", "sqlite:///store.db", "--since", "1970-01-01T00:00Z"),
        share=0.03,
    ),
    Reader(
        "password",
        Form.BINARY,
        ("secret",),
        words=("store", "backup", "new.bak", "--url", "postgresql://a@127.0.0.1:1/b", "--password-file", "{}"),
        share=0.05,
    ),
    Reader(
        "template",
        Form.XML,
        ("three-machines-templates-render.xml", "three-machines-templates-shop.xml"),
        call=_template,
    ),
    Reader("journal", Form.BINARY, ("journal",), call=_journal),
    Reader("record", Form.JSON, ("record.json",), call=_record),
    Reader("metrics", Form.CSV, ("metrics.txt",), call=_metrics),
    Reader("helper", Form.TOML, ("helper.toml",), call=_helper),
)

WRITES = frozenset(
    (
        "trimtab broker setup --folder",
        "trimtab broker tls --folder",
        "trimtab env advise --write",
        "trimtab report --html",
        "trimtab sim run --output-folder",
        "trimtab snapshot save FILE",
        "trimtab store backup FILE",
        "trimtab store upgrade --backup-folder",
        *(f"trimtab demo {name} --folder" for name in ("kill-host", "start", "start-host", "status", "stop")),
        *(f"trimtab sim reproduce {name} --plots" for name in ("all", "apc", "assurance", "dfactor")),
        *(f"trimtab sim reproduce {name} --plots" for name in ("phoenixcloud", "provisioning")),
    )
)
"""Paths that commands write to."""
ELSEWHERE: dict[str, Any] = {
    "--config": "operator",
    "--password-file": "password",
    "--rules": "rules",
    "--terms": "terms",
}
"""Options that many commands have, and the reader that is theirs."""
