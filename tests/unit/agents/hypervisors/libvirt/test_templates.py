"""The files in examples/three-machines are those of a cluster: the programs that they are for take them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from agents.hypervisors.libvirt import templates
from agents.service.main import main as agent
from daemons.cli.connection import OperatorConfig
from daemons.config.controller import ControllerConfig
from daemons.manifests.job import read_job
from daemons.manifests.web_app import read_web
from daemons.service.main import main as controller
from shared.base.errors import InvalidInput, InvalidValue
from shared.config.agent import AgentConfig, LibvirtTemplate
from shared.config.toml import load
from shared.values.vms import VmSpec
from tests.support.paths import ROOT

EXAMPLES = ROOT / "examples/three-machines"
PLACE = "/etc/trimtab"
# Of an authority that has signed nothing.
AUTHORITY = """-----BEGIN CERTIFICATE-----
MIIBeTCCAR+gAwIBAgIUPaaNrMBcMsqIQ2/jNcyC69NigJwwCgYIKoZIzj0EAwIw
ETEPMA0GA1UEAwwGbm9ib2R5MCAXDTI2MTEyMjA3MDUyM1oYDzIxMjYxMDI5MDcw
NTIzWjARMQ8wDQYDVQQDDAZub2JvZHkwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AAS2U2y2r0EqFbD5LjBI2tdWhdJvMIa4W29t5g6RnOcKAVE+KnOAdgYjx5eOUPBf
OxS649LGwTzOjbVzSmf6YRK5o1MwUTAdBgNVHQ4EFgQU1nyB4kutBpcZsaQdAAD3
Ih88fXcwHwYDVR0jBBgwFoAU1nyB4kutBpcZsaQdAAD3Ih88fXcwDwYDVR0TAQH/
BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiEAz64d1Un+gYGIAva7ClB5HvG/Gswx
C8Q3DDrBaCPyroQCICV7Cb05fvJMRzly0EPrOJkv6MUrNjmTOrVn3kFDkxEQ
-----END CERTIFICATE-----
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The examples, where they name one another."""
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    for file in tmp_path.glob("*.toml"):
        file.write_text(file.read_text("utf-8").replace(PLACE, str(tmp_path)), "utf-8")
    (tmp_path / "broker-ca.pem").write_text(AUTHORITY)
    return tmp_path


@pytest.mark.usefixtures("libvirt_installed")
def test_the_daemons_take_their_files(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Given the files of a node and of the controller, when both daemons check them, then nothing is wrong."""
    found = [
        agent(["--check", "--config", str(installed / "agent.toml")]),
        controller(["--check", "--config", str(installed / "controller.toml")]),
    ]

    assert (found, capsys.readouterr().err) == ([0, 0], "")


def test_templates_are_filled_in(installed: Path) -> None:
    """Given the templates of the node, then each has all the places that its keys ask for."""
    keys = load(installed / "agent.toml", AgentConfig).libvirt

    found = templates.read_all(keys.templates)

    assert set(found) == {"render", "shop"}
    assert found["shop"].address_of("shop#1") == "192.0.2.102"


def test_a_disk_may_be_an_image_of_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "image.xml"
    file.write_text(
        '<domain type="kvm"><devices><disk type="file"><source file="/images/{environment}/base.qcow2"/></disk>'
        "</devices></domain>"
    )
    file.chmod(0o644)
    template = templates.read_all({"p": LibvirtTemplate(str(file))})["p"]
    spec = VmSpec("job#3", 1, 1, memory_mib=100, vcpus=1, cpu_mhz=500.0, template="p", environment="night")

    templates.check(template, spec)
    source = templates.filled(template, spec, "n1", "").find("devices/disk/source")

    assert source is not None
    assert source.get("file") == "/images/night/base.qcow2"
    for environment in ("", "..", "a/b"):
        with pytest.raises(InvalidValue, match="environment"):
            templates.check(template, replace(spec, environment=environment))


def test_a_template_with_a_misspelt_place_is_refused(installed: Path) -> None:
    file = installed / "templates/shop.xml"
    file.write_text(file.read_text("utf-8").replace("{address}", "{adress}"), "utf-8")
    keys = load(installed / "agent.toml", AgentConfig).libvirt

    with pytest.raises(InvalidInput, match=r"\{adress\}"):
        templates.read_all(keys.templates)


def test_workloads_name_templates_that_are_there(installed: Path) -> None:
    """And have the arguments that these want, a goal, and ports that the balancer may have."""
    config = load(installed / "agent.toml", AgentConfig)
    job, app = read_job(installed / "job.toml", now_s=0.0), read_web(installed / "web.toml")
    ports = load(installed / "controller.toml", ControllerConfig).balancer.haproxy.ports
    found = templates.read_all(config.libvirt.templates)

    assert {job.template, app.template} == set(found)
    assert len(job.arguments) == 1
    assert job.goal_s == 7_200.0
    assert app.serving is not None
    assert ports[0] <= app.serving.listen <= ports[1]


def test_accounts_are_those_of_their_owners(installed: Path) -> None:
    """The user of each URL is whom the file is for; no file holds a password."""
    node = load(installed / "agent.toml", AgentConfig)
    center = load(installed / "controller.toml", ControllerConfig)
    operator = load(installed / "operator.toml", OperatorConfig)

    assert f"//agent.{node.node.name}@" in node.bus.url
    assert f"//controller.{center.name}@" in center.bus.url
    assert "//operator.anna@" in operator.bus.url
    assert all(bus.password_file for bus in (node.bus, center.bus, operator.bus))
    assert replace(node.bus, url=center.bus.url, password_file=center.bus.password_file) == center.bus
