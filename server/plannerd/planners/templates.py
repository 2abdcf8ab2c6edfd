"""Question templates: `{{name}}`, spaces allowed inside, values inserted literally, in one pass."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from plannerd.planners.system import Problems
from plannerd.values import is_blank

_SLOT: Final = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Template:
    """A text with slots."""

    text: str

    @property
    def variables(self) -> frozenset[str]:
        """The names of its slots."""
        return frozenset(match.strip() for match in _SLOT.findall(self.text))

    def render(self, values: Mapping[str, str]) -> str:
        """The text with each slot replaced by its value; a `{{...}}` inside a value stays as it is."""
        return _SLOT.sub(lambda match: values[match.group(1).strip()], self.text)


def check_template(
    text: str,
    path: str,
    problems: Problems,
    *,
    allowed: Collection[str],
    one_of: Collection[str] = (),
) -> Template:
    """A template that uses only `allowed` variables and, if `one_of` is given, at least one of those.

    Args:
        text: the template as the client sent it.
        path: the field it was sent in, for the problems.
        problems: where problems are noted.
        allowed: the variables it may use.
        one_of: the variables of which it must use at least one.
    """
    template = Template(text)
    if is_blank(text):
        problems.add(path, "must not be blank; leave it unset for the default")
        return template
    known = ", ".join("{{" + name + "}}" for name in sorted(allowed)) or "no variable"
    for name in sorted(template.variables - set(allowed)):
        problems.add(path, f"uses {{{{{name}}}}}, but may use only {known}")
    if one_of and not template.variables & set(one_of):
        wanted = " or ".join("{{" + name + "}}" for name in one_of)
        problems.add(path, f"must use {wanted}, or every agent would be asked about with the same words")
    return template
