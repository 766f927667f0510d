"""Which numbers make sense, said in signatures: `dim: Count`, `dropout: Rate`.

A range is a type with its conditions, `Annotated[int, ">= 1"]`. A configuration is compared with the signatures before
anything is built; a call from Python is not.
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
"""Of dropout: a probability that leaves something."""
AnyInt = Annotated[int, "any"]
AnyFloat = Annotated[float, "any"]
