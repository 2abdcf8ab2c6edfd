"""The snippets of the documentation, and how each kind of them is executed.

What a fenced block is follows from its language and from the marks before it, HTML comments that a reader does
not see. CONTRIBUTING.md says which there are.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import io
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import grpc
import yaml
from google.protobuf import json_format
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from plannerd.decisions.script import Script, parse_script
from plannerd.settings import Settings, load
from plannerd_protos.planner.v1 import planner_pb2, planner_pb2_grpc
from tests.docs.markdown import Block, Page
from tests.support.builders import scheduler
from tests.support.engine import Server

ADDRESSES: Final = ("localhost:50051", "127.0.0.1:50051")
"""How pages write the address of the server; replaced by the one that runs."""

SHELLS: Final = frozenset({"bash", "console", "sh", "shell"})
SHELL_SECONDS: Final = 120.0

SKIPPED: Final = "# not executed here: "
"""How a Python block tells its readers that it is not executed; the reason follows."""

Written: TypeAlias = Mapping[str, Any]
"""A script of the decision model `fixed`, as it is written."""

Serve: TypeAlias = Callable[[Written | None], contextlib.AbstractContextManager[str]]
"""Starts a server whose only decision model follows a script, or one with default settings; gives its address."""


@dataclass(slots=True)
class Surroundings:
    """What a snippet needs beside itself."""

    folder: Path
    serve: Serve


class Example:
    """One thing to execute: blocks that belong together."""

    def __init__(self, *blocks: Block) -> None:
        self.blocks = list(blocks)

    @property
    def name(self) -> str:
        """Where it stands."""
        return self.blocks[0].where

    def run(self, surroundings: Surroundings) -> None:
        """Execute it; raises if that fails."""
        raise NotImplementedError


class PythonExample(Example):
    """Python blocks in one namespace, and what they print."""

    def __init__(self, block: Block, script: Written | None) -> None:
        super().__init__(block)
        self._script = script

    def run(self, surroundings: Surroundings) -> None:
        """Run the blocks, against a server with the script that stands before them."""
        namespace: dict[str, Any] = {"__name__": "__main__"}
        printed = ""
        with surroundings.serve(self._script) as target:
            for block in self.blocks:
                if block.language == "python":
                    printed = self._execute(block, namespace, target)
                else:
                    _compare_text(block, printed)

    @staticmethod
    def _execute(block: Block, namespace: dict[str, Any], target: str) -> str:
        hidden = [(mark.body, mark.line + 1) for mark in block.marks if mark.kind == "hidden"]
        output = io.StringIO()
        for text, line in [*hidden, (block.text, block.line)]:
            # Empty lines before it, so that a traceback shows the place on the page.
            code = "\n" * (line - 1) + _addressed(text, target)
            with contextlib.redirect_stdout(output):
                exec(compile(code, str(block.path), "exec", dont_inherit=True), namespace)
        return output.getvalue()


class Transcript(Example):
    """Requests in their JSON form, sent to a server in order, with what must be in the answers."""

    def __init__(self, block: Block, script: Written | None) -> None:
        super().__init__(block)
        self._script = script
        self._branch: tuple[str, str] | None = None

    def run(self, surroundings: Surroundings) -> None:
        """Send the requests and compare the answers."""
        answer: Message | None = None
        with surroundings.serve(self._script) as target, grpc.insecure_channel(target) as channel:
            stub = planner_pb2_grpc.PlannerServiceStub(channel)
            for block in self.blocks:
                if mark := block.mark("send"):
                    answer = self._send(stub, mark.detail, block.text)
                elif block.mark("answer"):
                    assert answer is not None, f"{block.where}: an answer to nothing"
                    shown = parse_message(type(answer), self._to_server(self._learn(block.text, answer)))
                    _compare(json_form(shown), json_form(answer), block.where)
                else:
                    state = json.loads(answer.step.state.data)  # type: ignore[union-attr]
                    _compare(json.loads(self._to_server(block.text)), state, block.where)

    def _send(self, stub: planner_pb2_grpc.PlannerServiceStub, name: str, text: str) -> Message:
        method = planner_pb2.DESCRIPTOR.services_by_name["PlannerService"].methods_by_name[name]
        request = parse_message(GetMessageClass(method.input_type), self._to_server(text))
        answer: Message = getattr(stub, name)(request, timeout=30)
        return answer

    def _learn(self, text: str, answer: Message) -> str:
        """Find out which branch of a position, a random text, the page has in place of the real one."""
        if self._branch is None:
            shown, real = _branch_of(json.loads(text)), _branch_of(json_form(answer))
            if shown and real:
                self._branch = (shown, real)
        return text

    def _to_server(self, text: str) -> str:
        return text if self._branch is None else text.replace(*self._branch)


class MessageExample(Example):
    """A message of the contract in its JSON form. An InitRequest must also be one that a server accepts."""

    def run(self, surroundings: Surroundings) -> None:
        """Parse it."""
        mark = self.blocks[0].mark("message")
        name = mark.detail if mark else "InitRequest"
        message = parse_message(_message_class(name), self.blocks[0].text)
        if isinstance(message, planner_pb2.InitRequest):
            asyncio.run(self._init(message))

    @staticmethod
    async def _init(request: planner_pb2.InitRequest) -> None:
        request.validate_only = True
        request.invocation_id = request.invocation_id or "example"
        client = Server().client(scheduler(), request.invocation_id)
        client.request = request
        request.decision.model = ""
        await client.init()


class SettingsExample(Example):
    """Settings of the server."""

    def __init__(self, block: Block, files: Mapping[str, str]) -> None:
        super().__init__(block)
        self._files = files

    def run(self, surroundings: Surroundings) -> None:
        """Load them as the server does, with the other files of the page beside them."""
        for name, text in self._files.items():
            (surroundings.folder / name).write_text(text, "utf-8")
        for name in _named_files(yaml.safe_load(self.blocks[0].text)):
            if not Path(name).is_absolute():
                (surroundings.folder / name).touch()
        config = surroundings.folder / "plannerd-settings.yaml"
        config.write_text(self.blocks[0].text, "utf-8")
        load(config)


class ScriptExample(Example):
    """A script of the decision model `fixed`."""

    def run(self, surroundings: Surroundings) -> None:
        """Parse it."""
        parse_script(yaml.safe_load(self.blocks[0].text), self.name)


class ShellExample(Example):
    """Commands."""

    def run(self, surroundings: Surroundings) -> None:
        """Run them, with the tools of this environment first on the path."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self.blocks[0].text],
            cwd=surroundings.folder,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=SHELL_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{self.name}: {done.stdout}{done.stderr}"


