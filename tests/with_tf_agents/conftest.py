"""What the tests beside the real TF-Agents share: it is imported once, here, or else the folder is skipped.

TF-Agents and Gym are older than the Python and NumPy they run on, and their imports warn. pytest makes errors of
warnings, so that would end a test which has nothing to do with it.
"""

from __future__ import annotations

import atexit
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

import shoal

# Before TensorFlow is imported, which otherwise reports to stderr what its CPU could do.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import tf_agents.agents.reinforce.reinforce_agent
        import tf_agents.environments.suite_gym  # noqa: F401
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "tf_agents":
        # It is there, but something that it needs is not.
        raise
    IS_INSTALLED = False
else:
    IS_INSTALLED = True


class SkippedModule(pytest.Module):
    """A test file that is not imported."""

    def collect(self) -> Any:
        pytest.skip("tf-agents is not installed: these tests compare shoal with it", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Any, parent: Any) -> pytest.Module | None:
    return None if IS_INSTALLED else SkippedModule.from_parent(parent, path=module_path)


@pytest.fixture(scope="session", autouse=True)
def launcher() -> None:
    """Keeps one launcher that has imported TF-Agents, or each worker would do it: 10 s on a slow machine."""
    shoal.preload("shoal.adapters.tf_agents", "tf_agents.environments.suite_gym")


@pytest.fixture(scope="session", autouse=True)
def quiet() -> None:
    """Turns warnings off in the logs: pytest keeps each record, and with it the env that it tells of."""
    for name in ("absl", "tensorflow"):
        logging.getLogger(name).setLevel(logging.ERROR)


@pytest.fixture(scope="session", autouse=True)
def warm_tensorflow() -> None:
    """Has TensorFlow open, before the leak guard first looks, what it keeps open until exit.

    Its thread pools start and its files are opened with the first operation, whichever test that is in. The
    guard counts Python's threads only, and TensorFlow's are none; its files it would count.
    """
    import tensorflow as tf

    @tf.function
    def run(value: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(lambda array: array, [tf.matmul(value, value)], tf.float32)

    run(tf.ones((64, 64)))


@pytest.fixture(scope="session")
def interactive_mode() -> None:
    """Lets TF-Agents' own class start processes, which it refuses to do before it has been told how."""
    from tf_agents.system import system_multiprocessing

    if not system_multiprocessing.multiprocessing_core.initialized():
        system_multiprocessing.enable_interactive_mode()


@pytest.fixture
def their_parallel(interactive_mode: None) -> Iterator[Callable[..., Any]]:
    """Returns TF-Agents' `ParallelPyEnvironment`; what is made of it is closed when the test ends."""
    from tf_agents.environments import parallel_py_environment

    made: list[Any] = []

    def make(env_constructors: Sequence[Callable[[], Any]], **options: Any) -> Any:
        made.append(parallel_py_environment.ParallelPyEnvironment(list(env_constructors), **options))
        return made[-1]

    yield make
    for env in made:
        env.close()
        for handle in env.envs:
            # Until exit the interpreter keeps each handle, and with it a descriptor of the process that has ended.
            atexit.unregister(handle.close)
            handle._process.join()
            handle._process.close()
