"""The clients against a real server that speaks TLS and asks who calls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from plannerd_client import AsyncClient, Client, Scheduler, Tls, agent
from plannerd_client.errors import ServerUnreachable, Unauthenticated
from tests.client.conftest import runs
from tests.support.security import (
    ALICE_TOKEN,
    BOB_TOKEN,
    Authority,
    Files,
    Signer,
    authority,
    ec_signer,
    jwks,
)
from tests.support.servers import ServerProcess, running_server

ARGUMENTS = {"ticket": "the kettle leaks"}


@agent(output_key="category")
def classify(ticket: str) -> str:
    """Finds out what it is about."""
    return "kettle"


@agent(output_key="reply")
def draft(ticket: str, category: str) -> str:
    """Writes the reply."""
    return f"About your {category}."


@dataclass(frozen=True)
class Secure:
    """A server that wants certificates of clients and takes both kinds of tokens."""

    process: ServerProcess
    files: Files
    ours: Authority
    clients: Authority
    signer: Signer

    def tls(self, *, certificate: bool = True) -> Tls:
        """How a client trusts it, with a certificate of its own unless told otherwise."""
        own = {"cert": self.files.folder / "client.pem", "key": self.files.folder / "client.key"}
        return Tls(ca=self.files.folder / "server-ca.pem", **own if certificate else {})

    @property
    def connection(self) -> dict[str, Any]:
        return {"target": self.process.target, "tls": self.tls()}


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    files = Files(tmp_path_factory.mktemp("secure"))
    ours, clients, signer = authority(), authority(), ec_signer("client-tests")
    client = clients.issue("client.example")
    files.write("server-ca.pem", ours.pem)
    files.write("client.pem", client[0])
    files.write("client.key", client[1])
    model = files.write("model.yaml", yaml.safe_dump({"defaults": {"yes_no": 0.1, "scale": 3}}))
    tls = files.certificate(*ours.issue("127.0.0.1"), clients.pem)
    auth = files.tokens() | files.keys(jwks(signer), leeway_seconds=0.0)
    config = {
        "server": {"tls": _plain(tls)},
        "auth": _plain(auth),
        "decisions": {"models": {"fixed": {"provider": "fixed", "file": str(model)}}},
    }
    with running_server(config=config, credentials=ours.trusted(client)) as process:
        yield Secure(process, files, ours, clients, signer)


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as they are written into a file."""
    made = {name: _plain(value) if isinstance(value, dict) else value for name, value in settings.items()}
    return {name: str(value) if isinstance(value, Path) else value for name, value in made.items()}


def scheduler() -> Scheduler:
    return Scheduler(goal="the ticket is answered", goal_threshold=0.9, activation_threshold=0.3)


def test_a_run_over_mtls_with_a_token(kind: str, stream: bool, secure: Secure) -> None:
    """A run works over TLS with an own certificate and either kind of token."""
    for token in (ALICE_TOKEN, secure.signer.token("carol")):
        run = runs(kind, stream=stream, token=token, **secure.connection)
        assert run(scheduler(), [classify, draft], ARGUMENTS, output_key="reply").result == "About your kettle."


def test_without_the_right_certificates_there_is_no_connection(kind: str, secure: Secure) -> None:
    """Without TLS, without an own certificate, or with another authority nothing is reached."""
    foreign = secure.files.write("foreign-ca.pem", authority().pem)
    for tls in (None, secure.tls(certificate=False), Tls(ca=foreign)):
        with pytest.raises(ServerUnreachable):
            call(kind, "list_planners", target=secure.process.target, tls=tls, token=ALICE_TOKEN)


def call(kind: str, method: str, **connection: Any) -> Any:
    """One request by either client."""
    if kind == "sync":
        with Client(**connection) as client:
            return getattr(client, method)()

    async def go() -> Any:
        async with AsyncClient(**connection) as client:
            return await getattr(client, method)()

    return asyncio.run(go())


class Tokens:
    """A function that gives tokens, and counts how often it is asked."""

    def __init__(self, make: Callable[[int], str]) -> None:
        self.asked = 0
        self._make = make

    def __call__(self) -> str:
        self.asked += 1
        return self._make(self.asked)


def test_a_token_function_is_asked_again_when_its_token_has_expired(kind: str, stream: bool, secure: Secure) -> None:
    """An agent that takes longer than a token lives does no harm: the next request brings a fresh one."""
    expires = 0

    def token(number: int) -> str:
        nonlocal expires
        expires = int(time.time()) + 2
        return secure.signer.token("carol", exp=expires)

    @agent(output_key="category")
    def slow(ticket: str) -> str:
        """Takes longer than the token is good."""
        time.sleep(max(0.0, expires - time.time()) + 0.05)
        return "kettle"

    tokens = Tokens(token)
    run = runs(kind, stream=stream, token=tokens, **secure.connection)
    result = run(scheduler(), [slow, draft], ARGUMENTS, output_key="reply")
    assert result.result == "About your kettle."
    assert sum(step.retries for step in result.steps) == 0
    assert tokens.asked == 2 if stream else tokens.asked > 2


def test_a_wrong_token_is_not_tried_again(kind: str, stream: bool, secure: Secure) -> None:
    """UNAUTHENTICATED ends a run at once, with a reason that says what is wrong."""
    tokens = Tokens(lambda number: "wrong-0123456789abcdef")
    with pytest.raises(Unauthenticated) as caught:
        runs(kind, stream=stream, token=tokens, **secure.connection)(scheduler(), [classify], ARGUMENTS)
    assert caught.value.metadata == {"problem": "unknown"}
    assert tokens.asked == 1


def test_a_token_that_goes_bad_ends_the_run(kind: str, stream: bool, secure: Secure) -> None:
    """Where the token function has nothing better, a run ends with UNAUTHENTICATED after one more try at most."""
    good = secure.signer.token("carol", exp=int(time.time()) + 2)
    tokens = Tokens(lambda number: good)

    @agent(output_key="category")
    def slow(ticket: str) -> str:
        """Takes longer than the token is good."""
        time.sleep(2.1)
        return "kettle"

    with pytest.raises(Unauthenticated) as caught:
        runs(kind, stream=stream, token=tokens, **secure.connection)(scheduler(), [slow, draft], ARGUMENTS)
    assert caught.value.metadata == {"problem": "expired"}
    # Init and FirstAction, the refused report, and the attempt to end the invocation.
    assert tokens.asked <= 4


def test_identities_do_not_see_each_other(kind: str, secure: Secure) -> None:
    """Two identities can use one invocation id at the same time."""
    for token in (ALICE_TOKEN, BOB_TOKEN):
        result = runs(kind, token=token, **secure.connection)(
            scheduler(), [classify, draft], ARGUMENTS, output_key="reply", invocation_id=f"shared-{kind}"
        )
        assert result.result == "About your kettle."