MARKS: Final = frozenset(
    {"answer", "continue", "file", "hidden", "message", "model", "output", "run", "send", "settings", "skip", "state"}
)
"""The kinds of marks that there are."""


@dataclass(slots=True)
class _Reader:
    """Goes through a page and collects its examples."""

    files: dict[str, str] = field(default_factory=dict)
    script: Written | None = None
    python: PythonExample | None = None
    transcript: Transcript | None = None
    found: list[Example] = field(default_factory=list)

    def take(self, block: Block) -> None:
        """The next block of the page."""
        for mark in block.marks:
            if mark.kind not in MARKS:
                raise ValueError(f"{block.where}: there is no mark '{mark.kind}'")
            if mark.kind == "skip" and not mark.detail:
                raise ValueError(f"{block.where}: say why it is skipped: <!-- snippet: skip because ... -->")
            if mark.kind in {"file", "model"} and mark.detail:
                self.files[mark.detail] = block.text
        kinds = {mark.kind for mark in block.marks}
        skipped = "skip" in kinds or block.text.startswith(SKIPPED)
        if skipped or ("file" in kinds and len(kinds) == 1):
            return
        if kinds & {"send", "answer", "state"}:
            self._take_message(block, kinds)
        elif block.language == "python":
            self._take_python(block, kinds)
        elif "output" in kinds:
            if self.python is None:
                raise ValueError(f"{block.where}: an output of nothing")
            self.python.blocks.append(block)
        elif block.language in {"json", "yaml", "yml"}:
            self._take_data(block, kinds)
        elif "run" in kinds:
            self.found.append(ShellExample(block))

    def _take_message(self, block: Block, kinds: set[str]) -> None:
        if "send" in kinds and (self.transcript is None or "continue" not in kinds):
            self.transcript = Transcript(block, self.script)
            self.found.append(self.transcript)
            return
        if self.transcript is None:
            raise ValueError(f"{block.where}: nothing was sent before")
        self.transcript.blocks.append(block)

    def _take_python(self, block: Block, kinds: set[str]) -> None:
        if "continue" in kinds:
            if self.python is None:
                raise ValueError(f"{block.where}: a continuation of nothing")
            self.python.blocks.append(block)
            return
        self.python = PythonExample(block, self.script)
        self.found.append(self.python)

    def _take_data(self, block: Block, kinds: set[str]) -> None:
        kind = next(iter(kinds & {"message", "model", "settings"}), None) or _guess(block)
        match kind:
            case "message":
                self.found.append(MessageExample(block))
            case "settings":
                self.found.append(SettingsExample(block, self.files))
            case "model":
                self.found.append(ScriptExample(block))
                # Later blocks of the page are decided by it. A broken one is reported by its own example.
                with contextlib.suppress(ValueError):
                    written = yaml.safe_load(block.text)
                    parse_script(written)
                    self.script = written
            case _:
                raise ValueError(
                    f"{block.where}: nobody knows what this block is. Mark it: <!-- snippet: settings -->, model, "
                    "message NAME, or skip with the reason"
                )


