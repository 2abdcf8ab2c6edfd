"""The settings of the store that replicas share."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import Field, SecretStr, model_validator

from plannerd.settings.base import File, Seconds, Section


class StoreSettings(Section):
    """Where invocations are kept, so that every replica finds them."""

    url: str | None = Field(
        None,
        pattern=r"^(redis|rediss|valkey|valkeys)://[^\s@/]+(/[0-9]{1,5})?$",
        description="A Redis or Valkey server that all replicas share: `redis://HOST:PORT/DATABASE`, with TLS "
        "`rediss://` (or `valkey://`, `valkeys://`). null: in the memory of this process; clients carry the states.",
    )
    username: str | None = Field(None, min_length=1, description="The user there. null: the default user.")
    password: SecretStr | None = Field(
        None, description="The password. Better in the environment or in a file than in the settings file."
    )
    password_file: File | None = Field(None, description="A file with the password, read when the server starts.")
    ca_file: File | None = Field(None, description="Certificates to trust, in PEM. null: those of the system.")
    cert_file: File | None = Field(None, description="An own certificate to show, in PEM.")
    key_file: File | None = Field(None, description="The key of that certificate.")
    cluster: bool = Field(False, description="The server is a node of a cluster, which tells of the others.")
    prefix: str = Field(
        "plannerd",
        pattern=r"^[A-Za-z0-9._:-]{1,64}$",
        description="Begins every key. Deployments that share a server but not invocations have different ones.",
    )
    timeout_seconds: Seconds = Field(
        5.0,
        gt=0,
        description="How long one request to the store may take, with repetitions while it is away. Then calls fail "
        "with STORE_UNAVAILABLE.",
    )
    claim_seconds: Seconds = Field(
        5.0,
        gt=0,
        description="How long others wait for a replica that died while it asked a decision model about an invocation.",
    )

    @model_validator(mode="after")
    def _fits(self) -> StoreSettings:
        tls = self.url is not None and self.url.startswith(("rediss:", "valkeys:"))
        if self.password is not None and self.password_file is not None:
            raise ValueError("password and password_file: give one of them")
        if self.username is not None and self.password is None and self.password_file is None:
            raise ValueError("username needs a password or password_file")
        if (self.cert_file is None) is not (self.key_file is None):
            raise ValueError("cert_file and key_file: give both or neither")
        if not tls and (self.ca_file or self.cert_file):
            raise ValueError("ca_file and cert_file need a url with TLS: rediss:// or valkeys://")
        if self.cluster and urlsplit(self.url or "").path.strip("/0"):
            raise ValueError("a cluster has database 0 only")
        return self
