"""Settings of the whole suite: MLX without g++ per kernel (but in `make full`), hypothesis without deadlines."""

import os

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "test")
if PROFILE != "full":
    os.environ.setdefault("MLX_DISABLE_COMPILE", "1")
os.environ.setdefault("LUCIDGRAPH_VERIFY", "1")

from hypothesis import HealthCheck, settings  # noqa: E402

settings.register_profile(
    "test", deadline=None, derandomize=True, max_examples=40, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "quick", deadline=None, derandomize=True, max_examples=5, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("full", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(PROFILE)
