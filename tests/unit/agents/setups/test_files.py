"""Files of agreements: from allowed addresses, into the environment's own folder, whole and with their digest."""

from __future__ import annotations

import hashlib
import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.setups.files import Files
from agents.setups.folders import WrongDigest
from shared.base.clock import SystemClock
from shared.base.deadline import Deadline
from shared.base.errors import PermanentError, TransientError
from shared.values.host_setup import RemoteFile

CONTENT = b"#!/bin/sh\necho render\n" * 1000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Site(http.server.ThreadingHTTPServer):
    """A web server that counts what is asked of it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[str] = []
        self.ends = threading.Event()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        getattr(self, f"_{self.path.split('/')[-1]}", self._missing)()

    def _render(self) -> None:
        self._send(200, CONTENT, len(CONTENT))

    def _short(self) -> None:
        self._send(200, CONTENT[:100], len(CONTENT))

    def _drip(self) -> None:
        self._send(200, CONTENT[:100], len(CONTENT))
        self.server.ends.wait(30.0)

    def _crawl(self) -> None:
        """A head that comes byte by byte, never silent for long."""
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        while not self.server.ends.wait(0.05):
            self.wfile.write(b"x")

    def _busy(self) -> None:
        self._send(503, b"later", 5)

    def _near(self) -> None:
        self._redirect("/shop/render")

    def _far(self) -> None:
        self._redirect("/other/render")

    def _out(self) -> None:
        self._redirect("file:///etc/passwd")

    def _loop(self) -> None:
        self._redirect("/shop/loop")

    def _missing(self) -> None:
        self._send(404, b"", 0)

    def _redirect(self, to: str) -> None:
        self.send_response(302)
        self.send_header("Location", to)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, status: int, content: bytes, length: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        del format, args


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.ends.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "environments"


def from_site(site: Site, folder: Path, bytes_max: int = 1 << 20) -> Files:
    """Files of the site's folder /shop/."""
    return Files((f"{site.url}/shop/",), str(folder), bytes_max)


def wanted(url: str, path: str = "bin/render", sha256: str = DIGEST, *, executable: bool = False) -> RemoteFile:
    """A file of an agreement."""
    return RemoteFile(url, path, sha256, executable)


