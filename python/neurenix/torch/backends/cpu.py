"""The CPU."""


def get_cpu_capability() -> str:
    """The engine chooses instructions when it starts."""
    return "DEFAULT"
