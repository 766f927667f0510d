"""Types that give the valid range of a number in a signature: `dim: PositiveInt`, `dropout: Probability`.

A range is a type with conditions, `Annotated[int, ">= 1"]`. A configuration is checked against the signatures before
anything is built; a call from Python is not checked.
"""

from __future__ import annotations

from typing import Annotated

PositiveInt = Annotated[int, ">= 1"]
NonNegativeInt = Annotated[int, ">= 0"]
Seed = Annotated[int, ">= 0", "< 4294967296"]
PositiveFloat = Annotated[float, "> 0"]
NonNegativeFloat = Annotated[float, ">= 0"]
Fraction = Annotated[float, ">= 0", "<= 1"]
PositiveFraction = Annotated[float, "> 0", "<= 1"]
Probability = Annotated[float, ">= 0", "< 1"]
"""That of dropout, which must be below 1 so that something is kept, and of what is removed or smoothed like it."""
AnyInt = Annotated[int, "any"]
AnyFloat = Annotated[float, "any"]
