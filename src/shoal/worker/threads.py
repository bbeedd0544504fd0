"""Keeps a worker's numerical libraries from starting a thread for every CPU.

With as many workers as CPUs, libraries that each start as many threads again are much slower than with
one. Most read a variable when they are loaded, so a worker's environment is set before that; one that
has been loaded already is told by threadpoolctl.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

import threadpoolctl

VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)

_OWN_VARIABLES = {
    "openblas": "OPENBLAS_NUM_THREADS",
    "mkl": "MKL_NUM_THREADS",
    "blis": "BLIS_NUM_THREADS",
}


def cap(environ: MutableMapping[str, str], num_threads: int | None) -> None:
    """Sets the variables that libraries read.

    Args:
        environ: The environment to change.
        num_threads: How many threads to allow; None for one, except where the user has set a variable.
    """
    for name in VARIABLES:
        if num_threads is None:
            # OpenMP's is the first, and counts for every library that has none of its own.
            environ.setdefault(name, environ.get("OMP_NUM_THREADS", "1"))
        else:
            environ[name] = str(num_threads)


def cap_loaded_libraries() -> None:
    """Tells the libraries of this process that were loaded before `os.environ` was set."""
    for library in threadpoolctl.ThreadpoolController().lib_controllers:
        requested = os.environ.get(_OWN_VARIABLES.get(library.internal_api, VARIABLES[0]), "")
        if requested.isdigit() and int(requested) > 0:
            library.set_num_threads(int(requested))
