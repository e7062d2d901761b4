"""Signed requests: three extension fields that prove which user asks.

One form serves ACL of 4.x, ACL 1.0 of 5.0 to 5.2 and the authentication of 5.3 and later: the
values of all extension fields in the order of their names, then the body, under HMAC-SHA1.

    AccessKey       the user
    SecurityToken   of temporary keys only
    Signature       Base64 of HMAC-SHA1(secret key, values and body)

Code, opaque and flag are not signed, and no time is: a peer that reads the wire can repeat a
signed request. Only TLS prevents that.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"  # noqa: S105  # the field's name
SIGNATURE = "Signature"


@dataclass(frozen=True)
class SigningCredentials:
    """An access key and its secrets. `repr` shows no secret, so tracebacks do not either.

    >>> SigningCredentials("reader", "hush", "hush too")
    SigningCredentials(access_key='reader')
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)

    def sign(self, ext: Mapping[str, str], body: bytes) -> dict[str, str]:
        """Return the extension fields of a request with the signature among them.

        Fields without a value are left out: servers drop them before they check the signature.

        >>> SigningCredentials("ak", "sk").sign({"topic": "T"}, b"")["Signature"]
        'vX6jW2Q9g11lvMjNC+gReuZ8fTQ='
        """
        signed = {name: value for name, value in ext.items() if value}
        signed[ACCESS_KEY] = self.access_key
        if self.security_token:
            signed[SECURITY_TOKEN] = self.security_token
        content = "".join(signed[name] for name in sorted(signed)).encode() + body
        digest = hmac.digest(self.secret_key.encode(), content, hashlib.sha1)
        signed[SIGNATURE] = base64.b64encode(digest).decode()
        return signed
