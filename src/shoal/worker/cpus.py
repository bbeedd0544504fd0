"""How many CPUs this process may really use: not those of the machine, but those it has been given."""

from __future__ import annotations

import math
import os
from pathlib import Path


def available_cpus() -> int:
    """Returns the CPUs in the affinity mask, or as many as the cgroup's quota pays for if that is fewer."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup_quota()
    return max(1, min(allowed, math.ceil(quota))) if quota else max(1, allowed)


def _cgroup_quota(root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> float | None:
    """Returns the smallest CPU quota of this process's cgroup and those above it, None if there is none."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return None
    quotas = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            group = root / path.lstrip("/")
            for folder in (group, *group.parents):
                quotas.append(_quota_v2(folder / "cpu.max"))
                if folder == root:
                    break
        elif "cpu" in controllers.split(","):
            quotas.append(_quota_v1(root / "cpu" / path.lstrip("/")))
            quotas.append(_quota_v1(root / "cpu"))
    return min((quota for quota in quotas if quota), default=None)


def _quota_v2(file: Path) -> float | None:
    try:
        quota, period = file.read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return None


def _quota_v1(folder: Path) -> float | None:
    try:
        quota = int((folder / "cpu.cfs_quota_us").read_text())
        return None if quota <= 0 else quota / int((folder / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None
