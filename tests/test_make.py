"""`shoal.make`: what it takes, and what it leaves as it was."""

from __future__ import annotations

import sys

import pytest

import shoal

MODULE = """
import gymnasium
from shoal.testing import Counter
gymnasium.register("Counted-v0", entry_point=Counter)
"""


def test_id_may_name_the_module_that_registers_it(tmp_path, monkeypatch):
    """Programs name an env that no import has registered yet as Gymnasium lets them."""
    (tmp_path / "counted.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    with shoal.make("counted:Counted-v0", 2, num_workers=1) as envs:
        assert envs.reset()[0].tolist() == [[0.0], [0.0]]
    sys.modules.pop("counted")


def test_module_that_is_not_there_is_said_to_be_missing():
    """A misspelt module is not an unknown env."""
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        shoal.make("no_such_module:Env-v0", 2)


def test_constructors_stay_usable_beside_the_batch():
    """Evaluation code makes one more env by the batch's own functions."""
    with shoal.make("CartPole-v1", 2, backend="serial") as envs:
        env = envs.env_fns[0]()
        assert env.spec.id == envs.spec.id == "CartPole-v1"
        assert "num_envs" not in env.spec.kwargs
        assert envs.spec.kwargs["num_envs"] == 2
        env.close()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("num_worker", r"num_worker= is unknown; did you mean num_workers=\?"),
        ("vectorization_mode", "belongs to gymnasium.make_vec; use backend="),
        ("vector_kwargs", "belongs to gymnasium.make_vec; give those arguments directly"),
    ],
)
def test_argument_meant_for_the_batch_does_not_go_to_the_env(name, message):
    """A misspelt argument is not the env's fault, and is found before anything starts."""
    with pytest.raises(shoal.ArgumentTypeError, match=message):
        shoal.make("CartPole-v1", 2, **{name: 2})


def test_each_env_may_have_arguments_of_its_own():
    """A batch may be made of variants of one env."""
    with shoal.make(
        "MountainCarContinuous-v0", 2, backend="serial", env_kwargs=[{"goal_velocity": 0.0}, {"goal_velocity": 0.1}]
    ) as envs:
        assert envs.get_attr("goal_velocity") == (0.0, 0.1)
