"""Every name that telemetry uses: of spans, attributes, events and metrics. There are none elsewhere.

Names of the OpenTelemetry semantic conventions are used where there are some (`rpc.*`, `gen_ai.*`, `db.*`, `server.*`,
`error.type`); the rest begins with `plannerd.`. docs/telemetry.md has the tables that are made of this file.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

SCOPE: Final = "plannerd"
"""The instrumentation scope of all spans and metrics."""


class Attribute(enum.StrEnum):
    """The name of an attribute of spans, of events in them, or of metrics, with what it says."""

    description: str

    def __new__(cls, name: str, description: str) -> Attribute:
        """A string that has a description."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.description = description
        return member

    # Calls.
    RPC_SYSTEM = "rpc.system.name", "`grpc`"
    RPC_METHOD = "rpc.method", "the method, `planner.v1.PlannerService/NextAction`"
    RPC_STATUS = "rpc.response.status_code", "the name of the gRPC status, `OK`"
    ERROR_TYPE = "error.type", "the reason of a failure, as in ErrorInfo; only where something failed"
    SERVER_ADDRESS = "server.address", "where the server listens, or where the store is"
    SERVER_PORT = "server.port", "the port"
    STREAM = "plannerd.stream", "the request came over a stream (Run)"
    STREAM_REQUESTS = "plannerd.stream.requests", "how many requests of the stream were answered"

    # Invocations.
    INVOCATION_ID = "plannerd.invocation.id", "the invocation, as its client named it"
    PLANNER = "plannerd.planner", "the planner: `scheduler`, `router`, `cascade`, `bdi` or a plug-in's name"
    EPOCH = "plannerd.position.epoch", "the position after the step: how often the invocation was taken over"
    REVISION = "plannerd.position.revision", "the position after the step: how many steps were made"
    BRANCH = "plannerd.position.branch", "the position after the step: the branch"
    RESUMED = "plannerd.resumed", "an Init went on from an execution state or a planner map"
    REPEATED = "plannerd.step.repeated", "the request was answered before: it got the stored reply, nothing was decided"

    # Steps.
    OUTCOME = "plannerd.step.outcome", "the outcome in a word, `called`"
    REASON = "plannerd.step.reason", "the outcome in a sentence; not of plug-ins, which write their own"
    ACTION = (
        "plannerd.step.action",
        "what to do: `start`, `await`, `suspend`, `done`, `give_up`, `no_op`",
    )
    GIVE_UP = "plannerd.step.give_up", "why the planner gave up"
    CALLED = "plannerd.step.called", "the ids of the agents that were called"
    CALLS = "plannerd.step.calls", "the ids of the calls that were issued, in the same order"
    CANDIDATES = "plannerd.step.candidates", "the ids of the agents that could run"
    MISSING_KEY = "plannerd.step.missing_key", "the ids of agents that lack a mandatory argument"
    INACTIVE = "plannerd.step.inactive", "the ids of agents whose activation condition did not hold"
    UNCHANGED = "plannerd.step.unchanged", "the ids of agents that ran, and none of whose arguments has changed since"
    UNAVAILABLE = "plannerd.step.unavailable", "the ids of agents whose description can't be read"
    SCORED = "plannerd.step.scored", "the ids of the agents that have a score, in the order of their declaration"
    SCORES = "plannerd.step.scores", "their scores, in the same order"
    THRESHOLDED = "plannerd.step.thresholded", "the ids of the agents that were held against a threshold"
    THRESHOLDS = "plannerd.step.thresholds", "their thresholds, in the same order"
    GOAL_PROBABILITY = "plannerd.step.goal.probability", "the probability that the goal is reached"
    GOAL_THRESHOLD = "plannerd.step.goal.threshold", "the threshold that it was held against"
    GOAL_RESULT_MISSING = (
        "plannerd.step.goal.result_missing",
        "the goal was not asked about: no result is there yet",
    )
    HELD = "plannerd.step.conditions.held", "the agents and desires whose conditions held"
    FAILED = "plannerd.step.conditions.failed", "the agents and desires whose conditions did not hold"
    WARNINGS = "plannerd.step.warnings", "the codes of the step's warnings"
    DECISIONS = "plannerd.step.decisions", "how many requests to a decision model it took"
    SECONDS = "plannerd.step.seconds", "how long the step took, as its explanation says"

    # Decisions.
    OPERATION = "gen_ai.operation.name", "`decide`"
    PROVIDER = "gen_ai.provider.name", "the kind of provider: `sparrow`, `systemone`, `grpc`, `fixed`"
    MODEL = "gen_ai.request.model", "the decision model that was asked, by its configured name"
    RESOLVED_MODEL = "gen_ai.response.model", "the model as it names itself"
    INPUT_TOKENS = "gen_ai.usage.input_tokens", "tokens read, as far as the model says"
    OUTPUT_TOKENS = "gen_ai.usage.output_tokens", "tokens written, as far as the model says"
    TOKEN_TYPE = "gen_ai.token.type", "`input` or `output`"
    RETRIES = "plannerd.decision.retries", "how often the request was sent again"
    DECISION_SECONDS = "plannerd.decision.seconds", "how long the model took, as the explanation says"
    QUESTION_COUNT = "plannerd.decision.question_count", "how many questions the request had"
    PART = "plannerd.decision.part", "which part of a decision that was split it is, from 1"
    PARTS = "plannerd.decision.parts", "how many parts there are"
    INPUT_DIGEST = "plannerd.decision.input_digest", "equal inputs, equal digests"
    INPUT_CHARS = "plannerd.decision.truncation.original_chars", "the size of an input that was cut"
    USED_CHARS = "plannerd.decision.truncation.used_chars", "how much of it the model was given"

    # Answers: events of a decision.
    QUESTION = "plannerd.answer.question", "the name of the question: an agent's, or the goal's"
    KIND = "plannerd.answer.kind", "`yes_no`, `choice`, `scale` or `refusal`"
    PROBABILITY = "plannerd.answer.probability", "yes/no: the probability of yes"
    VALUE = "plannerd.answer.value", "choice: the name of the chosen option"
    OPTIONS = "plannerd.answer.options", "choice: the names of the options that have a probability"
    PROBABILITIES = (
        "plannerd.answer.probabilities",
        "choice: theirs, in that order; scale: of each level, lowest first",
    )
    MEAN = "plannerd.answer.mean", "scale: the mean level"
    CONFIDENCE = "plannerd.answer.confidence", "as the model reports it; nothing is decided on it"

    # The store.
    DB_SYSTEM = "db.system.name", "`redis`"
    DB_OPERATION = "db.operation.name", "what was asked of the store: `get`, `put`, `claim`, ..."

    # Telemetry itself.
    SIGNAL = "plannerd.telemetry.signal", "`traces` or `metrics`"

    # The Python client.
    AGENT_NAME = "gen_ai.agent.name", "the id of the agent that runs"
    CALL_ID = "plannerd.call.id", "the call that it serves"
    ATTEMPT = "plannerd.call.attempt", "1, and one more with each retry"
    STATUS = "plannerd.run.status", "how the run ended: `done`, `suspended`, or the name of its error"

    # Content: only where settings ask for it.
    CONTENT_SCOPE = "plannerd.content.scope", "what the request wrote to the scope, as JSON"
    CONTENT_INPUTS = "plannerd.content.input", "the input of the decision, as JSON"
    CONTENT_OUTPUTS = "plannerd.content.outputs", "the outputs that the request reported, as JSON"
    CONTENT_GOALS = "plannerd.content.goal", "the goal, or the cascade's criterion"
    CONTENT_QUESTIONS = "plannerd.content.questions", "the questions as the model was asked them, as JSON"


