"""The files that make a host of the lab: libvirt's, /etc/hosts and a machine id."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path

from tests.lab.plan import KEPT, LOST

LIBVIRTD = """listen_tcp = 1
listen_tls = {tls}
listen_addr = "0.0.0.0"
auth_tcp = "none"
auth_tls = "none"
auth_unix_ro = "none"
auth_unix_rw = "none"
unix_sock_rw_perms = "0700"
host_uuid = "{host_uuid}"
keepalive_interval = 5
keepalive_count = 5
log_outputs = "3:file:/var/log/libvirt/libvirtd.log"
ca_file = "/etc/pki/ca-cert.pem"
cert_file = "/etc/pki/server-cert.pem"
key_file = "/etc/pki/server-key.pem"
"""
QEMU = """security_driver = "none"
user = "root"
group = "root"
remember_owner = 0
namespaces = []
cgroup_controllers = [ "cpu", "cpuacct" ]
stdio_handler = "file"
default_tls_x509_cert_dir = "/etc/pki"
default_tls_x509_verify = 1
migration_address = "0.0.0.0"
migration_host = "{address}"
keepalive_interval = 5
keepalive_count = 5
"""
ACCOUNT = "libvirt-qemu"  # Debian's libvirtd looks it up although its guests are root's; no package of the lab makes it
ACCOUNT_ID = 64055


def write_host(folder: Path, name: str, addresses: Mapping[str, str], tls: bool) -> None:
    """Make a host's folder: its disk, with the addresses of all hosts by name in it, and the place of its /run."""
    for part in (*KEPT, LOST):
        (folder / part).mkdir(parents=True)
    identity = uuid.uuid5(uuid.NAMESPACE_OID, str(folder))
    libvirt = folder / "etc/libvirt"
    (libvirt / "libvirtd.conf").write_text(LIBVIRTD.format(tls=int(tls), host_uuid=identity), "utf-8")
    (libvirt / "qemu.conf").write_text(QEMU.format(address=addresses[name]), "utf-8")
    others = "".join(f"{address} {other}\n" for other, address in addresses.items())
    (folder / "etc/hosts").write_text(f"127.0.0.1 localhost\n{others}", "utf-8")
    (folder / "etc/hostname").write_text(f"{name}\n", "utf-8")
    (folder / "etc/machine-id").write_text(f"{identity.hex}\n", "utf-8")
    (folder / "etc/resolv.conf").write_text("", "utf-8")
    for file, line in (
        ("passwd", f"{ACCOUNT}:x:{ACCOUNT_ID}:{ACCOUNT_ID}::/var/lib/libvirt:/usr/sbin/nologin"),
        ("group", f"{ACCOUNT}:x:{ACCOUNT_ID}:"),
    ):
        (folder / "etc" / file).write_text(with_account(Path("/etc", file).read_text("utf-8"), line), "utf-8")


def with_account(text: str, line: str) -> str:
    """The text of /etc/passwd or /etc/group, with the line of `ACCOUNT` where it has none."""
    lines = text.splitlines()
    has = any(each.split(":")[0] == ACCOUNT for each in lines)
    return "\n".join([*lines, *([] if has else [line])]) + "\n"
