"""A source of Debian packages on a machine, made by hand: what the root helper's tests install."""

from __future__ import annotations

import hashlib

from tests.integration.machine import Machine

FOLDER = "/srv/packages"


class PackageSource:
    """The only source of packages that the machine has; `digests` by NAME_VERSION."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.digests: dict[str, str] = {}
        self._index: dict[str, str] = {}
        machine.run(["sh", "-c", "rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/*"])
        machine.put("/etc/apt/sources.list", f"deb [trusted=yes] file:{FOLDER} ./\n")

    def add(self, name: str, version: str = "1.0", *, depends: str = "", conflicts: str = "", script: str = "") -> str:
        """A package that installs a file named as itself in /opt/shop; returns its digest."""
        whole = f"{name}_{version}"
        build = f"/tmp/build/{whole}"
        control = f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: nobody <n@example.org>\n"
        control += f"Depends: {depends}\n" * bool(depends) + f"Conflicts: {conflicts}\n" * bool(conflicts)
        self._machine.put(f"{build}/DEBIAN/control", f"{control}Description: for tests\n")
        self._machine.put(f"{build}/opt/shop/{name}", version)
        if script:
            self._machine.put(f"{build}/DEBIAN/postinst", f"#!/bin/sh\nset -e\n{script}\n", 0o755)
        self._machine.run(["mkdir", "-p", FOLDER])
        path = f"{FOLDER}/{whole}_all.deb"
        self._machine.run(["dpkg-deb", "--root-owner-group", "-b", build, path])
        content = (self._machine.root / path.lstrip("/")).read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        files = f"Filename: ./{whole}_all.deb\nSize: {len(content)}\nSHA256: {digest}\n"
        self._index[whole] = f"{control}{files}Description: for tests\n"
        self.digests[whole] = digest
        self._machine.put(f"{FOLDER}/Packages", "\n".join(self._index.values()))
        return digest

    def version(self, name: str) -> str:
        """The version of a package that is installed, "" when none is."""
        command = ["dpkg-query", "-W", "-f", "${Version}", name]
        return self._machine.run(command, check=False).stdout

    def state(self, name: str) -> str:
        """What dpkg wants of a package and what it is, such as ii: installed."""
        command = ["dpkg-query", "-W", "-f", "${db:Status-Abbrev}", name]
        return self._machine.run(command, check=False).stdout.strip()
