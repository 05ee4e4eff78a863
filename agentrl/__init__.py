"""agentrl: reinforcement learning of LLM and VLM agents in multi-turn environments.

>>> import agentrl as rl
>>> class Guess(rl.Env):
...     def reset(self, task): return "Guess a number."
...     def step(self, action): return rl.done(reward=float(action.parse(int) == 7))
"""

from pathlib import Path as _Path

if (_Path(__file__).parent.parent / "pyproject.toml").is_file():
    # A bare checkout: envs/, tools/, rollout/, trainers/, configs/ lie beside this folder, and are its subpackages.
    __path__.append(str(_Path(__file__).parent.parent))

from agentrl import wrappers
from agentrl.agent import Agent, AgentSpec
from agentrl.env import Env, SeededTasks, Step, done
from agentrl.episode import Episode, EpisodeGroup, Outcome
from agentrl.errors import UsageError
from agentrl.from_gym import from_gymnasium, from_pettingzoo
from agentrl.mcp import mcp, openapi
from agentrl.messages import Action, Image, Message, ParseError, Text, ToolCall
from agentrl.reward import metric, reward
from agentrl.sandbox import Exec, Sandbox, SandboxSpec, Status
from agentrl.schema_tool import schema_tool
from agentrl.task import Secret, Task, TaskSource
from agentrl.tool import ToolError, ToolResult, tool
from agentrl.tool_source import use
from agentrl.vector import vector

__version__ = "0.1.0"

__all__ = [
    "Action",
    "Agent",
    "AgentSpec",
    "Env",
    "Episode",
    "EpisodeGroup",
    "Exec",
    "Image",
    "Message",
    "Outcome",
    "ParseError",
    "Sandbox",
    "SandboxSpec",
    "Secret",
    "SeededTasks",
    "Status",
    "Step",
    "Task",
    "TaskSource",
    "Text",
    "ToolCall",
    "ToolError",
    "ToolResult",
    "UsageError",
    "done",
    "from_gymnasium",
    "from_pettingzoo",
    "mcp",
    "metric",
    "openapi",
    "reward",
    "schema_tool",
    "tool",
    "use",
    "vector",
    "wrappers",
]
