"""Real servers in processes of their own, for tests, the demo and benchmarks.

    with running_server() as server:
        channel = grpc.insecure_channel(server.target)

A server is ready when its health service says so. Only processes that were started here are ever stopped.
What a server logged is shown with whatever fails while it runs.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parents[2]

# Only a hanging server needs them; what is waited for is an event, looked for every POLL_SECONDS.
START_SECONDS = 60.0
STOP_SECONDS = 60.0
POLL_SECONDS = 0.01

_LISTENING = "listening on "


class ServerFailedError(Exception):
    """A server did not start, did not stop, or ended with an error."""


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A server that was started here; `credentials` are those of a channel, where it speaks TLS.

    `server_name` is what its certificate says, where that is not its address.
    """

    process: subprocess.Popen[bytes]
    output: Path
    errors: Path
    credentials: grpc.ChannelCredentials | None = None
    server_name: str | None = None

    @property
    def targets(self) -> list[str]:
        """What it listens on, as a channel takes it; empty until it has said so."""
        # A line counts once it is complete.
        lines = self.output.read_text("utf-8").splitlines(keepends=True)
        return [line.strip().removeprefix(_LISTENING) for line in lines if line.startswith(_LISTENING) and "\n" in line]

    @property
    def target(self) -> str:
        """The first of them."""
        return self.targets[0]

    @property
    def port(self) -> int:
        """Its port."""
        return int(self.target.rpartition(":")[2])

    def log(self) -> str:
        """Everything that it wrote to standard error."""
        return self.errors.read_text("utf-8", "replace")

    def events(self) -> list[dict[str, Any]]:
        """Its log, of which every line must be JSON."""
        return [json.loads(line) for line in self.log().splitlines()]

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """Wait until it has ended; its exit code.

        Raises:
            ServerFailedError: it hangs.
        """
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise ServerFailedError(f"the server did not end within {STOP_SECONDS} s") from None

    def stop(self) -> None:
        """Ask it to stop, if it runs, and wait until it has.

        Raises:
            ServerFailedError: it hangs, or ended with an error.
        """
        if self.process.poll() is None:
            self.signal()
        code = self.wait()
        if code != 0:
            raise ServerFailedError(f"the server ended with exit code {code}")

    def wait_until_serving(self) -> None:
        """Wait until its health service says so.

        Raises:
            ServerFailedError: it ended, or takes too long.
        """
        give_up = time.monotonic() + START_SECONDS
        while not self.targets:
            self._still_starting(give_up)
            time.sleep(POLL_SECONDS)
        # A pool of its own: connections that others have to the same address are not shared.
        options: list[tuple[str, Any]] = [("grpc.use_local_subchannel_pool", 1)]
        if self.server_name is not None:
            options.append(("grpc.ssl_target_name_override", self.server_name))
        with (
            grpc.insecure_channel(self.target, options)
            if self.credentials is None
            else grpc.secure_channel(self.target, self.credentials, options)
        ) as channel:
            check = health_pb2_grpc.HealthStub(channel).Check
            while True:
                self._still_starting(give_up)
                try:
                    reply = check(health_pb2.HealthCheckRequest(), timeout=1.0, wait_for_ready=True)
                except grpc.RpcError:
                    continue
                if reply.status == health_pb2.HealthCheckResponse.SERVING:
                    return
                time.sleep(POLL_SECONDS)

    def _still_starting(self, give_up: float) -> None:
        code = self.process.poll()
        if code is not None:
            raise ServerFailedError(f"the server ended with exit code {code} before it served")
        if time.monotonic() > give_up:
            raise ServerFailedError(f"the server does not serve after {START_SECONDS} s")


@contextmanager
def running_server(
    *arguments: str,
    config: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    module: str = "plannerd",
    credentials: grpc.ChannelCredentials | None = None,
    server_name: str | None = None,
) -> Iterator[ServerProcess]:
    """A server that serves; stopped at the end, unless it was before.

    Args:
        arguments: of `plannerd serve`; a free port is chosen unless they name one.
        config: settings, written to a file for `--config`.
        environment: variables beside those of this process, whose PLANNERD_* are left out.
        module: what to run, a module with the command line of plannerd.
        credentials: of a channel to it, where it speaks TLS.
        server_name: what its certificate says, where that is not its address.

    Raises:
        ServerFailedError: it did not start, did not stop, or ended with an error.
    """
    with tempfile.TemporaryDirectory(prefix="plannerd-") as folder:
        place = Path(folder)
        command = [sys.executable, "-m", module, "serve", *arguments]
        if "--port" not in arguments:
            command += ["--port", "0"]
        if config is not None:
            (place / "config.yaml").write_text(yaml.safe_dump(dict(config)), "utf-8")
            command += ["--config", str(place / "config.yaml")]
        output, errors = place / "output", place / "errors"
        with output.open("wb") as to_output, errors.open("wb") as to_errors:
            process = subprocess.Popen(
                command, cwd=ROOT, env=_environment(environment), stdout=to_output, stderr=to_errors
            )
        server = ServerProcess(process, output, errors, credentials, server_name)
        try:
            server.wait_until_serving()
            yield server
            server.stop()
        except BaseException as error:
            error.add_note(f"--- log of {' '.join(command[2:])} ---\n{server.log()}--- end ---")
            raise
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def run_plannerd(*arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command `plannerd` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "plannerd", *arguments],
        cwd=ROOT,
        env=_environment(environment),
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
    )


def _environment(extra: Mapping[str, str] | None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith("PLANNERD_")}
    return kept | dict(extra or {})
