"""Files of agreements: fetched from the addresses that the host's configuration allows, into the environment's own
folder, with the digest that the agreement says."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from io import BufferedReader
from urllib.parse import unquote, urlsplit

from agents.setups import folders
from shared.base.deadline import Deadline
from shared.base.errors import PermanentError, TransientError
from shared.base.http_client import HttpError, Request, exchange
from shared.values.host_setup import RemoteFile

HEADERS = {"User-Agent": "trimtab-agent"}
SILENCE_LIMIT_S = 30.0
REDIRECTS_MAX = 10
RETRIED = (408, 425, 429, 500, 502, 503, 504)
SIZE_KEY = "setup.file_mib_max"
MODE, EXECUTABLE_MODE = 0o644, 0o755


class Files:
    """Fetches into `folder`/ENVIRONMENT from addresses that begin with one of `prefixes`, `bytes_max` each at most."""

    def __init__(self, prefixes: Sequence[str], folder: str, bytes_max: int) -> None:
        self._prefixes, self._folder, self._bytes_max = tuple(prefixes), folder, bytes_max

    def objections(self, files: Sequence[RemoteFile]) -> list[str]:
        """Return why some of the files may not be fetched."""
        return [why for file in files if (why := self.objection(file.url))]

    def objection(self, url: str) -> str:
        """Return why an address may not be fetched; "" when it may."""
        try:
            parts = urlsplit(url)
        except ValueError:
            return f"{url} is no address"
        path = unquote(parts.path)
        steps = path.split("/")
        plain = url.isascii() and url.isprintable() and path.isprintable()
        if ".." in steps or "." in steps or "\\" in path or not plain or "@" in parts.netloc:
            return (
                f"{url} has parts that are not taken: . and .., backslashes, control characters, a user, none of ASCII"
            )
        if any(url.startswith(prefix) for prefix in self._prefixes):
            return ""
        return f"{url} begins with none of setup.urls: {', '.join(self._prefixes) or 'none'}"

    def fetch(self, environment: str, files: Sequence[RemoteFile], deadline: Deadline) -> list[str]:
        """Have them in the environment's folder; returns the paths of those that were not there yet. Raises
        PermanentError, TransientError or OSError."""
        return [file.path for file in files if self._fetch(environment, file, deadline)]

    def remove(self, environment: str) -> bool:
        """Remove the environment's folder; false when there was none."""
        return folders.removed(self._folder, environment)

    def _fetch(self, environment: str, file: RemoteFile, deadline: Deadline) -> bool:
        mode = EXECUTABLE_MODE if file.executable else MODE
        path = f"{environment}/{file.path}"
        return folders.placed(
            self._folder, path, file.sha256, mode, lambda fd: self._download(file.url, fd, deadline), deadline
        )

    def _download(self, url: str, fd: int, deadline: Deadline) -> str:
        """Write what is at an address into a file; returns its digest."""
        if urlsplit(url).scheme == "file":
            with self._local(unquote(urlsplit(url).path)) as source:
                return _written(self._bounded(url, source), fd, deadline)
        request = Request(
            url,
            headers=HEADERS,
            named=url,
            silence_s=SILENCE_LIMIT_S,
            proxies=True,
            redirects=REDIRECTS_MAX,
            objection=self.objection,
        )
        try:
            with exchange(request, deadline) as answer:
                if not 200 <= answer.status < 300:
                    text = f"{url}: {answer.status} {answer.reason}"
                    raise TransientError(text) if answer.status in RETRIED else PermanentError(text)
                return _written(answer.chunks(self._bytes_max, SIZE_KEY), fd, deadline)
        except HttpError as error:
            if error.is_final:
                raise PermanentError(str(error)) from error
            raise

    def _bounded(self, url: str, source: BufferedReader) -> Iterator[bytes]:
        """Yield the data of a file of this host. Raises PermanentError if it is too large."""
        size = 0
        while chunk := source.read1(folders.CHUNK_BYTES):
            size += len(chunk)
            if size > self._bytes_max:
                raise PermanentError(f"{url} has more than {self._bytes_max >> 20} MiB ({SIZE_KEY})")
            yield chunk

    def _local(self, path: str) -> BufferedReader:
        """Open a file of this host, which must lie below a configured prefix even after links are followed."""
        real = os.path.realpath(path)
        bases = [os.path.realpath(unquote(prefix[len("file://") :])) for prefix in self._prefixes if _is_local(prefix)]
        base = next((base for base in bases if real.startswith(base.rstrip("/") + "/")), "")
        if not base:
            raise PermanentError(f"{path} leads out of setup.urls")
        with folders.opened(base, real[len(base.rstrip("/")) + 1 :]) as fd:
            return os.fdopen(os.dup(fd), "rb")


def _is_local(prefix: str) -> bool:
    return prefix.startswith("file://")


def _written(chunks: Iterable[bytes], fd: int, deadline: Deadline) -> str:
    """Write into a file; returns the digest of what was written."""
    digest = hashlib.sha256()
    for chunk in chunks:
        deadline.left_s()
        digest.update(chunk)
        _write_all(fd, chunk)
    return digest.hexdigest()


def _write_all(fd: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(fd, view) :]
