"""A store that is away, full, slow, or answers without being heard."""

from __future__ import annotations

import asyncio
import re
import signal
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest
import trustme

from plannerd.errors import PlannerdError, Reason
from plannerd.invocations.definitions import Definitions
from plannerd.invocations.stores import MemoryBounds
from plannerd.invocations.stores.connection import Answer, RedisConnection, RedisTarget
from plannerd.invocations.stores.entries import Entries
from plannerd.invocations.stores.redis import RedisStore
from plannerd.invocations.stores.scripts import PUT
from plannerd.services.codec.configuration import read_configuration
from tests.support.builders import agent, output, scheduler
from tests.support.engine import STORE_MAKER, Client, Clock, Server, refused
from tests.support.models import GatedModel, answering, settle, until
from tests.support.redis import RedisProcess, Stores, free_port, running_redis
from tests.support.servers import ROOT

SYSTEM = scheduler(agent("lookup", "ticket", writes="facts"), agent("expert", "facts", writes="advice"))
TICKET = {"ticket": "t1"}
ECHO = "return ARGV[1]"


@pytest.fixture
def own(binary: str) -> Iterator[RedisProcess]:
    """A server that the test may hurt; what it has committed survives its end."""
    with running_redis("--appendonly", "yes", "--appendfsync", "always", binary=binary) as process:
        yield process


@pytest.fixture
async def own_stores(own: RedisProcess) -> AsyncIterator[Stores]:
    """Makes stores there."""
    stores = Stores(own.port)
    yield stores
    await stores.close()


def replica(stores: Stores, model: GatedModel | None = None, *, timeout: float = 20.0, prefix: str = "") -> Server:
    """A server with a store there."""
    token = STORE_MAKER.set(
        lambda bounds, clock, definitions: stores.make(bounds, clock, definitions, timeout=timeout, prefix=prefix)
    )
    try:
        return Server(model or answering(lookup=3, expert=3))
    finally:
        STORE_MAKER.reset(token)


async def test_a_store_that_is_down_changes_nothing(own: RedisProcess, own_stores: Stores) -> None:
    """Without its store a replica refuses steps, soon and as retryable; when it is back the same step is made."""
    client = await replica(own_stores, timeout=1.0).started(SYSTEM)
    report = output(client.call("lookup"), "f1")
    own.stop()
    for request in (client.next(report), client.where(), client.end()):
        started = time.monotonic()
        with refused(Reason.STORE_UNAVAILABLE) as caught:
            await request
        assert caught.error.retry_after is not None
        assert time.monotonic() - started < 10
    assert client.server.decisions == 1, "nothing is decided that could not be kept"
    own.start()
    patient = client.at(client.server)
    async with asyncio.timeout(30):
        while True:
            try:
                await patient.next(report)
                break
            except PlannerdError as error:
                if error.reason is not Reason.STORE_UNAVAILABLE:
                    raise
    assert patient.agents == {"expert": "outstanding"}
    assert client.server.decisions == 2


async def test_a_restart_of_the_store_is_not_noticed(own: RedisProcess, own_stores: Stores) -> None:
    """A store that is gone for less than the time-out costs time, and nothing else."""
    client = await replica(own_stores).started(SYSTEM)
    own.stop()
    step = asyncio.create_task(client.next(output(client.call("lookup"), "f1")))
    await asyncio.sleep(0.5)
    await asyncio.to_thread(own.start)
    await step
    assert client.agents == {"expert": "outstanding"}
    assert client.server.decisions == 2


async def test_a_full_store_says_so(own: RedisProcess, own_stores: Stores) -> None:
    """A store without room fails steps at once, as such; reading and ending work, and with room the step is made."""
    client = await replica(own_stores).started(SYSTEM)
    report = output(client.call("lookup"), "f1")
    other = await client.server.started(SYSTEM, invocation_id="other")
    own.command("CONFIG", "SET", "maxmemory", "1")
    before = await client.where()
    with refused(Reason.STORE_FULL) as caught:
        await client.next(report)
    assert caught.error.retry_after is not None
    with refused(Reason.STORE_FULL):
        await client.server.client(SYSTEM, "i2").init()
    assert await client.where() == before
    await other.end()  # that makes room
    own.command("CONFIG", "SET", "maxmemory", "0")
    await client.next(report)


