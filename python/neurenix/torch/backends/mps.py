"""Apple's GPUs are the devices ``metal:0`` here: programs that ask for ``mps`` use another device."""


def is_available() -> bool:
    """False: the device is called ``metal``."""
    return False


def is_built() -> bool:
    """False: the device is called ``metal``."""
    return False
