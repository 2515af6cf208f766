"""`nvidia`: NVIDIA's GPUs, shared by MPS, HAMi-core, MIG or not enforced at all. Not yet run on hardware."""
