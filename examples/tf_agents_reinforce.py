"""Trains REINFORCE from TF-Agents on Gymnasium's CartPole, which shoal steps in worker processes.

The only line of shoal's is the one that makes the batch of envs. TF-Agents' own drivers, replay buffer, metrics
and agent do the rest, as they would with their own `ParallelPyEnvironment`: but they are given Gymnasium's envs,
and neither `handle_main` nor a main guard is needed for the workers' sake.

    python examples/tf_agents_reinforce.py               # until the average return is 150: about a minute
    python examples/tf_agents_reinforce.py --goal 40     # a short look

Needs TF-Agents 0.19 with TensorFlow 2.15. The exit status is 1 if the goal was not reached.
"""

from __future__ import annotations

import argparse
import sys
import time

import gymnasium
import tensorflow as tf
from tf_agents.agents.reinforce.reinforce_agent import ReinforceAgent
from tf_agents.drivers.dynamic_episode_driver import DynamicEpisodeDriver
from tf_agents.environments.tf_py_environment import TFPyEnvironment
from tf_agents.metrics.tf_metrics import AverageReturnMetric, EnvironmentSteps
from tf_agents.networks.actor_distribution_network import ActorDistributionNetwork
from tf_agents.networks.value_network import ValueNetwork
from tf_agents.replay_buffers.tf_uniform_replay_buffer import TFUniformReplayBuffer
from tf_agents.utils import common

import shoal

NUM_ENVS = 8
EPISODES_PER_ITERATION = 16
EPISODES_AVERAGED = 32
# Steps of each env between two updates: its share of the episodes, and more if its own are the short ones.
BUFFER_LENGTH = 4000


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Trains REINFORCE on CartPole.")
    parser.add_argument("--iterations", type=int, default=150, help="train at most so many times")
    parser.add_argument(
        "--goal", type=float, default=150.0, help=f"stop at this average return of {EPISODES_AVERAGED} episodes"
    )
    parser.add_argument("--seed", type=int, default=0, help="of networks, actions and envs")
    return parser.parse_args()


def make_agent(env: TFPyEnvironment) -> ReinforceAgent:
    agent = ReinforceAgent(
        env.time_step_spec(),
        env.action_spec(),
        actor_network=ActorDistributionNetwork(env.observation_spec(), env.action_spec(), fc_layer_params=(64,)),
        value_network=ValueNetwork(env.observation_spec(), fc_layer_params=(64,)),
        optimizer=tf.keras.optimizers.Adam(learning_rate=0.01),
        gamma=0.99,
        normalize_returns=True,
    )
    agent.initialize()
    return agent


def train(env: TFPyEnvironment, iterations: int, goal: float) -> float:
    """Returns the average return of the last episodes."""
    agent = make_agent(env)
    buffer = TFUniformReplayBuffer(agent.collect_data_spec, batch_size=env.batch_size, max_length=BUFFER_LENGTH)
    average_return = AverageReturnMetric(buffer_size=EPISODES_AVERAGED, batch_size=env.batch_size)
    env_steps = EnvironmentSteps()
    driver = DynamicEpisodeDriver(
        env,
        agent.collect_policy,
        observers=[buffer.add_batch, average_return, env_steps],
        num_episodes=EPISODES_PER_ITERATION,
    )
    collect = common.function(driver.run)
    update = common.function(agent.train)

    started = time.monotonic()
    for iteration in range(1, iterations + 1):
        # Whole episodes of the present policy, and of no older one.
        env.reset()
        collect()
        update(buffer.gather_all())
        buffer.clear()
        mean = float(average_return.result())
        if iteration == 1 or iteration % 5 == 0 or mean >= goal:
            print(
                f"iteration {iteration:3d}   env steps {int(env_steps.result()):6d}   "
                f"average return {mean:6.1f}   {time.monotonic() - started:5.1f} s",
                flush=True,
            )
        if mean >= goal:
            break
    return mean


def main() -> int:
    arguments = parse_arguments()
    # It tells that a method of the replay buffer will go away.
    tf.get_logger().setLevel("ERROR")
    tf.random.set_seed(arguments.seed)

    envs = shoal.ParallelPyEnvironment([lambda: gymnasium.make("CartPole-v1")] * NUM_ENVS)
    with envs:
        envs.seed([arguments.seed * NUM_ENVS + index for index in range(NUM_ENVS)])
        average_return = train(TFPyEnvironment(envs), arguments.iterations, arguments.goal)

    is_reached = average_return >= arguments.goal
    print(f"final average return {average_return:.1f}, goal {arguments.goal:g} {'' if is_reached else 'not '}reached")
    return 0 if is_reached else 1


sys.exit(main())
