"""Reads the public keys that an issuer of tokens publishes, into the form that is committed.

PyJWT and `cryptography` parse them; keys that brokers cannot use are left out. Pure. Source: RFC
7517.
"""

from __future__ import annotations

from typing import Any, get_args

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt import PyJWK, PyJWTError

from plimsoll_core.security.tokens import KEY_BYTES_MAX, Algorithm, TokenKey

KEYS_MAX = 16
KEY_ID_CHARACTERS_MAX = 512
RSA_BITS = range(2048, 4097)
EXPONENT_BITS_MAX = 64
"""Bound on the number of bits of an RSA key's exponent. A larger exponent makes each verification
as slow as a signature."""
_ALGORITHMS = get_args(Algorithm)
_PUBLIC = ("kty", "n", "e", "crv", "x", "y")
_OF_CURVE = {"secp256r1": "ES256", "secp384r1": "ES384"}


def keys_of(key_set: Any) -> tuple[TokenKey, ...]:
    """Return the keys in a JSON Web Key Set by which brokers can verify tokens, sorted by key id:
    at most `KEYS_MAX`. Empty if there is none, or the input is no key set."""
    rows = key_set.get("keys") if isinstance(key_set, dict) else None
    found: dict[str, TokenKey] = {}
    for row in (rows if isinstance(rows, list) else [])[: 4 * KEYS_MAX]:
        key = _key(row)
        if key is not None:
            found.setdefault(key.key_id, key)
    return tuple(key for _, key in sorted(found.items()))[:KEYS_MAX]


def _key(row: Any) -> TokenKey | None:
    """Return one row of a key set as a TokenKey; None if brokers cannot verify tokens with it."""
    if not isinstance(row, dict) or row.get("use", "sig") != "sig":
        return None
    key_id = row.get("kid")
    if not isinstance(key_id, str) or not 0 < len(key_id) <= KEY_ID_CHARACTERS_MAX:
        return None
    try:
        # Pass public parts only: the algorithm is checked below, and private parts are ignored.
        public_key = PyJWK({name: row[name] for name in _PUBLIC if name in row}).key
    except (PyJWTError, ValueError, TypeError, KeyError):
        return None
    algorithm = _algorithm(public_key, row.get("alg"))
    if algorithm is None:
        return None
    der = public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if len(der) > KEY_BYTES_MAX:
        return None  # one such key would have the record of all issuers refused
    return TokenKey(key_id=key_id, algorithm=algorithm, public_key=der)


def _algorithm(public_key: Any, stated: object) -> Algorithm | None:
    """Return the signature algorithm of a key: the stated one if the key's type allows it, or that
    type's default if none is stated. Return None if the key or the algorithm is not supported."""
    if isinstance(public_key, RSAPublicKey) and public_key.key_size in RSA_BITS:
        if public_key.public_numbers().e.bit_length() > EXPONENT_BITS_MAX:
            return None
        possible = [one for one in _ALGORITHMS if one.startswith("RS")]
        fallback = "RS256"
    elif isinstance(public_key, EllipticCurvePublicKey):
        fallback = _OF_CURVE.get(public_key.curve.name, "")
        possible = [fallback]
    else:
        return None
    wanted = fallback if stated is None else stated
    return next((one for one in _ALGORITHMS if one == wanted and one in possible), None)
