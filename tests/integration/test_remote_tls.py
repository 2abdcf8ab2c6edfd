"""The provider `grpc` over TLS, with certificates of a real authority."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
import trustme

from plannerd.app import BuildError, build
from plannerd.decisions.answers import YesNoAnswer
from plannerd.decisions.questions import DecisionRequest, Field, YesNo
from plannerd.errors import PlannerdError, Reason
from plannerd.settings import DecisionsSettings, Settings
from plannerd.settings.grpc import GrpcSettings, GrpcTlsSettings
from tests.support.decision_servers import decision_server, reply

ASKED = DecisionRequest((Field("text", "hello"),), (YesNo("q", "Is it?"),))


class Certificates:
    """Two authorities in a folder: one that both sides trust, and a stranger."""

    def __init__(self, folder: Path) -> None:
        self.ours, self.stranger = trustme.CA(), trustme.CA()
        self.folder = folder
        self.server = self.ours.issue_cert("model.internal")
        self.client = self.ours.issue_cert("plannerd.internal")
        self.ca = self.write("ca.pem", self.ours.cert_pem.bytes())
        self.strangers_ca = self.write("stranger.pem", self.stranger.cert_pem.bytes())
        self.cert = self.write("cert.pem", b"".join(blob.bytes() for blob in self.client.cert_chain_pems))
        self.key = self.write("key.pem", self.client.private_key_pem.bytes())

    def write(self, name: str, content: bytes) -> Path:
        """A file in the folder."""
        (self.folder / name).write_bytes(content)
        return self.folder / name

    def credentials(self, *, mutual: bool) -> grpc.ServerCredentials:
        """Of the server; with `mutual` it wants to see a certificate of ours."""
        chain = b"".join(blob.bytes() for blob in self.server.cert_chain_pems)
        return grpc.ssl_server_credentials(
            [(self.server.private_key_pem.bytes(), chain)],
            self.ours.cert_pem.bytes() if mutual else None,
            require_client_auth=mutual,
        )


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("tls"))


def settings(target: str, tls: GrpcTlsSettings) -> Settings:
    chosen = GrpcSettings(provider="grpc", target=target, tls=tls, retries=0, attempt_timeout_seconds=20.0)
    return Settings(decisions=DecisionsSettings(models={"mine": chosen}))


async def probability(target: str, tls: GrpcTlsSettings) -> float:
    """The answer of a model that plannerd was configured with."""
    app = build(settings(target, tls))
    try:
        response = await app.models.ask(app.models.get(), ASKED, 30.0)
        answer = response.answers["q"]
        assert isinstance(answer, YesNoAnswer)
        return answer.probability
    finally:
        await app.close()


async def test_tls(certificates: Certificates) -> None:
    """A service whose certificate an authority of the settings vouches for is believed."""
    tls = GrpcTlsSettings(enabled=True, ca=certificates.ca, server_name="model.internal")
    async with decision_server(reply(q=0.5), credentials=certificates.credentials(mutual=False)) as server:
        assert await probability(server.target, tls) == 0.5


async def test_mutual_tls(certificates: Certificates) -> None:
    """A service that wants to know who asks is shown the certificate of the settings."""
    tls = GrpcTlsSettings(
        enabled=True,
        ca=certificates.ca,
        cert=certificates.cert,
        key=certificates.key,
        server_name="model.internal",
    )
    async with decision_server(reply(q=0.5), credentials=certificates.credentials(mutual=True)) as server:
        assert await probability(server.target, tls) == 0.5


@pytest.mark.parametrize("wrong", ["authority", "name", "no certificate", "no tls"])
async def test_whoever_is_not_known_is_not_asked(certificates: Certificates, wrong: str) -> None:
    """A strange authority, another name, a missing certificate or no TLS at all: nothing is sent."""
    tls = GrpcTlsSettings(
        enabled=wrong != "no tls",
        ca=None if wrong == "no tls" else certificates.strangers_ca if wrong == "authority" else certificates.ca,
        server_name=None if wrong == "no tls" else "other.internal" if wrong == "name" else "model.internal",
    )
    mutual = wrong == "no certificate"
    async with decision_server(reply(q=0.5), credentials=certificates.credentials(mutual=mutual)) as server:
        with pytest.raises(PlannerdError) as raised:
            await probability(server.target, tls)
        assert raised.value.reason is Reason.DECISION_MODEL_UNAVAILABLE
        assert server.seen == []


async def test_certificates_are_renewed_while_it_runs(certificates: Certificates) -> None:
    """When the files are replaced the next request uses the new ones; half of a pair changes nothing."""
    ca = certificates.write("rotating.pem", certificates.ours.cert_pem.bytes())
    tls = GrpcTlsSettings(enabled=True, ca=ca, server_name="model.internal")
    async with decision_server(reply(q=0.5), credentials=certificates.credentials(mutual=False)) as server:
        app = build(settings(server.target, tls))
        named = app.models.get()
        await app.models.ask(named, ASKED, 30.0)
        certificates.write("rotating.pem", b"half")
        await app.models.ask(named, ASKED, 30.0)
        certificates.write("rotating.pem", certificates.stranger.cert_pem.bytes())
        with pytest.raises(PlannerdError):
            await app.models.ask(named, ASKED, 30.0)
        certificates.write("rotating.pem", certificates.ours.cert_pem.bytes() + b"\n")
        await app.models.ask(named, ASKED, 30.0)
        await app.close()
        assert len(server.seen) == 3


async def test_files_without_certificates_stop_the_start(certificates: Certificates) -> None:
    """A file that has no certificate, or a key that does not belong to it, is found when the server is built."""
    nonsense = certificates.write("nonsense.pem", b"nonsense")
    for tls in (
        GrpcTlsSettings(enabled=True, ca=nonsense),
        GrpcTlsSettings(enabled=True, cert=nonsense, key=certificates.key),
        GrpcTlsSettings(enabled=True, cert=certificates.cert, key=nonsense),
    ):
        with pytest.raises(BuildError, match=r"decisions\.models\.mine: .*nonsense\.pem"):
            build(settings("127.0.0.1:1", tls))