async def test_a_client_that_hangs_up_during_the_commit_finds_one_step(own: RedisProcess, own_stores: Stores) -> None:
    """A step whose commit was cancelled half-way happened or did not: sent again, it has happened once."""
    client = await replica(own_stores).started(SYSTEM)
    report = output(client.call("lookup"), "f1")
    own.send(signal.SIGSTOP)
    step = asyncio.create_task(client.next(report))
    await asyncio.sleep(0.2)
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step
    own.send(signal.SIGCONT)
    await client.next(report)
    assert client.position.revision == 2
    assert client.agents == {"expert": "outstanding"}


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_decision_that_was_paid_for_is_kept_though_its_client_is_gone(
    own: RedisProcess, own_stores: Stores, elsewhere: bool
) -> None:
    """When a client hangs up while a slow store takes a decision, the decision is committed, and not made again."""
    prefix = uuid.uuid4().hex
    model, other = GatedModel(answering(lookup=3)), GatedModel(answering(lookup=3))
    client = replica(own_stores, model, prefix=prefix).client(SYSTEM)
    await client.init()
    there = client.at(replica(own_stores, other, prefix=prefix))
    step = asyncio.create_task(client.first(TICKET))
    await model.entered.wait()
    own.send(signal.SIGSTOP)
    model.gate.set()
    await until(lambda: len(model.asked) == 1)
    await settle()
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step
    again = there if elsewhere else client
    repeated = asyncio.create_task(again.first(TICKET))
    await asyncio.sleep(0.3)
    own.send(signal.SIGCONT)
    await repeated
    assert again.agents == {"lookup": "outstanding"}
    assert (len(model.asked), other.waiting, len(other.asked)) == (1, 0, 0)


class Deaf(RedisConnection):
    """A connection on which the answers to some writes are lost."""

    lost = 0

    async def run(self, script: str, keys: Sequence[bytes], arguments: Sequence[bytes]) -> Answer:
        """Run it, and perhaps hear nothing."""
        answer = await super().run(script, keys, arguments)
        if script == PUT and self.lost:
            self.lost -= 1
            raise PlannerdError(Reason.STORE_UNAVAILABLE, "lost")
        return answer


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_commit_whose_answer_was_lost_counts(redis: RedisProcess, elsewhere: bool) -> None:
    """When the store committed and nobody heard, the step is found as made, here and at another replica."""
    prefix = uuid.uuid4().hex
    connections: list[Deaf] = []

    def make(bounds: MemoryBounds, clock: Clock, definitions: Definitions) -> RedisStore:
        connections.append(Deaf(RedisTarget("127.0.0.1", redis.port)))
        define = lambda source: definitions.define(read_configuration(source))  # noqa: E731
        return RedisStore(connections[-1], Entries(bounds, clock), define, prefix=prefix)

    token = STORE_MAKER.set(make)
    client: Client = await Server(answering(lookup=3, expert=3)).started(SYSTEM)
    other = Server(answering())
    STORE_MAKER.reset(token)
    report = output(client.call("lookup"), "f1")
    connections[0].lost = 1
    with refused(Reason.STORE_UNAVAILABLE):
        await client.next(report)
    again = client.at(other) if elsewhere else client
    await again.next(report)
    assert again.agents == {"expert": "outstanding"}
    assert client.server.decisions == 2
    assert other.decisions == 0
    for connection in connections:
        await connection.close()


async def test_a_write_may_arrive_twice(redis: RedisProcess) -> None:
    """A write that is sent again after its answer was lost, on the way to the store, is the same write."""
    connection = RedisConnection(RedisTarget("127.0.0.1", redis.port))
    keys = [f"{uuid.uuid4().hex}{kind}".encode() for kind in "ic"]
    first = [b"", b"v1", b"60000", b"anew", b"1", b"p", b"1.0.b"]
    second = [b"v1", b"v2", b"60000", b"change", b"1", b"p", b"1.1.b"]
    assert await connection.run(PUT, keys, first) == 1
    assert await connection.run(PUT, keys, first) == 1
    assert await connection.run(PUT, keys, second) == 1
    assert await connection.run(PUT, keys, second) == 1
    assert await connection.run(PUT, keys, first) == 0
    await connection.close()


# ---- ways to be let in


async def test_a_password_is_needed_where_there_is_one(binary: str) -> None:
    """The right password is let in, a wrong one and none are not, and no message tells it."""
    with running_redis("--requirepass", "hunter2", binary=binary) as own:
        right = RedisConnection(RedisTarget("127.0.0.1", own.port, password="hunter2"))
        assert await right.run(ECHO, [], [b"a"]) == b"a"
        await right.close()
        for password in ("hunter3", ""):
            target = RedisTarget("127.0.0.1", own.port, password=password, timeout=1.0)
            wrong = RedisConnection(target)
            with refused(Reason.STORE_UNAVAILABLE) as caught:
                await wrong.run(ECHO, [], [b"a"])
            assert "hunter" not in caught.error.message
            assert "hunter" not in repr(target)
            await wrong.close()


