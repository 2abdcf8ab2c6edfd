"""The settings of TLS, and of who may call."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from plannerd.security.identity import CertificateName
from plannerd.settings.base import File, Seconds, Section

JwtAlgorithm: TypeAlias = Literal[
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "ES256K",
    "EdDSA",
    "HS256",
    "HS384",
    "HS512",
]


class TlsSettings(Section):
    """TLS, by files in PEM that may be replaced while the server runs."""

    cert_file: File | None = Field(
        None,
        description="The server's certificate, followed by those that lead to its authority, in PEM. null: no TLS. "
        "With it the server takes TLS 1.2 and 1.3 alone.",
    )
    key_file: File | None = Field(None, description="The key of that certificate, in PEM, without a passphrase.")
    client_ca_file: File | None = Field(
        None,
        description="Authorities of clients, in PEM: every client must show a certificate that one of them signed "
        "(mTLS). null: clients need none.",
    )
    reload_seconds: Seconds = Field(
        10.0,
        gt=0,
        description="How often these files are looked at. New connections use what is there; files that can't be used "
        "leave the old ones in force.",
    )

    @property
    def used(self) -> bool:
        """Whether the server speaks TLS."""
        return self.cert_file is not None

    @model_validator(mode="after")
    def _fits(self) -> TlsSettings:
        if (self.cert_file is None) is not (self.key_file is None):
            raise ValueError("cert_file and key_file: give both or neither")
        if self.client_ca_file is not None and self.cert_file is None:
            raise ValueError("client_ca_file needs cert_file and key_file")
        return self


def _public_key_algorithms() -> list[JwtAlgorithm]:
    return ["RS256", "PS256", "ES256", "ES384", "EdDSA"]


class JwtSettings(Section):
    """JSON Web Tokens that somebody else signs."""

    keys_file: File | None = Field(
        None,
        description="The public keys of who signs the tokens: a JSON Web Key Set, or public keys or certificates in "
        "PEM. null: no such tokens.",
    )
    issuer: str | None = Field(
        None, min_length=1, description="The `iss` that tokens must have. Needed with keys_file."
    )
    audience: list[Annotated[str, Field(min_length=1)]] = Field(
        default_factory=list,
        description="Tokens must have one of these in their `aud`. Needed with keys_file, so that tokens that were "
        "made for others are refused.",
    )
    algorithms: Annotated[list[JwtAlgorithm], Field(min_length=1)] = Field(
        default_factory=_public_key_algorithms,
        description="The signatures that are taken. Those with a shared secret (HS256, HS384, HS512; keys of type "
        "`oct` in a key set) must be asked for: who can check them can also make them.",
    )
    identity_claim: str = Field("sub", min_length=1, description="The claim that says who calls.")
    identity_prefix: str = Field(
        "",
        max_length=64,
        description="Is put before that, to keep these identities apart from those of tokens_file and of certificates.",
    )
    leeway_seconds: Annotated[float, Field(ge=0, le=600, allow_inf_nan=False)] = Field(
        30.0, description="How far clocks may differ when `exp` and `nbf` are checked."
    )

    @model_validator(mode="after")
    def _fits(self) -> JwtSettings:
        if self.keys_file is not None and not (self.issuer and self.audience):
            raise ValueError("keys_file needs issuer and audience: without them tokens that were made for others count")
        return self


class AuthSettings(Section):
    """Who may call. Without any of this everybody may, and all are one identity."""

    tokens_file: File | None = Field(
        None,
        description="Static bearer tokens: a line has an identity, space, and its token or `sha256:` and the token's "
        "SHA-256 in hex. null: none.",
    )
    jwt: JwtSettings = JwtSettings()
    client_certificate: CertificateName | None = Field(
        None,
        description="The name in a client's certificate that says who it is: `uri` (as in SPIFFE), `dns`, `email`, "
        "`common_name` or `subject`. It must be there once. Needs server.tls.client_ca_file. A token, if one is sent, "
        "counts instead. null: certificates let clients in, and say nothing.",
    )
    client_certificate_prefix: str = Field("", max_length=64, description="Is put before that name.")
    operators: list[Annotated[str, Field(min_length=1)]] = Field(
        default_factory=list, description="The identities of operators, who may see and end invocations of others."
    )
    reload_seconds: Seconds = Field(
        10.0,
        gt=0,
        description="How often tokens_file and jwt.keys_file are looked at. A token that is gone from them is refused "
        "from then on, on open streams too.",
    )

    @property
    def used(self) -> bool:
        """Whether calls need an identity."""
        return bool(self.tokens_file or self.jwt.keys_file or self.client_certificate)

    @model_validator(mode="after")
    def _fits(self) -> AuthSettings:
        if self.operators and not self.used:
            raise ValueError(
                "operators: nobody has an identity without tokens_file, jwt.keys_file or client_certificate"
            )
        if self.client_certificate_prefix and self.client_certificate is None:
            raise ValueError("client_certificate_prefix needs client_certificate")
        return self