ANSWER_EVENT: Final = "plannerd.answer"
"""The event of a decision that has one answer."""

STEP_SPAN: Final = "plannerd.step"
DECISION_SPAN: Final = "decide"
STORE_SPAN: Final = "store"
RUN_SPAN: Final = "plannerd.run"
AGENT_SPAN: Final = "agent"

SPANS: Final[Mapping[str, str]] = {
    "planner.v1.PlannerService/NextAction": "a call, or a request of a stream, by its method (server)",
    "planner.v1.PlannerService/Run": "a stream as a whole (server)",
    STEP_SPAN: "a planning step, from the look at the invocation to its commit (internal)",
    f"{DECISION_SPAN} MODEL": "a request to a decision model; each part of one that was split (client)",
    f"{STORE_SPAN} OPERATION": "a round trip to the shared store (client)",
    RUN_SPAN: "a run of the Python client (internal)",
    f"{AGENT_SPAN} NAME": "one attempt of a call, in the Python client (internal)",
}
"""The spans, with what each stands for."""

SECONDS: Final = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
)
"""The bounds of durations, from a step without a model to the slowest model."""

TOKENS: Final = (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0)
"""The bounds of token counts."""


class Kind(enum.Enum):
    """What a metric does."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class MetricName:
    """A metric.

    Attributes:
        name: its name.
        kind: what it does.
        unit: its unit, in UCUM.
        labels: the attributes that it always has, in the order in which they are recorded; an empty value is left out.
        description: what it measures.
        bounds: of a histogram.
    """

    name: str
    kind: Kind
    unit: str
    labels: tuple[Attribute, ...]
    description: str
    bounds: tuple[float, ...] = ()

    @property
    def prometheus(self) -> str:
        """The name that Prometheus knows it by, when it comes by way of OTLP."""
        name = self.name.replace(".", "_")
        if self.unit == "s":
            name += "_seconds"
        return f"{name}_total" if self.kind is Kind.COUNTER else name


CALL_DURATION: Final = MetricName(
    "rpc.server.call.duration",
    Kind.HISTOGRAM,
    "s",
    (Attribute.RPC_METHOD, Attribute.RPC_STATUS, Attribute.ERROR_TYPE, Attribute.RPC_SYSTEM),
    "How long calls took, and requests of streams.",
    SECONDS,
)
STEPS: Final = MetricName(
    "plannerd.steps",
    Kind.COUNTER,
    "{step}",
    (Attribute.PLANNER, Attribute.OUTCOME),
    "Steps that were committed.",
)
REPEATS: Final = MetricName(
    "plannerd.steps.repeated",
    Kind.COUNTER,
    "{request}",
    (Attribute.PLANNER,),
    "Requests that came again and got the stored reply.",
)
DECISION_DURATION: Final = MetricName(
    "gen_ai.client.operation.duration",
    Kind.HISTOGRAM,
    "s",
    (Attribute.MODEL, Attribute.PROVIDER, Attribute.ERROR_TYPE, Attribute.OPERATION),
    "How long requests to decision models took.",
    SECONDS,
)
TOKEN_USAGE: Final = MetricName(
    "gen_ai.client.token.usage",
    Kind.HISTOGRAM,
    "{token}",
    (Attribute.MODEL, Attribute.PROVIDER, Attribute.TOKEN_TYPE, Attribute.OPERATION),
    "Tokens of a request to a decision model, where the model says.",
    TOKENS,
)
OPEN: Final = MetricName(
    "plannerd.decisions.open",
    Kind.GAUGE,
    "{request}",
    (Attribute.MODEL,),
    "Requests that a decision model was given and has not answered, those in its queue among them.",
)
SHED: Final = MetricName(
    "plannerd.decisions.shed",
    Kind.COUNTER,
    "{request}",
    (Attribute.MODEL,),
    "Requests that were refused because the queue of a decision model was full.",
)
LIVE: Final = MetricName(
    "plannerd.invocations.live",
    Kind.GAUGE,
    "{invocation}",
    (),
    "Invocations in the memory of this process.",
)
EVICTED: Final = MetricName(
    "plannerd.invocations.evicted",
    Kind.COUNTER,
    "{invocation}",
    (),
    "Invocations that were dropped from memory, for room or because nobody touched them.",
)
STORE_ERRORS: Final = MetricName(
    "plannerd.store.errors",
    Kind.COUNTER,
    "{error}",
    (Attribute.ERROR_TYPE,),
    "Requests that failed because the store did.",
)
STORE_DURATION: Final = MetricName(
    "db.client.operation.duration",
    Kind.HISTOGRAM,
    "s",
    (Attribute.DB_OPERATION, Attribute.ERROR_TYPE, Attribute.DB_SYSTEM),
    "How long round trips to the shared store took.",
    SECONDS,
)
DROPPED: Final = MetricName(
    "plannerd.telemetry.dropped",
    Kind.COUNTER,
    "{span}",
    (),
    "Spans that were dropped because the collector did not take them in time.",
)
EXPORT_FAILURES: Final = MetricName(
    "plannerd.telemetry.export.failures",
    Kind.COUNTER,
    "{export}",
    (Attribute.SIGNAL,),
    "Exports that the collector did not take.",
)

METRICS: Final = (
    CALL_DURATION,
    STEPS,
    REPEATS,
    DECISION_DURATION,
    TOKEN_USAGE,
    OPEN,
    SHED,
    LIVE,
    EVICTED,
    STORE_ERRORS,
    STORE_DURATION,
    DROPPED,
    EXPORT_FAILURES,
)
"""All of them."""


def attribute_table() -> str:
    """The attributes as a table in Markdown."""
    rows = [f"| `{attribute.value}` | {attribute.description} |" for attribute in Attribute]
    return "\n".join(["| attribute | what it says |", "| --- | --- |", *rows])


def metric_table() -> str:
    """The metrics as a table in Markdown."""
    rows = [
        f"| `{metric.name}` | `{metric.prometheus}` | {metric.kind.value}, {metric.unit} | "
        f"{', '.join(f'`{label.value}`' for label in metric.labels)} | {metric.description} |"
        for metric in METRICS
    ]
    return "\n".join(
        ["| metric | in Prometheus | kind, unit | attributes | what |", "| --- | --- | --- | --- | --- |", *rows]
    )


def span_table() -> str:
    """The spans as a table in Markdown."""
    rows = [f"| `{name}` | {description} |" for name, description in SPANS.items()]
    return "\n".join(["| span | what it stands for |", "| --- | --- |", *rows])
