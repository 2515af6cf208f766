"""For tests of Aliquot and of what people build on it: builders, a harness that checks the books, a chaotic shell."""

from aliquot.testing.builders import device, function
from aliquot.testing.harness import Harness

__all__ = ["Harness", "device", "function"]
