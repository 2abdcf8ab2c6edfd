"""Agents: functions with a name, a description and a place in the scope."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar, overload

from plannerd_client._conditions import ConditionLike
from plannerd_client._context import AgentContext, Suspend
from plannerd_client._signatures import Parameter, inspect_function, output_type_of, summary_of

P = ParamSpec("P")
R = TypeVar("R")


class Agent(Generic[P, R]):
    """A function that a planner may run. It can still be called like the function.

    Args:
        function: plain or `async`. Its parameters name the scope keys that it reads. A parameter without a default
            is mandatory; one with a default gets the default where the key is not in the scope; one whose default
            is None, or whose annotation allows None, is optional. `Annotated[str, Key("order-id")]` reads another
            key than its name. A parameter annotated `AgentContext` gets the context.
        name: how planners call it. Default: the function's name.
        description: what it does; decision models read it. Default: the first paragraph of the docstring.
        id: identifies it among agents of the same name. Default: `<name>$<position>`.
        type: by which a `Desire` names it. Default: the name.
        output_key: the scope key that the output is written to. Default: the output is not kept in the scope.
        output_type: the type of the output as an annotation (`dict`, `str`, ...). Default: the return annotation.
        async_: the planner goes on while the agent runs. Needs an output key.
        optional: the agent is skipped, not failed, when a mandatory argument is missing.
        human: a human answers; see `Suspend` and `human`. Needs an output key.
        activation: when the agent may run at all. Default: always.
        timeout: seconds that one attempt may take. For an agent that suspends, also how long its answer may take.
        available: False says that the description can't be read now; decision planners leave the agent out.

    Raises:
        TypeError: the function takes `*args` or `**kwargs`.
        ValueError: a function without a name was given none; `timeout` is not positive.
    """

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        id: str = "",  # noqa: A002 -- what it is called everywhere else
        type: str = "",  # noqa: A002
        output_key: str = "",
        output_type: Any = None,
        async_: bool = False,
        optional: bool = False,
        human: bool = False,
        activation: ConditionLike | None = None,
        timeout: float | None = None,
        available: bool = True,
    ) -> None:
        if isinstance(function, Agent):
            raise TypeError(f"{function!r} is an agent already; describe its function anew: Agent(agent.function, ...)")
        signature = inspect_function(function)
        self.name = name if name is not None else getattr(function, "__name__", "<unnamed>")
        if self.name.startswith("<"):
            raise ValueError(f"{function!r} has no name of its own: give the agent one")
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout must be positive, not {timeout}")
        self.function = function
        self.description = description if description is not None else summary_of(function)
        self.id = id
        self.type = type or self.name
        self.parameters = signature.parameters
        self.output_key = output_key
        self.output_type = signature.output_type if output_type is None else output_type_of(output_type)
        self.async_ = async_
        self.optional = optional
        self.human = human
        self.activation = activation
        self.timeout = timeout
        self.available = available
        self.is_coroutine = _is_coroutine(function)
        self._context = signature.context
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Agent {self.name!r}>"

    def bind(self, values: Mapping[str, Any], context: AgentContext) -> Callable[[], Any]:
        """The call of the function with `values`, by scope key, and the context where it asks for one."""
        arguments = {parameter.name: values[parameter.key] for parameter in self.parameters}
        positional = [arguments.pop(parameter.name) for parameter in self.parameters if parameter.positional]
        if self._context is not None:
            arguments[self._context] = context
        return functools.partial(self.function, *positional, **arguments)


AnyAgent: TypeAlias = Agent[..., Any]


@overload
def agent(function: Callable[P, R], /) -> Agent[P, R]: ...
@overload
def agent(
    *,
    name: str | None = None,
    description: str | None = None,
    id: str = "",
    type: str = "",
    output_key: str = "",
    output_type: Any = None,
    async_: bool = False,
    optional: bool = False,
    human: bool = False,
    activation: ConditionLike | None = None,
    timeout: float | None = None,
    available: bool = True,
) -> Callable[[Callable[P, R]], Agent[P, R]]: ...
def agent(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make an `Agent` of a function: `@agent` or `@agent(output_key="draft", ...)`, with the arguments of `Agent`."""
    if function is None:
        return functools.partial(Agent, **options)
    return Agent(function)


def human(
    name: str,
    *,
    output_key: str,
    description: str = "",
    arguments: Sequence[str] = (),
    request: Any = None,
    id: str = "",  # noqa: A002
    type: str = "",  # noqa: A002
    output_type: Any = None,
    optional: bool = False,
    activation: ConditionLike | None = None,
    timeout: float | None = None,
) -> AnyAgent:
    """An agent that is a human: when its turn comes the run suspends until somebody answers.

    Args:
        name: how planners call it.
        output_key: the scope key that the answer is written to.
        description: what the human does; decision models read it.
        arguments: the scope keys that it needs; the suspension shows their values.
        request: what is asked; the suspension shows it.
        id: as in `Agent`.
        type: as in `Agent`.
        output_type: as in `Agent`.
        optional: as in `Agent`.
        activation: as in `Agent`.
        timeout: seconds that the answer may take. Looked at when the run is resumed.
    """
    made = _Human(
        functools.partial(Suspend, request),
        name=name,
        description=description,
        id=id,
        type=type,
        output_key=output_key,
        output_type=Any if output_type is None else output_type,
        optional=optional,
        human=True,
        activation=activation,
        timeout=timeout,
    )
    made.parameters = tuple(Parameter(key, key) for key in arguments)
    return made


class _Human(Agent[..., Any]):
    """An agent that only suspends: what it reads is for whoever answers."""

    def bind(self, values: Mapping[str, Any], context: AgentContext) -> Callable[[], Any]:
        return self.function


def as_agent(function: AnyAgent | Callable[..., Any]) -> AnyAgent:
    """`function` itself if it is an `Agent`, else one of it."""
    return function if isinstance(function, Agent) else Agent(function)


def _is_coroutine(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
