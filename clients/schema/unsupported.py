"""Fields that exist in OpenAI's schema and that we do not honour, or that have nothing to honour.

The neutral value of the first, the one that asks for nothing, is accepted because official clients
send it; anything else is refused by name, never ignored.
"""

import json
from typing import Any, Final

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

WITHOUT_EFFECT: Final = "accepted without effect"  # marks a field; `/capabilities` lists them


def only(*neutral: Any) -> AfterValidator:
    """Accept null and these values; refuse the rest as not supported."""

    def check(value: Any) -> Any:
        if value is None or value in neutral:
            return value
        accepted = " or ".join(json.dumps(item) for item in neutral)
        raise PydanticCustomError(
            "unsupported_value",
            "{accepted} (anything else is not supported)",
            {"accepted": accepted},
        )

    return AfterValidator(check)