async def test_a_user_is_let_in_by_name(binary: str) -> None:
    """A user of an access control list with its password is let in."""
    with running_redis(binary=binary) as own:
        own.command("ACL", "SETUSER", "planner", "on", ">secret", "~*", "+@all")
        named = RedisConnection(RedisTarget("127.0.0.1", own.port, username="planner", password="secret"))
        assert await named.run(ECHO, [], [b"a"]) == b"a"
        await named.close()


async def test_a_user_with_no_more_rights_than_the_docs_name(binary: str) -> None:
    """The rights that docs/store.md names are enough for everything that is done."""
    (line,) = re.findall(r"^ACL SETUSER plannerd .*$", (ROOT / "docs" / "store.md").read_text("utf-8"), re.MULTILINE)
    with running_redis(binary=binary) as own:
        rule = line.replace("PASSWORD", "secret").replace("PREFIX", "mine").split(" ")
        assert own.command(*rule).startswith(b"+OK")
        target = RedisTarget("127.0.0.1", own.port, database=1, username="plannerd", password="secret")
        definitions = Definitions(keep_source=True)
        store = RedisStore(
            RedisConnection(target),
            Entries(MemoryBounds(), time.monotonic),
            lambda source: definitions.define(read_configuration(source)),
            prefix="mine",
            max_per_identity=5,
        )
        try:
            assert await store.admits(("me", "i1"))
            token = STORE_MAKER.set(lambda *_: store)
            client = await Server(answering(lookup=3, expert=3)).started(SYSTEM)
            STORE_MAKER.reset(token)
            await client.next(output(client.call("lookup"), "f1"))
            await client.where()
            await client.end()
            assert await store.check() is None
            assert len((await store.page("", 10)).entries) == 1
            assert await store.peek(("me", "i1")) is not None
            denied = re.findall(rb"object\r\n\$\d+\r\n([^\r]*)", own.command("ACL", "LOG"))
            assert set(denied) <= {b"client|setinfo"}, "newer servers have it, and are asked; it does not matter"
        finally:
            await store.close()


async def test_tls(tmp_path: Path, binary: str) -> None:
    """With TLS the server must show a certificate that is trusted, and the client one if the server asks."""
    authority = trustme.CA()
    files = {"ca": tmp_path / "ca.pem", "cert": tmp_path / "cert.pem", "key": tmp_path / "key.pem"}
    server, mine = authority.issue_cert("localhost", "127.0.0.1"), authority.issue_cert("plannerd")
    authority.cert_pem.write_to_path(files["ca"])
    server.private_key_and_cert_chain_pem.write_to_path(files["cert"])
    server.private_key_pem.write_to_path(files["key"])
    ca = authority.cert_pem.bytes()
    cert, key = b"".join(blob.bytes() for blob in mine.cert_chain_pems), mine.private_key_pem.bytes()
    options = ["--tls-ca-cert-file", files["ca"], "--tls-cert-file", files["cert"], "--tls-key-file", files["key"]]
    with running_redis(*map(str, options), "--tls-auth-clients", "yes", tls=True, binary=binary) as own:

        async def answer(trusted: bytes, *, shown: bool) -> Answer:
            own_cert, own_key = (cert, key) if shown else (None, None)
            connection = RedisConnection(
                RedisTarget("localhost", own.port, tls=True, ca=trusted, cert=own_cert, key=own_key, timeout=2.0)
            )
            try:
                return await connection.run(ECHO, [], [b"a"])
            finally:
                await connection.close()

        assert await answer(ca, shown=True) == b"a"
        with refused(Reason.STORE_UNAVAILABLE):
            await answer(ca, shown=False)
        with refused(Reason.STORE_UNAVAILABLE):
            await answer(trustme.CA().cert_pem.bytes(), shown=True)


async def test_a_cluster(binary: str) -> None:
    """An invocation is kept in a cluster, where its keys are on one node."""
    with running_redis("--cluster-enabled", "yes", "--cluster-port", str(free_port()), binary=binary) as own:
        own.command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
        await until(lambda: b"cluster_state:ok" in own.command("CLUSTER", "INFO"))
        stores = Stores(own.port, cluster=True)
        client = await replica(stores).started(SYSTEM, TICKET, invocation_id="with {braces}")
        await client.next(output(client.call("lookup"), "f1"))
        assert client.agents == {"expert": "outstanding"}
        await stores.close()
