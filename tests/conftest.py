"""Settings of the whole suite: MLX without g++ per kernel (but in `make full`), hypothesis without deadlines, a cache
of compiled code that is new for each run and gone after it."""

import atexit
import os
import shutil
import tempfile

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "test")
if PROFILE != "full":
    os.environ.setdefault("MLX_DISABLE_COMPILE", "1")
os.environ.setdefault("LUCIDGRAPH_VERIFY", "1")
if "LUCIDGRAPH_DISK_CACHE_DIR" not in os.environ:
    os.environ["LUCIDGRAPH_DISK_CACHE_DIR"] = tempfile.mkdtemp(prefix="lucidgraph-")
    atexit.register(shutil.rmtree, os.environ["LUCIDGRAPH_DISK_CACHE_DIR"], ignore_errors=True)

from hypothesis import HealthCheck, settings  # noqa: E402

settings.register_profile(
    "test", deadline=None, derandomize=True, max_examples=40, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "quick", deadline=None, derandomize=True, max_examples=5, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("full", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(PROFILE)
