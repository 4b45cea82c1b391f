"""On a machine that has booted: the root helper, and an agent that sets its host up within the sandbox of its unit."""

from __future__ import annotations

import hashlib
import json
import subprocess

import pytest

from shared.base.clock import SystemClock
from tests.integration.machine import HOME, Machine
from tests.integration.package_source import PackageSource

IN_PLACE = "trimtab-agent.service.d/test.conf"
USER = "trimtab"
CLOCK = SystemClock()
SCENE = b"#!/bin/sh\necho scene\n"
ASK = """
import json, sys

from shared.base.deadline import Deadline
from agents.setups.packages import Packages
from shared.values.host_setup import Package
from shared.base.errors import TrimtabError

for text in sys.argv[1:]:
    try:
        wanted = [Package(*one) for one in json.loads(text)]
        print(Packages(["*"], "/run/trimtab/helper.sock").install(wanted, Deadline(60.0)))
    except TrimtabError as error:
        print(error)
"""
# Runs in place of the agent, with its unit's user, groups, sandbox and configuration.
SET_UP = """
from agents.setups.host import OwnSetups
from shared.config.toml import load
from shared.config.agent import AgentConfig
from shared.values.host_setup import Package, RemoteFile, Setup, SetupPolicy
from shared.values.nodes import SetupStep

own = OwnSetups("n1", load("/etc/trimtab/agent.toml", AgentConfig).setup, "/var/lib/trimtab/lock")
for step, setup in {steps}:
    done = own.set_up("u1", "night", SetupStep(step), setup)
    print(done.ok, repr(done.output))
"""
AGENT = """
[setup]
wipe_units = ["trimtab-setup@wipe.service"]
packages = ["render*"]
urls = ["file:///srv/files/"]
services = ["trimtab-service-*.service"]
"""


@pytest.fixture(scope="module")
def source(booted: Machine) -> PackageSource:
    """A source of packages, and the helper with its list."""
    found = PackageSource(booted)
    found.add("shop", script="id -u > /opt/shop/who")
    found.add("shop-x", depends="other")
    found.add("shop-y", depends="shop-z")
    found.add("shop-z")
    found.add("shop-hostile", conflicts="shop")
    found.add("other")
    found.add("render", "2.0")
    found.add("shop-slow", script="touch /run/begun; [ -e /run/quick ] || sleep 100")
    booted.put("/etc/trimtab/helper.toml", 'packages = ["shop*", "render"]\n', 0o640)
    booted.run(["systemctl", "start", "trimtab-helper.socket"])
    return found


def ask(machine: Machine, *requests: list[list[str]], user: str | None = USER) -> list[str]:
    """What comes of each request to the helper, by a user."""
    return machine.python(ASK, user, *(json.dumps(one) for one in requests)).splitlines()


def test_the_helper_installs_what_its_list_allows_and_the_digest_vouches_for(
    booted: Machine, source: PackageSource
) -> None:
    shop, wrong = source.digests["shop_1.0"], "0" * 64
    booted.run(["dpkg", "--purge", "shop", "shop-y", "shop-z"], check=False)  # what another test has installed

    said = ask(
        booted,
        [["shop", wrong, "1.0"]],
        [["shop", shop, "3.0"]],
        [["shop", shop, "1.0"], ["shop-z", wrong]],
        [["shop", shop, "1.0"]],
        [["shop", shop]],
        [["shop-y", source.digests["shop-y_1.0"]]],
    )

    assert said[0] == f"packages: shop=1.0 has the SHA-256 digest {shop}, not {wrong}"
    assert "shop=3.0 cannot be had from the host's sources" in said[1]
    assert "packages: shop-z has the SHA-256 digest" in said[2]
    assert said[3:] == ["['shop=1.0']", "[]", "['shop-y=1.0']"]
    assert booted.text("/opt/shop/who") == "0\n"
    assert [source.version(name) for name in ("shop", "shop-y", "shop-z")] == ["1.0"] * 3


def test_the_helper_refuses_what_its_list_does_not_allow(booted: Machine, source: PackageSource) -> None:
    wanted = ("other", "shop-x", "shop-hostile")
    other, with_other, hostile = ([[name, source.digests[f"{name}_1.0"]]] for name in wanted)
    ask(booted, [["shop", source.digests["shop_1.0"]]])

    said = ask(booted, other, with_other, hostile)

    assert said[0] == "packages: not in the helper's packages: other"
    assert said[1] == "packages: would install besides, not in the helper's dependencies: other"
    assert "remove" in said[2]
    assert [source.version(name) for name in wanted] == ["", "", ""]
    assert source.version("shop") == "1.0"


def test_the_helper_hears_the_agents_user_alone(booted: Machine, source: PackageSource) -> None:
    wanted = [["render", source.digests["render_2.0"]]]
    before = source.version("render")

    assert ask(booted, wanted, user="nobody") == ["the helper (/run/trimtab/helper.sock): Permission denied"]
    assert ask(booted, wanted, user=None) == ["packages: user id 0 may ask for nothing: only trimtab may"]
    assert source.version("render") == before


