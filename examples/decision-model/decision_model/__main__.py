"""`python -m decision_model` serves the model of `model.py`."""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path

import grpc

from decision_model import model
from decision_model.server import DecisionModel, serve


def main() -> None:
    """Run the server."""
    parser = argparse.ArgumentParser(prog="decision_model", description="Serve a decision model for plannerd.")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen")
    parser.add_argument("--port", type=int, default=50061, help="the port; 0 is a free one, which is printed")
    parser.add_argument("--cert", type=Path, help="a certificate (PEM), for TLS")
    parser.add_argument("--key", type=Path, help="its key")
    arguments = parser.parse_args()
    credentials = None
    if arguments.cert and arguments.key:
        credentials = grpc.ssl_server_credentials([(arguments.key.read_bytes(), arguments.cert.read_bytes())])
    service = DecisionModel(model.answer, model.NAME, os.environ.get("MODEL_TOKEN", ""))
    asyncio.run(serve(service, arguments.host, arguments.port, credentials))


if __name__ == "__main__":
    main()
