"""Files of agreements: fetched from the addresses that the host's configuration allows, into the environment's own
folder, with the digest that the agreement says."""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Sequence
from email.message import Message
from io import BufferedIOBase, BufferedReader
from typing import IO
from urllib.parse import unquote, urlsplit

from agents.setups import folders
from agents.setups.deadline import Deadline
from agents.setups.fetching import SILENCE_LIMIT_S, Http, Https
from shared.base.errors import PermanentError, TransientError
from shared.values.host_setup import RemoteFile

HEADERS = {"User-Agent": "trimtab-agent"}
RETRIED = (408, 425, 429, 500, 502, 503, 504)
MODE, EXECUTABLE_MODE = 0o644, 0o755


class Files:
    """Fetches into `folder`/ENVIRONMENT from addresses that begin with one of `prefixes`, `bytes_max` each at most."""

    def __init__(self, prefixes: Sequence[str], folder: str, bytes_max: int) -> None:
        self._prefixes, self._folder, self._bytes_max = tuple(prefixes), folder, bytes_max

    def objections(self, files: Sequence[RemoteFile]) -> list[str]:
        """Why some of them may not be fetched."""
        return [why for file in files if (why := self.objection(file.url))]

    def objection(self, url: str) -> str:
        """Why an address may not be fetched; "" when it may."""
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
        try:
            if urlsplit(url).scheme == "file":
                with self._local(unquote(urlsplit(url).path)) as source:
                    return self._copied(url, source, fd, deadline)
            request = urllib.request.Request(url, headers=HEADERS)
            with self._opener(deadline).open(request, timeout=min(SILENCE_LIMIT_S, deadline.left_s())) as source:
                return self._copied(url, source, fd, deadline)
        except urllib.error.HTTPError as error:
            text = f"{url}: {error.code} {error.reason}"
            error.close()
            raise (TransientError(text) if error.code in RETRIED else PermanentError(text)) from error
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            raise TransientError(f"{url}: {getattr(error, 'reason', error) or type(error).__name__}") from error

    def _opener(self, deadline: Deadline) -> urllib.request.OpenerDirector:
        opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.ProxyHandler(),
            Http(deadline),
            Https(deadline),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
            _Redirects(self),
        ):
            opener.add_handler(handler)
        return opener

    def _copied(self, url: str, source: BufferedIOBase, fd: int, deadline: Deadline) -> str:
        digest = hashlib.sha256()
        size = 0
        while chunk := source.read1(folders.CHUNK_BYTES):  # what is there: a slow sender meets the deadline
            deadline.left_s()
            size += len(chunk)
            if size > self._bytes_max:
                raise PermanentError(f"{url} has more than {self._bytes_max >> 20} MiB (setup.file_mib_max)")
            digest.update(chunk)
            _write_all(fd, chunk)
        if getattr(source, "length", None):
            raise TransientError(f"{url} ended early")
        return digest.hexdigest()

    def _local(self, path: str) -> BufferedReader:
        """A file of this host, which lies where a prefix says also when links are followed."""
        real = os.path.realpath(path)
        bases = [os.path.realpath(unquote(prefix[len("file://") :])) for prefix in self._prefixes if _is_local(prefix)]
        base = next((base for base in bases if real.startswith(base.rstrip("/") + "/")), "")
        if not base:
            raise PermanentError(f"{path} leads out of setup.urls")
        with folders.opened(base, real[len(base.rstrip("/")) + 1 :]) as fd:
            return os.fdopen(os.dup(fd), "rb")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to addresses that may be fetched, and refuses others."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage | Message,
        newurl: str,
    ) -> urllib.request.Request | None:
        """The next request. Raises PermanentError where it may not be made."""
        del code, msg, headers
        if why := self._files.objection(newurl):
            fp.close()
            raise PermanentError(f"{req.full_url} redirects: {why}")
        return urllib.request.Request(newurl, headers=HEADERS)


def _is_local(prefix: str) -> bool:
    return prefix.startswith("file://")


def _write_all(fd: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(fd, view) :]
