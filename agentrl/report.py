"""What a run leaves for people, in `report/`: a curve of the reward (PNG), a summary and example episodes (Markdown).

Reads rows of metrics, scores and episodes; knows nothing of models or engines. matplotlib draws without a display.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentrl.episode import DEMONSTRATION, Episode, demonstrated
from agentrl.live import duration, trend
from agentrl.messages import Message
from agentrl.record import aborted, mean, passed
from agentrl.scores import Score

EXAMPLES = 3
SMOOTH = 5
"""Steps of the moving mean in the curve."""


def write(
    folder: Path,
    *,
    title: str,
    rows: Sequence[Mapping[str, Any]],
    scores: Sequence[Score],
    first: Sequence[Episode],
    last: Sequence[Episode],
    changed: Mapping[str, str],
) -> list[Path]:
    """Writes the report's files and returns them. `first` and `last`: episodes on the same tasks, before and after; `changed`:
    the keys that are not at their defaults, with value and origin."""
    folder.mkdir(parents=True, exist_ok=True)
    curve, summary, examples = folder / "reward.png", folder / "summary.md", folder / "examples.md"
    draw(curve, title=title, rows=rows, scores=scores)
    summary.write_text(summarize(title, rows, scores, changed))
    examples.write_text(compare(first, last))
    return [curve, summary, examples]


def draw(file: Path, *, title: str, rows: Sequence[Mapping[str, Any]], scores: Sequence[Score]) -> None:
    """The reward over the steps: each step, the moving mean, the spread within a step, and evaluations with intervals."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    have = [row for row in rows if "reward" in row]
    steps, rewards = [row["step"] for row in have], [row["reward"] for row in have]
    axes.plot(steps, rewards, ".", color="#9db8d9", label="mean of a step's episodes")
    axes.plot(steps, moving_mean(rewards, SMOOTH), "-", color="#1f5fa8", linewidth=2, label=f"moving mean of {SMOOTH} steps")
    if scores:
        low = [s.pass_rate - s.pass_interval[0] for s in scores]
        high = [s.pass_interval[1] - s.pass_rate for s in scores]
        axes.errorbar(
            [s.step for s in scores],
            [s.pass_rate for s in scores],
            yerr=[low, high],
            fmt="s",
            color="#c8501e",
            capsize=4,
            label="pass rate on held-out tasks, 95% interval",
        )
    axes.set(title=title, xlabel="training step", ylabel="reward / pass rate")
    axes.grid(alpha=0.3)
    axes.legend(loc="best")
    figure.savefig(file)


def summarize(title: str, rows: Sequence[Mapping[str, Any]], scores: Sequence[Score], changed: Mapping[str, str]) -> str:
    """The run in one page of Markdown."""
    lines = [f"# {title}", "", "![reward curve](reward.png)", ""]
    if scores:
        lines += ["## On held-out tasks", "", "| after step | pass rate (95% interval) | reward (95% interval) | episodes |"]
        lines += ["|---|---|---|---|", *map(_score_row, scores), "", *_verdict(scores), ""]
    rewards = [float(row["reward"]) for row in rows if "reward" in row]
    if rewards:
        total = {key: sum(float(row.get(key, 0)) for row in rows) for key in TOTALS}
        lines += ["## In training", "", f"reward, first fifth against last: {trend(rewards)}", ""]
        lines += [f"- {name}: {total[key]:,.0f}" for key, name in TOTALS.items()]
        lines += [f"- episodes aborted: {sum(map(aborted, rows)):,}"]
        lines += [f"- {name}: {duration(sum(float(row.get(key, 0)) for row in rows))}" for key, name in TIMES.items()]
    if changed:
        lines += ["", "## Settings that are not defaults", "", *(f"- `{key}` = {text}" for key, text in changed.items())]
    return "\n".join([*lines, ""])


TOTALS = {
    "episodes": "episodes",
    "sampled_tokens": "tokens sampled",
    "tokens_trained": "tokens trained on",
    "sandbox_calls": "sandbox executions",
    "truncated": "episodes cut by a limit",
}
TIMES = {
    "time/step": "time of all steps",
    "time/rollout": "waiting for episodes",
    "time/train": "training",
    "time/publish": "giving weights to the engine",
    "time/eval": "evaluating",
}


