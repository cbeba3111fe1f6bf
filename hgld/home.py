"""The home folder of the user, which holds caches and settings unless a variable names a folder."""

from pathlib import Path

from hgld.errors import UsageError


def home_folder(variable: str) -> Path:
    """Return the home folder.

    Args:
        variable: of the environment, that names another folder; for the error.

    Raises:
        UsageError: the user has none.
    """
    try:
        return Path.home()
    except RuntimeError:  # a container may run as a number that no user has
        raise UsageError(
            f"{variable}: not set, and this user has no home folder; name a folder"
        ) from None
