"""The certificate and key of a Trimtab server: checks of the files, and the TLS context to serve with."""

from __future__ import annotations

import ssl
from pathlib import Path

from shared.base.errors import InvalidInput, Problem
from shared.base.secrets import fault_of, is_absent, path_of

PAIR = "a certificate and its key, PEM"


def tls_of(cert_file: str, key_file: str) -> ssl.SSLContext:
    """Make what TLS is served with, 1.2 and later, from the paths of a certificate (with its chain) and its key. Raises
    InvalidInput for files that do not fit."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    load_certificate(context, cert_file, key_file)
    return context


def load_certificate(context: ssl.SSLContext, cert_file: str, key_file: str) -> None:
    """Serve connections from now on with these files. Raises InvalidInput for files that do not fit."""
    try:
        context.load_cert_chain(cert_file, key_file)
    except (OSError, ssl.SSLError) as error:
        what = getattr(error, "reason", None) or error.strerror or "cannot be used"
        raise InvalidInput(Problem(f"tls: {cert_file}", str(what), PAIR)) from error


def file_problems(section: str, cert_key: str, cert_file: str, key_file: str) -> list[Problem]:
    """Return the problems with the places of a certificate, under the key `cert_key` of a section, and of its key,
    under `key_file`. These are one without the other, a file that cannot be read, and a key that others can read.
    Credentials that this process was not passed are not checked."""
    wrong: list[Problem] = []
    if bool(cert_file) != bool(key_file):
        wrong.append(Problem(section, "has one of two files", f"{cert_key} and key_file"))
    for key, place in ((cert_key, cert_file), ("key_file", key_file)):
        if not place or is_absent(place):
            continue
        try:
            path = path_of(place)
            fault = fault_of(path) if key == "key_file" else None
            with Path(path).open("rb"):
                pass
        except OSError as error:
            wrong.append(Problem(f"{section}.{key}: {place}", error.strerror or "cannot be read", "a PEM file"))
        else:
            wrong += [] if fault is None else [fault]
    return wrong
