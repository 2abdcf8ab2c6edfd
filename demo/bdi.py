"""The BDI demo: a warehouse that drops what it is doing when something more important comes up, and goes on after."""

from __future__ import annotations

from typing import Any, Final

from demo.screen import Screen
from plannerd_client import Bdi, Client, Desire, PlannerdError, Step, agent

# What happens in the warehouse while it works: after so many calls, this key comes into the scope.
EVENTS: Final = {2: ("express_order", "two kettles, today"), 4: ("fire_alarm", "hall B")}


class Warehouse:
    """The agents, and the events that befall them."""

    def __init__(self) -> None:
        self.calls = 0
        self.state: dict[str, Any] = {"shelf_gap": "linen blankets"}

    def _work(self) -> dict[str, Any]:
        self.calls += 1
        if self.calls in EVENTS:
            key, value = EVENTS[self.calls]
            self.state[key] = value
        return dict(self.state)

    def agents(self) -> list[Any]:
        """The agents; each one's output is a new view of the warehouse."""

        @agent(output_key="counted")
        def count_stock() -> dict[str, Any]:
            """Counts what is on the shelf."""
            return self._work()

        @agent(output_key="ordered")
        def order_goods() -> dict[str, Any]:
            """Orders what is missing."""
            return self._work()

        @agent(output_key="restocked")
        def fill_shelf() -> dict[str, Any]:
            """Fills the shelf."""
            return self._work()

        @agent(output_key="picked")
        def pick() -> dict[str, Any]:
            """Picks the goods of the express order."""
            return self._work()

        @agent(output_key="shipped")
        def ship() -> dict[str, Any]:
            """Hands the express order to the courier."""
            return self._work()

        @agent(output_key="evacuated")
        def evacuate() -> dict[str, Any]:
            """Sends everybody out."""
            return self._work()

        @agent(output_key="all_clear")
        def check_halls() -> dict[str, Any]:
            """Checks the halls and lets everybody in again."""
            return self._work()

        return [count_stock, order_goods, fill_shelf, pick, ship, evacuate, check_halls]

    def planner(self) -> Bdi:
        """Three desires. Their conditions are functions, evaluated here before each step and sent as beliefs."""
        return Bdi(
            [
                Desire(
                    name="full shelves",
                    priority=1,
                    agents=["count_stock", "order_goods", "fill_shelf"],
                    achievable=lambda scope: "shelf_gap" in self.state,
                    satisfied="restocked",
                ),
                Desire(
                    name="express order",
                    priority=5,
                    agents=["pick", "ship"],
                    achievable=lambda scope: "express_order" in self.state,
                    satisfied="shipped",
                ),
                Desire(
                    name="safety",
                    priority=100,
                    agents=["evacuate", "check_halls"],
                    achievable=lambda scope: "fire_alarm" in self.state,
                    satisfied="all_clear",
                ),
            ]
        )


def run(client: Client, screen: Screen, limit: int | None) -> bool:
    """One day in the warehouse; True if anything failed."""
    warehouse = Warehouse()
    screen.line(
        "Three desires: full shelves (1), express order (5), safety (100). An express order comes in after 2 calls, a "
        "fire alarm after 4. No decision model is asked."
    )
    screen.line()
    seen: set[str] = set(warehouse.state)

    def on_step(step: Step) -> None:
        for key in warehouse.state:
            if key not in seen:
                seen.add(key)
                screen.line(f"    *** {key.replace('_', ' ')}: {warehouse.state[key]}", good=False)
        screen.line(f" {warehouse.calls + 1:>2}. {step.explanation.summary}")

    try:
        result = client.run(warehouse.planner(), warehouse.agents(), on_step=on_step)
    except PlannerdError as error:
        screen.line(f"FAILED: {error}", good=False)
        return True
    ran = [agent_id.partition("$")[0] for step in result.steps for _, agent_id in step.started]
    screen.heading("Summary")
    screen.line(f"Ran, in this order: {', '.join(ran)}.")
    screen.line("Nobody ran twice: each desire went on where it had been interrupted.", good=len(ran) == len(set(ran)))
    return len(ran) != len(set(ran))
