"""MISSING stands where None could be a value."""


class Missing:
    """The type of MISSING."""

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING = Missing()
