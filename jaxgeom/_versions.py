"""Which versions of packages are installed: what a record of a run says of them."""

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version


def versions(packages: Iterable[str]) -> dict[str, str | None]:
    """Return each package's installed version; None where there is none, as in a bare checkout."""
    return {package: _version(package) for package in packages}


def _version(package: str) -> str | None:
    """Return the version of one package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