def examples(page: Page) -> list[Example]:
    """What is to be executed of a page.

    Raises:
        ValueError: a block or a mark makes no sense.
    """
    reader = _Reader()
    for block in page.blocks:
        reader.take(block)
    return reader.found


def parse_message(kind: type[Message], text: str) -> Message:
    """The message that `text` is the JSON form of."""
    return json_format.Parse(text, kind())


def json_form(message: Message) -> Any:
    """The JSON form of a message, fields named as in the protos."""
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def _guess(block: Block) -> str | None:
    """What a block of data without a mark is, by its keys."""
    try:
        data = yaml.safe_load(block.text)
    except yaml.YAMLError:
        return None
    keys = set(data) if isinstance(data, dict) else set()
    fields = planner_pb2.InitRequest.DESCRIPTOR.fields
    known = {
        "settings": set(Settings.model_fields),
        "model": set(Script.model_fields),
        "message": {name for item in fields for name in (item.name, item.json_name)},
    }
    return next((kind for kind, names in known.items() if keys and keys <= names), None)


def _named_files(data: Any) -> Iterator[str]:
    """The files that settings name: they need not be on the page."""
    if isinstance(data, dict):
        for key, value in data.items():
            if key == "file" and isinstance(value, str):
                yield value
            yield from _named_files(value)


def _message_class(name: str) -> type[Message]:
    modules = planner_pb2.DESCRIPTOR.dependencies
    for file in [planner_pb2.DESCRIPTOR, *modules]:
        if name in file.message_types_by_name:
            found: type[Message] = GetMessageClass(file.message_types_by_name[name])
            return found
    raise ValueError(f"the contract has no message {name}")


def _compare(shown: Any, real: Any, path: str) -> None:
    """Everything that is shown must be there; what is left out on the page is not looked at."""
    if isinstance(shown, dict):
        assert isinstance(real, dict), f"{path}: is {real!r}"
        for key, item in shown.items():
            assert key in real, f"{path}.{key} is not there, only {', '.join(real)}"
            _compare(item, real[key], f"{path}.{key}")
    elif isinstance(shown, list):
        assert isinstance(real, list), f"{path}: is {real!r}"
        assert len(shown) == len(real), f"{path}: has {len(real)} entries: {real!r}"
        for index, (item, actual) in enumerate(zip(shown, real, strict=True)):
            _compare(item, actual, f"{path}[{index}]")
    elif isinstance(shown, float) and isinstance(real, float):
        assert math.isclose(shown, real), f"{path}: is {real!r}"
    else:
        assert shown == real, f"{path}: is {real!r}"


def _compare_text(block: Block, printed: str) -> None:
    shown, real = block.text.splitlines(), printed.splitlines()
    difference = "\n".join(difflib.unified_diff(shown, real, "on the page", "printed", lineterm=""))
    assert not difference, f"{block.where}: this was printed instead\n{difference}"


def _branch_of(data: Mapping[str, Any]) -> str | None:
    position = data.get("position") or data.get("step", {}).get("position") or {}
    branch: str | None = position.get("branch")
    return branch


def _addressed(text: str, target: str) -> str:
    for address in ADDRESSES:
        text = text.replace(address, target)
    return text


@dataclass(slots=True)
class Servers:
    """Servers for snippets. Those whose answers do not depend on what was asked before are shared.

    Args:
        start: starts a server with these settings, or with its defaults.
        folder: where scripts are written.
    """

    start: Callable[[Mapping[str, Any] | None], contextlib.AbstractContextManager[str]]
    folder: Path
    _shared: dict[str, str] = field(default_factory=dict)
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _count: int = 0

    def close(self) -> None:
        """Stop those that are shared."""
        self._stack.close()

    @contextlib.contextmanager
    def serve(self, script: Written | None) -> Iterator[str]:
        """A server that answers by `script` from its beginning, or by the embedded model."""
        if script is not None and script.get("steps"):
            with self.start(self._settings(script)) as target:
                yield target
            return
        key = "" if script is None else yaml.safe_dump(script)
        if key not in self._shared:
            settings = None if script is None else self._settings(script)
            self._shared[key] = self._stack.enter_context(self.start(settings))
        yield self._shared[key]

    def _settings(self, script: Written) -> dict[str, Any]:
        self._count += 1
        path = self.folder / f"script-{self._count}.yaml"
        path.write_text(yaml.safe_dump(script), "utf-8")
        return {"decisions": {"models": {"fixed": {"provider": "fixed", "file": str(path)}}}}


__all__ = [
    "MARKS",
    "Example",
    "Servers",
    "Surroundings",
    "examples",
    "parse_message",
]
