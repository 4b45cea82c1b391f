"""A fence agent for tests: a real program that speaks the fence-agents protocol and keeps the power of plugs in a file.

Its behaviour is scripted by files in its folder: what it says of an action instead of the truth, and what it does.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemons.config.fencing import FencingMethod

_PROGRAM = """#!{python} -IS
import json, os, sys, time
from pathlib import Path

folder = Path({folder!r})
options = dict(line.rstrip("\\n").split("=", 1) for line in sys.stdin if "=" in line)
action, plug = options.get("action", ""), options.get("plug", "")
run = {{"options": options, "argv": sys.argv[1:], "variables": sorted(os.environ)}}
with open(folder / "runs", "a") as runs:
    runs.write(json.dumps(run) + "\\n")
script = json.loads((folder / "script").read_text())
if action == "metadata":
    print(script["metadata"])
    sys.exit(script.get("metadata_status", 0))
if action == "validate-all":
    lacking = [name for name in script["needs"] if name not in options]
    print("Failed: You have to enter " + ", ".join(lacking) if lacking else "")
    sys.exit(1 if lacking else 0)
if script["password"] and options.get("password") != script["password"]:
    print("Unable to connect/login to fencing device, password was", options.get("password"))
    sys.exit(1)
step = script["steps"].pop(0) if action == "off" and script["steps"] else script["always"]
if action == "off":
    script["last"] = step
    (folder / "script").write_text(json.dumps(script))
last = script.get("last", script["always"])
done = last if action == "status" else step
time.sleep(done.get(action + "_s", 0.0))
print(done.get("prints", ""))
if action == "off" and done.get("cuts", True):
    (folder / ("off-" + plug)).touch()
is_off = (folder / ("off-" + plug)).exists()
exits = done.get(action)
if exits is None:
    exits = 0 if action == "off" else (2 if is_off else 0)
if action == "status":
    print("Status: " + ("OFF" if exits == 2 else "ON"))
sys.exit(exits)
"""
_METADATA = """<?xml version="1.0" ?>
<resource-agent name="fence_test" shortdesc="a test" >
<parameters>
{parameters}
</parameters>
<actions>
{actions}
</actions>
</resource-agent>"""

OPTIONS = ("action", "plug", "ip", "username", "password", "redfish-uri")
ACTIONS = ("on", "off", "status", "metadata", "validate-all")


def metadata_of(options: tuple[str, ...] = OPTIONS, actions: tuple[str, ...] = ACTIONS) -> str:
    """What an agent prints of itself."""
    parameters = "\n".join(f'<parameter name="{name}" unique="0" required="0"></parameter>' for name in options)
    return _METADATA.format(parameters=parameters, actions="\n".join(f'<action name="{name}"/>' for name in actions))


@dataclass(frozen=True, slots=True)
class FakeAgent:
    """A fence agent in a folder of its own. Node n1 is plug n1 unless options say otherwise."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> FakeAgent:
        """Write the program. At first it tells the truth and does what it is asked."""
        folder.mkdir(parents=True, exist_ok=True)
        made = cls(folder)
        made.program.write_text(_PROGRAM.format(python=sys.executable, folder=str(folder)))
        made.program.chmod(0o755)
        made.script()
        return made

    @property
    def program(self) -> Path:
        """The program."""
        return self.folder / "fence_test"

    def script(
        self,
        *steps: dict[str, Any],
        always: dict[str, Any] | None = None,
        password: str = "",
        needs: tuple[str, ...] = (),
        metadata: str | None = None,
        **more: Any,
    ) -> None:
        """Say what it does: `steps` at each `off` and the `status` after it, `always` beyond those.

        Keys of a step: `off` and `status` (exit statuses instead of true ones), `off_s` and `status_s` (how long they
        take), `cuts` (whether the power goes), `prints`.
        """
        given = {
            "steps": list(steps),
            "always": always or {},
            "password": password,
            "needs": list(needs),
            "metadata": metadata_of() if metadata is None else metadata,
        }
        (self.folder / "script").write_text(json.dumps(given | more))

    def method(self, **fields: Any) -> FencingMethod:
        """The keys of a method with this agent."""
        return FencingMethod(**({"agent": str(self.program), "options": {"plug": "{node}"}} | fields))

    def runs(self) -> list[dict[str, Any]]:
        """How it was run: options from its input, arguments, names of environment variables."""
        file = self.folder / "runs"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def asked(self) -> list[tuple[str, str]]:
        """The actions of its runs, each with the plug."""
        return [(run["options"]["action"], run["options"].get("plug", "")) for run in self.runs()]

    def is_off(self, plug: str) -> bool:
        """Whether it has cut a plug's power."""
        return (self.folder / f"off-{plug}").exists()
