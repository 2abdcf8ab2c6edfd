"""What all settings are made of."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, FilePath

MIB: Final = 1024 * 1024

Seconds: TypeAlias = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
Bytes: TypeAlias = Annotated[int, Field(ge=1024, le=1024 * MIB)]
Count: TypeAlias = Annotated[int, Field(ge=1, le=1_000_000_000)]
File: TypeAlias = Annotated[FilePath, Field(strict=False)]


class Section(BaseModel):
    """A part of the settings: nothing unknown, nothing of a wrong type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
