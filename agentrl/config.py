"""Every key of a run, typed, with its default and its unit. The only place where a default lives.

`agentrl.compose` composes these with the groups in `configs/`; below `agentrl.run` objects take plain arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class EnvConfig:
    """What the agent acts in."""

    id: str = "code_sandbox"
    """A bundled or installed name, module:Name, or path/to/file.py:Name."""
    args: dict[str, Any] = field(default_factory=dict)
    """Attributes of the environment class to set, `max_turns` for one."""
    tasks: dict[str, Any] = field(default_factory=dict)
    """Arguments of the class's `tasks` method."""
    wrap: dict[str, Any] = field(default_factory=dict)
    """Wrappers by name, the first one innermost, each with its argument or a mapping of them: env.wrap.history_window=2."""


@dataclass
class ModelConfig:
    """The policy."""

    id: str = "smollm2-135m"
    """A name that `agentrl doctor` lists, a hub id, or a folder. tiny: random weights, for tests."""
    dtype: str = "bfloat16"
    """Of the parameters that engine and forward pass use; the optimizer keeps float32 masters."""
    history: str = "keep"
    """keep | fork: what to do when the chat template would rewrite what was already sampled."""
    chat_template_args: dict[str, Any] = field(default_factory=dict)
    tool_format: str = "auto"
    """How tool calls are written (docs/tools.md lists the formats). auto: as the chat template and the vocabulary tell."""


@dataclass
class EngineConfig:
    """What samples."""

    name: str = "torch"
    slots: int = 64
    """Sequences decoded together."""
    max_context: int = 1024
    """Tokens of prompt and completion together."""
    request_timeout: float = 600.0
    """Seconds one generation may take before the engine is held to be dead."""


@dataclass
class SamplingConfig:
    """How training episodes are sampled; evaluation takes `eval.temperature`."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_new_tokens: int = 96
    """Of one turn."""
    max_episode_tokens: int = 768
    """Of the whole episode, prompt and observations included."""


@dataclass
class RolloutConfig:
    """How episodes are played."""

    staleness: int = 0
    """How many updates the policy may be ahead of the one that began a sample. 0: synchronous."""
    mode: str = "keep"
    """keep | abort: what an update does to generations in flight, with staleness > 0. With keep they go on over the keys and
    values of the old weights, so that a token's version alone does not give its logprob again; abort computes these anew."""
    max_groups: int = 0
    """Groups in flight; 0: as many as staleness allows."""
    retries: int = 1
    """How often an aborted episode is played again."""
    on_abort: str = "mask"
    """mask (train the group without it) | drop (the group) | stop (the run)."""
    max_abort_rate: float = 0.5
    """Above this share of episodes that were aborted or cut by a deadline in a step the run stops, whatever on_abort says."""
    episode_timeout: float = 300.0
    """Seconds."""
    turn_timeout: float = 120.0
    """Seconds of one env step with its tools."""
    step_timeout: float = 3600.0
    """Seconds the trainer waits for a batch."""


@dataclass
class SandboxConfig:
    """Where untrusted code runs. The environment's SandboxSpec says how much it may use."""

    backend: str = "local"
    """local | docker | remote | wasm | unsafe_local (no isolation at all, by name only)."""
    options: dict[str, Any] = field(default_factory=dict)
    """What the backend's `open` takes besides: `image` and `runtime` of docker, `url` of remote."""
    slots: int = 8
    """Sandboxes open at once."""
    isolation: str = "auto"
    """auto | namespace+cgroup | namespace | landlock: the least that is accepted."""


@dataclass
class TrainerConfig:
    """The algorithm. It has no name here: the keys decide, and a preset sets them: trainer=grpo|rloo|dr_grpo|dapo|reinforce."""

    steps: int = 16
    prompts_per_step: int = 8
    samples_per_prompt: int = 8
    advantage: str = "group_norm"
    """group_norm | group_mean | leave_one_out | batch_mean."""
    loss: str = "clip"
    loss_denominator: str = "tokens"
    """tokens | sequences: what the summed loss is divided by, over the whole batch."""
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float = 0.0
    """0: off."""
    kl: str = "none"
    """none | k1 | k2 | k3: estimator of the divergence from the reference policy (the initial one)."""
    kl_coef: float = 0.0
    entropy_coef: float = 0.0
    old_logprobs: str = "engine"
    """engine (as sampled) | recompute (by the trainer, before the step)."""
    correction: str = "none"
    """none | tis: truncated importance weights between engine and recomputed logprobs."""
    correction_cap: float = 2.0
    epochs: int = 1
    """Passes over a batch."""
    minibatches: int = 1
    """Optimizer steps per pass."""
    filter_groups: bool = False
    """Dynamic sampling: groups whose rewards are all equal are replaced by fresh ones."""
    lr: float = 1e-5
    lr_schedule: str = "constant"
    """constant | linear | cosine, after the warm-up."""
    warmup_steps: int = 2
    weight_decay: float = 0.0
    betas: list[float] = field(default_factory=lambda: [0.9, 0.95])
    max_grad_norm: float = 1.0
    """Longer gradients are scaled down to it; 0: never."""
    tokens_per_microbatch: int = 1024


@dataclass
class BackendConfig:
    """How the model is held while it learns."""

    name: str = "local"
    logits_chunk: int = 128
    """Tokens whose logits exist at one time."""
    activation_checkpointing: bool = False
    threads: int = 0
    """CPU threads; 0: as many as make a product of matrices faster, measured at the start."""


@dataclass
class EvalConfig:
    """Measuring on held-out tasks."""

    every: int = 0
    """Steps between evaluations; 0: at the start and the end only."""
    tasks: int = 200
    """Held-out tasks; a pass rate of 200 is known to about 7 points either way."""
    samples: int = 1
    temperature: float = 0.0
    at_start: bool = True


@dataclass
class CheckpointConfig:
    """What can be gone on from."""

    every: int = 5
    """Steps. Batches trained since the last checkpoint are trained again from the episodes on disk, none is sampled anew."""
    keep: int = 2


@dataclass
class LogConfig:
    """What is seen."""

    live: bool = True
    """A live table on a terminal; plain lines elsewhere."""
    tensorboard: bool = True
    report: bool = True
    """At the end: reward curve (PNG) and example episodes."""


@dataclass
class Config:
    """A run."""

    env: EnvConfig = field(default_factory=EnvConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    backend: BackendConfig = field(default_factory=BackendConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    log: LogConfig = field(default_factory=LogConfig)
    seed: int = 0
    """Of all that is drawn: training tasks, worlds, sampling, minibatches. Bundled held-out tasks do not depend on it."""
    run: str = ""
    """The run's name; empty: env, model and time."""
    out: str = "runs"
    """The folder that runs lie in."""
    resume: str = ""
    """A run's name or folder to go on with."""