def left_overs(folder: Path) -> list[str]:
    """Every file below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def test_a_file_is_fetched_once(site: Site, folder: Path) -> None:
    files, file = from_site(site, folder), wanted(f"{site.url}/shop/render", executable=True)

    assert files.fetch("night", [file], Deadline(10.0)) == ["bin/render"]
    assert files.fetch("night", [file], Deadline(10.0)) == []

    there = folder / "night/bin/render"
    assert there.read_bytes() == CONTENT
    assert there.stat().st_mode & 0o777 == 0o755
    assert there.parent.stat().st_mode & 0o777 == 0o755
    assert site.asked == ["/shop/render"]
    assert left_overs(folder) == ["night/bin/render"]


def test_others_can_read_what_is_there_whatever_the_mask(site: Site, folder: Path) -> None:
    """Given an agent whose own files nobody else may read, when it fetches, then jobs of another user can read."""
    before = os.umask(0o077)
    try:
        from_site(site, folder).fetch("night", [wanted(f"{site.url}/shop/render")], Deadline(10.0))
    finally:
        os.umask(before)

    modes = [(folder / path).stat().st_mode & 0o777 for path in (".", "night", "night/bin", "night/bin/render")]
    assert modes == [0o755, 0o755, 0o755, 0o644]


def test_what_has_changed_since_is_fetched_again(site: Site, folder: Path) -> None:
    files, file = from_site(site, folder), wanted(f"{site.url}/shop/render")
    files.fetch("night", [file], Deadline(10.0))
    (folder / "night/bin/render").write_bytes(b"worse")
    (folder / "night/bin/.new-1").write_bytes(b"of a crash, under another name")

    assert files.fetch("night", [file], Deadline(10.0)) == ["bin/render"]
    assert (folder / "night/bin/render").read_bytes() == CONTENT
    assert (folder / "night/bin/render").stat().st_mode & 0o777 == 0o644


def test_what_a_crash_has_left_is_not_in_the_way(site: Site, folder: Path) -> None:
    """Given an agent killed in the middle of a file, when it is asked again, then the file is whole and nothing else is
    there."""
    half = f".new-{hashlib.sha256(b'render').hexdigest()[:16]}"
    (folder / "night/bin").mkdir(parents=True)
    (folder / "night/bin" / half).write_bytes(CONTENT[:100])

    assert from_site(site, folder).fetch("night", [wanted(f"{site.url}/shop/render")], Deadline(10.0))

    assert (folder / "night/bin/render").read_bytes() == CONTENT
    assert left_overs(folder) == ["night/bin/render"]


def test_a_wrong_digest_leaves_what_was_there(site: Site, folder: Path) -> None:
    files = from_site(site, folder)
    (folder / "night/bin").mkdir(parents=True)
    (folder / "night/bin/render").write_text("older")

    with pytest.raises(WrongDigest, match=f"has the SHA-256 digest {DIGEST}, not {'0' * 64}"):
        files.fetch("night", [wanted(f"{site.url}/shop/render", sha256="0" * 64)], Deadline(10.0))

    assert (folder / "night/bin/render").read_text() == "older"
    assert left_overs(folder) == ["night/bin/render"]


@pytest.mark.parametrize(
    "url",
    [
        "{site}/other/render",
        "{site}/shop",
        "{site}/shop/../other/render",
        "{site}/shop/%2e%2e/other/render",
        "{site}/shop/./render",
        "{site}/shop/..%5cother",
        "https{rest}/shop/render",
        "http://127.0.0.1.example.org/shop/render",
        "file:///etc/passwd",
        "{site}/shop/%00",
        "{site}/shop/r\xe9nder",
    ],
)
def test_an_address_that_is_not_allowed_is_refused(site: Site, folder: Path, url: str) -> None:
    files = from_site(site, folder)

    objections = files.objections([wanted(url.format(site=site.url, rest=site.url.removeprefix("http")))])

    assert len(objections) == 1
    assert "begins with none of setup.urls" in objections[0] or "has parts that are not taken" in objections[0]


def test_nothing_is_allowed_by_default(folder: Path) -> None:
    (why,) = Files((), str(folder), 1).objections([wanted("https://files.example.org/x")])

    assert why == "https://files.example.org/x begins with none of setup.urls: none"


def test_redirects_stay_among_what_is_allowed(site: Site, folder: Path) -> None:
    files = from_site(site, folder)

    assert files.fetch("night", [wanted(f"{site.url}/shop/near")], Deadline(10.0)) == ["bin/render"]
    for name in ("far", "out"):
        with pytest.raises(PermanentError, match=r"(?i)redirect"):
            files.fetch("day", [wanted(f"{site.url}/shop/{name}")], Deadline(10.0))
    with pytest.raises(PermanentError, match="infinite loop"):
        files.fetch("day", [wanted(f"{site.url}/shop/loop")], Deadline(10.0))
    assert "/other/render" not in site.asked
    assert left_overs(folder) == ["night/bin/render"]


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("none", PermanentError, "404"),
        ("busy", TransientError, "503"),
        ("short", TransientError, "ended early"),
        ("drip", TransientError, r"timed out|not done within 0\.5 s"),
        ("crawl", TransientError, r"timed out|not done within 0\.5 s"),
    ],
)
def test_what_cannot_be_had_is_told(site: Site, folder: Path, name: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        from_site(site, folder).fetch("night", [wanted(f"{site.url}/shop/{name}")], Deadline(0.5))

    assert left_overs(folder) == []


def test_a_slow_sender_meets_the_deadline(site: Site, folder: Path) -> None:
    begun_s = SystemClock().monotonic_s()

    with pytest.raises(TransientError):
        from_site(site, folder).fetch("night", [wanted(f"{site.url}/shop/drip")], Deadline(0.3))

    assert SystemClock().monotonic_s() - begun_s < 5.0


def test_a_server_that_is_not_there_is_told(folder: Path) -> None:
    files = Files(("http://127.0.0.1:9/",), str(folder), 1 << 20)

    with pytest.raises(TransientError, match=r"http://127\.0\.0\.1:9/x: .*refused"):
        files.fetch("night", [wanted("http://127.0.0.1:9/x")], Deadline(5.0))


def test_a_file_that_is_too_large_is_not_kept(site: Site, folder: Path) -> None:
    with pytest.raises(PermanentError, match=r"setup\.file_mib_max"):
        from_site(site, folder, 1000).fetch("night", [wanted(f"{site.url}/shop/render")], Deadline(5.0))

    assert left_overs(folder) == []


# --- links ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def local(tmp_path: Path, folder: Path) -> tuple[Files, str]:
    """Files of a folder of this host, and an address there."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "render").write_bytes(CONTENT)
    return Files((f"file://{source}/",), str(folder), 1 << 20), f"file://{source}/render"


