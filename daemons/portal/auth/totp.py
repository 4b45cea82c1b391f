"""Codes of one's telephone as a second factor (TOTP, RFC 6238: SHA-1, six digits, 30 s, which every program knows).

Pure but for `new_secret`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import struct
from urllib.parse import quote

STEP_S = 30.0
DIGITS = 6
SECRET_BYTES = 20
LATE_STEPS = 1  # how far clocks may be apart, both ways
ISSUER = "Trimtab"


def new_secret() -> str:
    """Return a secret of 160 bits, in base32."""
    return base64.b32encode(secrets.token_bytes(SECRET_BYTES)).decode()


def code_of(secret: str, step: int) -> str:
    """Return the code of a secret (base32) in a step of 30 s since the epoch."""
    digest = hmac.new(base64.b32decode(secret), struct.pack(">Q", step), hashlib.sha1).digest()
    offset = digest[-1] & 0xF
    number = struct.unpack(">I", digest[offset : offset + 4])[0] & 0x7FFF_FFFF
    return f"{number % 10**DIGITS:0{DIGITS}}"


def step_of(secret: str, code: str, now_s: float, used: int) -> int | None:
    """Return the step of a code if it is close to now and after the last one that was `used`; else None."""
    given = "".join(code.split())
    here, found = int(now_s // STEP_S), None
    for step in range(here - LATE_STEPS, here + LATE_STEPS + 1):
        if hmac.compare_digest(code_of(secret, step).encode(), given.encode()) and step > used:
            found = step
    return found


def uri_of(secret: str, account: str, host: str) -> str:
    """Return the URI that authenticator apps accept, as text or picture."""
    label = quote(f"{ISSUER} {host}:{account}", safe="")
    return f"otpauth://totp/{label}?secret={secret}&issuer={quote(f'{ISSUER} {host}', safe='')}"