def compare(first: Sequence[Episode], last: Sequence[Episode]) -> str:
    """Example episodes of the same tasks, before and after, as Markdown."""
    lines = ["# Episodes, first against last", ""]
    for number, (before, after) in enumerate(choose(first, last), 1):
        lines += [f"## {number}. Task `{after.task.id}`: {_result(before)} -> {_result(after)}", ""]
        lines += [f"### First ({_details(before)})", "", *conversations(before), ""]
        lines += [f"### Last ({_details(after)})", "", *conversations(after), ""]
    if len(lines) == 2:
        lines.append("No task was played both at the start and at the end (eval.tasks=0, or eval.at_start=false).")
    return "\n".join([*lines, ""])


def choose(first: Sequence[Episode], last: Sequence[Episode]) -> list[tuple[Episode, Episode]]:
    """Pairs of the same task: the most improved first, then what stayed well, then what stayed or became bad."""
    before, after = _by_task(first), _by_task(last)
    pairs = [(before[task], after[task]) for task in before if task in after]
    better = sorted((p for p in pairs if p[1].reward > p[0].reward), key=lambda p: p[0].reward - p[1].reward)
    same = [p for p in pairs if p[1].reward == p[0].reward and passed(p[1])]
    rest = [p for p in pairs if p[1].reward <= p[0].reward and not passed(p[1])]
    mixed = [*better[:1], *same[:1], *rest[:1]]
    return [*mixed, *(p for p in [*better, *same, *rest] if p not in mixed)][:EXAMPLES]


def conversations(episode: Episode) -> list[str]:
    """What the episode's agent saw and said, and then each of the others, as Markdown."""
    lines = transcript(episode.messages, opening=episode.opening)
    if episode.others:
        lines = [f"*As {episode.agent} saw it:*", "", *lines]
    for side in episode.others:
        lines += [
            "",
            f"*As {side.name} saw it (reward {side.reward:g}):*",
            "",
            *transcript(side.messages, opening=side.opening),
        ]
    return lines


def transcript(messages: Sequence[Message], *, opening: int = 0) -> list[str]:
    """The conversation as Markdown: each message in a fence that its content cannot close. `opening`: how many came before the
    agent's first; a demonstration among them is marked, so that none takes it for the model's words."""
    out = []
    examples = demonstrated(messages[:opening])
    for number, message in enumerate(messages):
        name = f"{message.role} {message.name}" if message.name else message.role
        note = f" ({DEMONSTRATION})" if number in examples else ""
        calls = [f"[calls {call.name}: {dict(call.arguments)}]" for call in message.tool_calls]
        body = "\n".join(part for part in (message.reasoning, message.text, *calls) if part) or "(nothing)"
        ticks = "`" * max(3, 1 + _longest_run(body))
        out += [f"**{name}**{note}", "", f"{ticks}text", body, ticks, ""]
    return out


def moving_mean(values: Sequence[float], width: int) -> list[float]:
    """Of each value and those before it, `width` at most.

    >>> moving_mean([0.0, 1.0, 2.0], 2)
    [0.0, 0.5, 1.5]
    """
    return [mean(values[max(0, i + 1 - width) : i + 1]) for i in range(len(values))]


def _by_task(episodes: Sequence[Episode]) -> dict[str, Episode]:
    """The first sample of each task, in their order."""
    found: dict[str, Episode] = {}
    for episode in episodes:
        if not episode.outcome.is_aborted:
            found.setdefault(episode.task.id, episode)
    return found


def _verdict(scores: Sequence[Score]) -> list[str]:
    if len(scores) < 2:
        return []
    (_, high), (low, _) = scores[0].pass_interval, scores[-1].pass_interval
    if low > high:
        return ["The intervals of the first and the last evaluation do not overlap: the model has become better."]
    return ["The intervals of the first and the last evaluation overlap: this run alone does not show that it became better."]


def _score_row(s: Score) -> str:
    low, high = s.pass_interval
    share = f"{100 * s.pass_rate:.1f}% [{100 * low:.1f}, {100 * high:.1f}]"
    return f"| {s.step} | {share} | {s.reward:.3f} ± {s.reward_half:.3f} | {s.episodes} |"


def _result(episode: Episode) -> str:
    return "passed" if passed(episode) else f"reward {episode.reward:.2f}"


def _details(episode: Episode) -> str:
    rewards = ", ".join(f"{name} {value:g}" for name, value in episode.rewards.items())
    return f"reward {episode.reward:g}: {rewards}; {episode.outcome.value} after {len(episode.turns)} turns"


def _longest_run(text: str) -> int:
    longest = run = 0
    for char in text:
        run = run + 1 if char == "`" else 0
        longest = max(longest, run)
    return longest
