"""The command line: what it says, where it says it, and with which exit status it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys

import pytest

import shoal

# The envs of these tests, written to the directory the command runs in.
TOYS = """
import multiprocessing
import os
import sys
import time

import gymnasium


class Toy(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, fault=None, hangs_under=None):
        self.fault, self.hangs_under, self.steps = fault, hangs_under, 0
        if fault == "constructor":
            raise ValueError("no licence")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        self.steps += 1
        if self.steps == 10:
            self.fail()
        if self.fault == "print":
            print("{" * 200_000)
            os.write(1, b"straight to the descriptor\\n")
        if self.hangs_under is not None and self.hangs_under == whose():
            os.write(2, b"hanging\\n")
            time.sleep(1000)
        return 0, 1.0, False, False, {}

    def fail(self):
        if self.fault == "raise":
            raise ValueError("out of paint")
        if self.fault == "exit":
            os._exit(7)
        if self.fault == "input":
            input()


def whose():
    if "shoal.cli.loop" in sys.modules and "shoal.cli.bench" not in sys.modules:
        return "ideal"
    if "AsyncVectorEnv" in multiprocessing.current_process().name:
        return "gymnasium-async"
    return "shoal"


print("imported the toys")
gymnasium.register("Toy-v0", Toy)
"""

QUICK = ("--seconds", "0.05", "--num-envs", "2")
ALONE = ("--compare", "")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "toys.py").write_text(TOYS)
    return tmp_path


def command(*arguments):
    return [sys.executable, "-m", "shoal.cli", *arguments]


def run(folder, *arguments, **options):
    return subprocess.run(command(*arguments), cwd=folder, capture_output=True, text=True, timeout=100, **options)


def test_help_is_quick(folder):
    """Whoever asks what there is does not wait for NumPy."""
    script = (
        "import sys; from shoal.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit as end: assert end.code == 0\n"
        "assert not {'numpy', 'gymnasium', 'rich'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^ +bench ", done.stdout, re.MULTILINE)


def test_version(folder):
    """A bug report starts with it."""
    assert run(folder, "--version").stdout == f"shoal {shoal.__version__}\n"


def test_no_command_shows_the_commands(folder):
    """Nothing asked for is wrong use, but of somebody who wants to know."""
    done = run(folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "bench" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["benhc"], "No such command 'benhc'"),
        (["bench"], "Missing argument 'ENV_ID...'"),
        (["bench", "CartPole-v1", "--sekonds", "1"], "No such option"),
        (["bench", "Karpole-v1"], "'Karpole-v1' is not a registered env"),
        (["bench", "CartPole-v99"], "'CartPole-v99' is not a registered env"),
        (["bench", "NoVersion"], "write its version"),
        (["bench", "no_such_module:Env-v0"], "'no_such_module', which cannot be imported"),
        (["bench", ":CartPole-v1"], "cannot be imported"),
        (["bench", "toys:Other-v0"], "'toys:Other-v0' is not a registered env"),
        (["bench", "CartPole-v1", "Karpole-v1"], "'Karpole-v1' is not a registered env"),
        (["bench", "CartPole-v1", "--num-envs", "0"], "at least 1 env, not 0"),
        (["bench", "CartPole-v1", "--num-envs", "4,-1"], "at least 1 env, not -1"),
        (["bench", "CartPole-v1", "--num-envs", "many"], "'many' is not a number"),
        (["bench", "CartPole-v1", "--num-envs", ","], "no number of envs"),
        (["bench", "CartPole-v1", "--num-workers", "0"], "'--num-workers'"),
        (["bench", "CartPole-v1", "--num-envs", "8,4", "--num-workers", "5"], "5 workers are more than 4 envs"),
        (["bench", "CartPole-v1", "--backend", "carrier-pigeon"], "'process', 'thread', 'serial'"),
        (["bench", "CartPole-v1", "--seconds", "0"], "more than 0 seconds"),
        (["bench", "CartPole-v1", "--seconds", "nan"], "more than 0 seconds"),
        (["bench", "CartPole-v1", "--rounds", "0"], "'--rounds'"),
        (["bench", "CartPole-v1", "--compare", "gymnasium-sink"], "not one of"),
        (["bench", "CartPole-v1", "--env-kwargs", "{"], "not valid JSON"),
        (["bench", "CartPole-v1", "--env-kwargs", "[1]"], "not a JSON object"),
        (["bench", "CartPole-v1", "--plot", "nowhere/out.png"], "directory nowhere does not exist"),
        (["bench", "CartPole-v1", "--plot", "out.exe"], "out.exe has none of the endings"),
    ],
)
def test_wrong_use_is_one_line(folder, arguments, said):
    """It names the problem, says what to do, and a script can tell it from a crash."""
    done = run(folder, *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    *printed, line = done.stderr.splitlines()
    assert printed in ([], ["imported the toys"])
    assert re.match(r"shoal( bench)?: error: ", line)
    assert said in line
    assert "--help" in line


@pytest.mark.parametrize(
    ("module", "arguments", "extra"),
    [
        ("matplotlib", ["CartPole-v1", "--plot", "out.png"], "shoal[plot]"),
        ("ale_py", ["ALE/Pong-v5"], "shoal[atari]"),
    ],
)
def test_a_missing_package_is_named(folder, module, arguments, extra):
    """What to install is said before anything is measured."""
    script = f"import sys; sys.modules[{module!r}] = None; from shoal.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "bench", *arguments], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert f"pip install '{extra}'" in done.stderr


@pytest.mark.parametrize("backend", ["process", "thread", "serial"])
@pytest.mark.parametrize(
    ("fault", "said"),
    [("raise", "ValueError: out of paint"), ("constructor", "ValueError: no licence"), ("input", "EOFError")],
)
def test_a_failing_env_is_reported(folder, backend, fault, said):
    """Exit status 1, the env's own error and where it came from; no worker is left, nor a prompt."""
    kwargs = json.dumps({"fault": fault})
    done = run(folder, "bench", "toys:Toy-v0", "--env-kwargs", kwargs, "--backend", backend, *QUICK, input="typed\n")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "toys.py" in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("shoal bench: error: shoal failed on toys:Toy-v0, 2 envs: ")
    assert said in last


