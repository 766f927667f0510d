"""Types that give the valid range of a number in a signature: `dim: Count`, `dropout: Rate`.

A range is a type with conditions, `Annotated[int, ">= 1"]`. A configuration is checked against the signatures before
anything is built; a call from Python is not checked.
"""

from __future__ import annotations

from typing import Annotated

Count = Annotated[int, ">= 1"]
Natural = Annotated[int, ">= 0"]
Seed = Annotated[int, ">= 0", "< 4294967296"]
Positive = Annotated[float, "> 0"]
NotNegative = Annotated[float, ">= 0"]
Share = Annotated[float, ">= 0", "<= 1"]
PositiveShare = Annotated[float, "> 0", "<= 1"]
Rate = Annotated[float, ">= 0", "< 1"]
"""Dropout probability, which must be below 1 so that something is kept."""
AnyInt = Annotated[int, "any"]
AnyFloat = Annotated[float, "any"]
