"""The limits of builds, and of environments on the disk."""

from msgspec import Struct

from aliquot.core.units import GIB


class EnvironmentLimits(Struct, frozen=True):
    """Bounds that keep one tenant's environments from harming others. `aliquot up --limit` sets them."""

    builds: int = 3  # at once; one tenant has at most all of them but one
    waiting: int = 8  # builds of one tenant that wait
    timeout_s: float = 600  # of one build
    memory_bytes: int = 2 * GIB  # of one build
    processes: int = 512  # of one build, threads included
    environment_bytes: int = 12 * GIB  # of one environment, with the temporary files of its build
    total_bytes: int = 32 * GIB  # of all environments
    tenant_bytes: int = 16 * GIB  # of the environments that one tenant asked for
    unused_s: float = 30 * 86400  # after which an environment that is not used is removed
    free_bytes: int = GIB  # of the disk that builds leave free
