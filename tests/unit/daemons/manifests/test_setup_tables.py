"""What an agreement's file brings to nodes: every problem is told at once, and what is good is understood."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemons.manifests.agreement import read_agreement, understood
from daemons.manifests.agreement_xml import to_xml
from shared.base.errors import InvalidInput
from shared.values.agreement import Agreement
from shared.values.host_setup import Image, Package, RemoteFile, SetupPolicy

TOP = 'name = "night"\nowner = "kim"\nworkload = "batch"\nlower = 2\n'
DIGEST = "0123456789abcdef" * 4
GOOD = f"""
[setup]
policy = "image"
services = ["trimtab-service-shop.service"]

[[setup.images]]
name = "debian/12.qcow2"
sha256 = "{DIGEST}"

[[setup.packages]]
name = "shop"
version = "1.0-1"
sha256 = "{DIGEST}"

[[setup.packages]]
name = "shop-data"
sha256 = "{DIGEST}"

[[setup.files]]
url = "https://files.example.org/shop/render"
path = "bin/render"
sha256 = "{DIGEST}"
executable = true
"""


def read(tmp_path: Path, text: str) -> Agreement:
    """The agreement in a file with this text."""
    path = tmp_path / "env.toml"
    path.write_text(text)
    return read_agreement(path)


def test_all_that_is_brought_is_understood(tmp_path: Path) -> None:
    setup = read(tmp_path, TOP + GOOD).setup

    assert setup.policy is SetupPolicy.IMAGE
    assert setup.images == (Image("debian/12.qcow2", DIGEST),)
    assert setup.packages == (Package("shop", DIGEST, "1.0-1"), Package("shop-data", DIGEST))
    assert setup.files == (RemoteFile("https://files.example.org/shop/render", "bin/render", DIGEST, True),)
    assert setup.services == ("trimtab-service-shop.service",)


def test_it_is_the_same_in_xml(tmp_path: Path) -> None:
    agreement = read(tmp_path, TOP + GOOD)
    path = tmp_path / "env.xml"
    path.write_text(to_xml(understood(agreement)))

    assert read_agreement(path) == agreement


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    text = f"""
    [setup]
    services = ["shop", "a.service", "a.service"]
    [[setup.packages]]
    name = "Shop; rm"
    sha256 = "{DIGEST}"
    [[setup.packages]]
    name = "shop"
    sha256 = "{DIGEST.upper()}"
    [[setup.files]]
    url = "ftp://files.example.org/x"
    path = "../x"
    sha256 = "{DIGEST}"
    [[setup.files]]
    url = "https://kim:secret@files.example.org/x"
    path = "/etc/x"
    sha256 = ""
    mode = 7
    """
    with pytest.raises(InvalidInput) as caught:
        read(tmp_path, TOP + text)

    told = [problem.where.rpartition(": ")[2] for problem in caught.value.problems]
    assert told == [
        "setup.packages[0].name",
        "setup.packages[1].sha256",
        "setup.files[0].url",
        "setup.files[0].path",
        "setup.files[1].mode",
        "setup.files[1].url",
        "setup.files[1].path",
        "setup.files[1].sha256",
        "setup.services[0]",
    ]


@pytest.mark.parametrize("path", ["a/../b", "a//b", "a/", "./a", "..", "a/.", "a b", "", "x" * 256])
def test_a_path_that_leads_out_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(InvalidInput, match=r"setup\.files\[0\]\.path"):
        read(tmp_path, f'{TOP}[[setup.files]]\nurl = "file:///srv/x"\npath = "{path}"\nsha256 = "{DIGEST}"\n')


@pytest.mark.parametrize("path", ["..a", "a..b", ".a/b.c", "x" * 255])
def test_a_path_with_dots_in_its_names_is_not(tmp_path: Path, path: str) -> None:
    text = f'{TOP}[[setup.files]]\nurl = "file:///srv/x"\npath = "{path}"\nsha256 = "{DIGEST}"\n'

    assert read(tmp_path, text).setup.files[0].path == path


IMAGE = f'[[setup.images]]\nname = "a"\nsha256 = "{DIGEST}"\n'
VM = 'granularity = "vm"\n[template]\nname = "t"\nvcpus = 1\nmemory_mib = 512\nmax_mhz = 1000\n'


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('[setup]\npolicy = "image"\n', "setup.images"),
        (IMAGE, "setup.images"),
        (f'[setup]\npolicy = "image"\n{IMAGE}{IMAGE}', "setup.images"),
        (f'{VM}[setup]\nservices = ["a.service"]\n', "setup.services"),
        ('[setup]\nservices = ["a.service", "a.service"]\n', "setup.services"),
        ('[setup]\npolicy = "exec"\n', "setup.command"),
    ],
)
def test_keys_that_do_not_go_together_are_told(tmp_path: Path, text: str, where: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(tmp_path, TOP + text)

    assert [problem.where.rpartition(": ")[2] for problem in caught.value.problems] == [where]