def test_a_file_of_this_host_is_copied(local: tuple[Files, str], folder: Path) -> None:
    files, url = local

    assert files.fetch("night", [wanted(url)], Deadline(5.0)) == ["bin/render"]
    assert (folder / "night/bin/render").read_bytes() == CONTENT


def test_a_link_out_of_the_source_is_not_followed(local: tuple[Files, str], tmp_path: Path) -> None:
    files, url = local
    (tmp_path / "secret").write_bytes(CONTENT)
    (tmp_path / "source/link").symlink_to(tmp_path / "secret")
    (tmp_path / "source/near").symlink_to("render")

    with pytest.raises(PermanentError, match=r"leads out of setup\.urls"):
        files.fetch("night", [wanted(url.replace("render", "link"))], Deadline(5.0))
    assert files.fetch("night", [wanted(url.replace("render", "near"))], Deadline(5.0)) == ["bin/render"]


@pytest.mark.parametrize("name", ["..", ".", "", "../environments", "night/../..", "/etc"])
def test_a_name_that_is_no_name_removes_nothing(local: tuple[Files, str], folder: Path, name: str) -> None:
    files, url = local
    files.fetch("night", [wanted(url)], Deadline(5.0))

    with pytest.raises(PermanentError, match="no path below a folder"):
        files.remove(name)
    with pytest.raises(PermanentError, match="no path below a folder"):
        files.fetch(name, [wanted(url)], Deadline(5.0))
    assert left_overs(folder) == ["night/bin/render"]


@pytest.mark.parametrize("at", ["night", "night/bin"])
def test_a_link_on_the_way_is_not_followed(local: tuple[Files, str], folder: Path, tmp_path: Path, at: str) -> None:
    """Given a link where a folder should be, when fetched, then nothing is written behind it."""
    files, url = local
    (tmp_path / "elsewhere").mkdir()
    (folder / at).parent.mkdir(parents=True)
    (folder / at).symlink_to(tmp_path / "elsewhere")

    with pytest.raises(PermanentError, match="is a link, or no folder"):
        files.fetch("night", [wanted(url)], Deadline(5.0))

    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_link_in_place_of_the_file_is_replaced(local: tuple[Files, str], folder: Path, tmp_path: Path) -> None:
    files, url = local
    (tmp_path / "victim").write_bytes(CONTENT)
    (folder / "night/bin").mkdir(parents=True)
    (folder / "night/bin/render").symlink_to(tmp_path / "victim")

    files.fetch("night", [wanted(url, executable=True)], Deadline(5.0))

    assert not (folder / "night/bin/render").is_symlink()
    assert (tmp_path / "victim").stat().st_mode & 0o111 == 0


def test_a_folder_in_place_of_the_file_is_told(local: tuple[Files, str], folder: Path) -> None:
    files, url = local
    (folder / "night/bin/render").mkdir(parents=True)

    with pytest.raises(OSError, match="something else than a file"):
        files.fetch("night", [wanted(url)], Deadline(5.0))


def test_the_folder_is_removed_whole_and_nothing_beside_it(
    local: tuple[Files, str], folder: Path, tmp_path: Path
) -> None:
    files, url = local
    for name in ("night", "day"):
        files.fetch(name, [wanted(url)], Deadline(5.0))
    (tmp_path / "kept").write_text("x")
    (folder / "night/bin/link").symlink_to(tmp_path)

    assert files.remove("night")
    assert not files.remove("night")

    assert left_overs(folder) == ["day/bin/render"]
    assert (tmp_path / "kept").exists()
