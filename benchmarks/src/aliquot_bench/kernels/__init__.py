"""Kernels as a service: counters, calls beside the plain library, contention, halves of a device, and starts."""

from aliquot_bench.kernels.bench import KernelsBench

__all__ = ["KernelsBench"]