def test_a_dying_env_is_reported(folder):
    """A worker that is gone is an error, not a wait."""
    done = run(folder, "bench", "toys:Toy-v0", "--env-kwargs", '{"fault": "exit"}', *QUICK, "--json")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "WorkerDiedError" in done.stderr.splitlines()[-1]


def test_json_is_alone_on_standard_output(folder):
    """Envs may print what they like, and as they like: a program can read the result."""
    done = run(folder, "bench", "toys:Toy-v0", "--env-kwargs", '{"fault": "print"}', *QUICK, "--json")
    assert done.returncode == 0, done.stderr[-2000:]
    results = json.loads(done.stdout)["results"]
    assert [entry["contender"] for entry in results] == ["shoal", "gymnasium-sync", "gymnasium-async", "ideal"]
    assert all(len(entry["samples"]) == 3 for entry in results)
    assert results[0]["env_kwargs"] == {"fault": "print"}
    assert "imported the toys\n" in done.stderr
    assert "straight to the descriptor" in done.stderr


def test_the_table_is_alone_on_standard_output(folder):
    """Without `--json` the result is the table, and goes where results go."""
    done = run(folder, "bench", "toys:Toy-v0", "--env-kwargs", '{"fault": "print"}', *QUICK, *ALONE)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("toys:Toy-v0, 2 envs")
    assert re.search(r"^ +shoal +[\d,]+ +[\d,]+ - [\d,]+ +1\.00 +\d+%", done.stdout, re.MULTILINE)
    assert "{{" not in done.stdout
    assert "imported" not in done.stdout


def test_every_env_and_size_is_measured_and_drawn(folder):
    """Several ids and sizes are one run, one document and one picture."""
    done = run(
        folder,
        *("bench", "CartPole-v1", "toys:Toy-v0", "--num-envs", "1,3", "--num-envs", "2", "--rounds", "1"),
        *("--seconds", "0.05", "--compare", "shoal-serial", "--num-workers", "1", "--plot", "out.png", "--json"),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    results = json.loads(done.stdout)["results"]
    measured = [(entry["env_id"], entry["num_envs"], entry["contender"]) for entry in results]
    assert measured == [
        (env_id, num_envs, contender)
        for env_id in ("CartPole-v1", "toys:Toy-v0")
        for num_envs in (1, 3, 2)
        for contender in ("shoal", "shoal-serial", "ideal")
    ]
    assert {entry["num_workers"] for entry in results} == {1}
    assert (folder / "out.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("contender", ["shoal", "gymnasium-async", "ideal"])
def test_an_interrupt_ends_everything(folder, contender):
    """Ctrl-C, which reaches every process of the terminal, stops a hanging bench without a traceback."""
    arguments = ("toys:Toy-v0", "--env-kwargs", json.dumps({"hangs_under": contender}))
    with subprocess.Popen(
        command("bench", *arguments, *QUICK, "--compare", "gymnasium-async"),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as bench:
        assert bench.stderr is not None
        assert "hanging\n" in iter(bench.stderr.readline, "")
        os.killpg(bench.pid, signal.SIGINT)
        out, err = bench.communicate(timeout=60)
    assert bench.returncode == 128 + signal.SIGINT
    assert out == ""
    assert "Traceback" not in err
