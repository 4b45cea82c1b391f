"""Certificates of a lab's hosts, from an authority of the lab's own; made with openssl."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

DAYS = "2"
LIMIT_S = 30.0
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def write_all(folder: Path, addresses: Mapping[str, str]) -> None:
    """Put the authority's certificate, and a key and certificate that serve for both ends, into etc/pki of each host,
    under the names that libvirt and QEMU look for. They are for the host's name and for its address."""
    authority = folder / "authority"
    authority.mkdir(mode=0o700)
    ca, ca_key = authority / "ca-cert.pem", authority / "ca-key.pem"
    _openssl(
        "req", "-x509", *KEY, "-days", DAYS, "-subj", "/CN=lab",
        "-addext", "keyUsage=critical,keyCertSign,cRLSign", "-keyout", str(ca_key), "-out", str(ca),
    )  # fmt: skip
    for name, address in addresses.items():
        pki = folder / name / "etc/pki"
        certificate, key = pki / "server-cert.pem", pki / "server-key.pem"
        _openssl(
            "req", "-x509", *KEY, "-days", DAYS, "-subj", f"/CN={name}", "-CA", str(ca), "-CAkey", str(ca_key),
            "-addext", f"subjectAltName=DNS:{name},IP:{address}", "-addext", "basicConstraints=critical,CA:FALSE",
            "-addext", "extendedKeyUsage=serverAuth,clientAuth", "-keyout", str(key), "-out", str(certificate),
        )  # fmt: skip
        shutil.copy(ca, pki / "ca-cert.pem")
        for whole, ending in ((certificate, "cert"), (key, "key")):
            shutil.copy(whole, pki / f"client-{ending}.pem")
        _where_clients_look(pki)


def _where_clients_look(pki: Path) -> None:
    """libvirt's client looks in folders of its own below /etc/pki."""
    for place, target in {
        "CA/cacert.pem": "ca-cert.pem",
        "libvirt/clientcert.pem": "client-cert.pem",
        "libvirt/private/clientkey.pem": "client-key.pem",
    }.items():
        (pki / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(pki / target, pki / place)


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=LIMIT_S)