def test_the_helper_takes_no_list_that_others_may_write(booted: Machine, source: PackageSource) -> None:
    wanted = [["render", source.digests["render_2.0"]]]
    booted.run(["chmod", "g+w", "/etc/trimtab/helper.toml"])
    try:
        said = ask(booted, wanted)
    finally:
        booted.run(["chmod", "g-w", "/etc/trimtab/helper.toml"])

    assert said == ["packages: /etc/trimtab/helper.toml may be written by others than root"]


def test_the_helper_without_a_list_installs_nothing(booted: Machine, source: PackageSource) -> None:
    booted.run(["mv", "/etc/trimtab/helper.toml", "/etc/trimtab/away.toml"])
    try:
        said = ask(booted, [["render", source.digests["render_2.0"]]])
    finally:
        booted.run(["mv", "/etc/trimtab/away.toml", "/etc/trimtab/helper.toml"])

    assert said == ["packages: /etc/trimtab/helper.toml: No such file or directory"]


def test_an_installation_that_was_cut_short_is_ended_by_the_next(booted: Machine, source: PackageSource) -> None:
    """Given a package whose script hangs, when the limit is over, then it is killed; when the helper is killed in the
    middle, then the agent asks the next one, and that goes on from what dpkg has half done."""
    wanted = json.dumps([["shop-slow", source.digests["shop-slow_1.0"]]])
    assert "helper" in booted.python(ASK.replace("60.0", "2.0"), USER, wanted)

    booted.run(["rm", "-f", "/run/begun"])
    command = booted.inside([f"{HOME}/bin/python", "-c", ASK, wanted], USER)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as asking:
        until_s = CLOCK.monotonic_s() + 30.0
        while not (booted.root / "run/begun").exists():
            assert CLOCK.monotonic_s() < until_s
            CLOCK.sleep(0.05)
        assert source.state("shop-slow") == "iF"
        booted.put("/run/quick", "")
        booted.run(["systemctl", "kill", "-s", "KILL", "trimtab-helper@*"])
        said, _ = asking.communicate(timeout=60.0)

    assert said == "['shop-slow=1.0']\n"
    assert source.state("shop-slow") == "ii"


def as_agent(machine: Machine, steps: str) -> list[str]:
    """What setups give that run in the place of the agent."""
    machine.put("/srv/set_up.py", SET_UP.replace("{steps}", steps))
    machine.unit(
        IN_PLACE,
        "[Service]\nType=oneshot\nExecStart=\nExecStart=/opt/trimtab/bin/python /srv/set_up.py\nRestart=no\n"
        "WatchdogSec=0\nStandardOutput=file:/run/said\nStandardError=file:/run/said\n",
    )
    machine.run(["systemctl", "start", "trimtab-agent.service"], check=False)
    said = machine.text("/run/said")
    machine.run(["rm", "/run/said", f"/etc/systemd/system/{IN_PLACE}"])  # the machine is also others'
    machine.run(["systemctl", "daemon-reload"])
    return said.splitlines()


def test_an_agent_sets_its_host_up_within_its_sandbox(booted: Machine, source: PackageSource) -> None:
    """Given an agreement with a wipe, a package, a file and a service, when a node comes and goes, then each is done by
    whom it is for: the agent is root nowhere."""
    booted.run(["groupadd", "-rf", "libvirt"])
    booted.put("/etc/trimtab/agent.toml", AGENT, 0o640)
    booted.run(["chgrp", "trimtab", "/etc/trimtab/agent.toml"])
    booted.put("/srv/files/scene.sh", SCENE)
    booted.put("/var/left-over", "of somebody else")
    wipe = "[Service]\nType=oneshot\nExecStart=rm -f /var/left-over\n"
    booted.put("/etc/systemd/system/trimtab-setup@.service", wipe)
    booted.put("/etc/systemd/system/trimtab-service-a.service", "[Service]\nExecStart=sleep 1000\nUser=nobody\n")
    digest = hashlib.sha256(SCENE).hexdigest()
    setup = (
        "Setup(SetupPolicy.WIPE, limit_s=60.0, services=('trimtab-service-a.service',), "
        f"packages=(Package('render', {source.digests['render_2.0']!r}, '2.0'),), "
        f"files=(RemoteFile('file:///srv/files/scene.sh', 'bin/scene.sh', {digest!r}, True),))"
    )
    refused = "Setup(services=('ssh.service',), packages=(Package('other', '0' * 64),))"

    said = as_agent(booted, f"[('acquire', {setup}), ('acquire', {setup}), ('acquire', {refused})]")

    assert said[0] == "True 'installed: render=2.0\\nfetched: bin/scene.sh'", "\n".join(said)
    assert said[1] == "True ''"
    assert said[2].startswith("False 'service ssh.service matches none of setup.services")
    assert "package other matches none of setup.packages" in said[2]
    assert source.version("render") == "2.0"
    assert not (booted.root / "var/left-over").exists()
    assert booted.state("trimtab-service-a.service") == "active"
    scene = ["/var/lib/trimtab/environments/night/bin/scene.sh"]
    assert booted.run(scene, "nobody").stdout == "scene\n"

    assert as_agent(booted, f"[('release', {setup})]") == ["True 'files removed'"]
    assert booted.state("trimtab-service-a.service") == "inactive"
    assert booted.run(scene, check=False).returncode != 0
    assert source.version("render") == "2.0"
