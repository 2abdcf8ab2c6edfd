"""A real collector: rotel, which takes what plannerd sends and passes it on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import grpc
import pytest

from plannerd_client import Client
from tests.support.otlp import QUICK, receiving
from tests.support.redis import free_port
from tests.support.servers import running_server
from tests.telemetry.systems import ARGUMENTS, SYSTEMS

rotel = pytest.importorskip("rotel", reason="rotel has no binary for this platform")


def test_a_real_collector_takes_traces_and_metrics() -> None:
    """What plannerd exports passes through a real collector, traces and metrics, whole."""
    binary = Path(rotel.__file__).parent / "rotel-agent"
    if not binary.exists() or subprocess.run([binary, "--version"], check=False, capture_output=True).returncode:
        pytest.skip("the binary of rotel does not run here")
    port, http_port = free_port(), free_port()
    with receiving() as behind:
        command = [str(binary), "start", "--otlp-grpc-endpoint", f"127.0.0.1:{port}", "--otlp-http-endpoint"]
        command += [f"127.0.0.1:{http_port}", "--exporter", "otlp", "--otlp-exporter-endpoint", behind.endpoint]
        command += ["--otlp-exporter-protocol", "grpc", "--batch-timeout", "100ms"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            try:
                with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                    grpc.channel_ready_future(channel).result(20)
                environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}", **QUICK}
                system = SYSTEMS["scheduler"]()
                with running_server(environment=environment) as server, Client(server.target) as client:
                    client.run(system.planner, system.agents, ARGUMENTS, **system.options)
                    behind.wait_for(lambda: len(behind.spans) >= 6 and "plannerd.steps" in behind.metric_names)
            finally:
                process.terminate()
    assert {"plannerd.step", "decide sparrow", "planner.v1.PlannerService/Init"} <= {span.name for span in behind.spans}
    assert len({span.trace_id for span in behind.spans}) == 1
