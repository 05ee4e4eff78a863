"""What a run leaves for people: rows, scores, the curve, the summary and example episodes."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from agentrl.episode import Episode, EpisodeGroup, Outcome, Turn
from agentrl.live import PlainWatch, cells_of, duration, remaining, sparkline, trend, watch
from agentrl.messages import Message, ToolCall
from agentrl.record import of_groups, wilson
from agentrl.report import choose, compare, draw, moving_mean, summarize, transcript, write
from agentrl.scores import Evaluations, score
from agentrl.task import Task
from agentrl.trackers import JsonLines, TensorBoard, tag
from agentrl.transcript import Segment, Transcript


def episode(
    name: str = "t", reward: float = 0.0, outcome: Outcome = Outcome.TERMINATED, text: str = "hi", **more: Any
) -> Episode:
    """An episode of one turn, in which two tokens were sampled."""
    sampled = Segment(role="sampled", ids=(4, 5), logprobs=(-0.5, -0.5), versions=(0, 0))
    fields: dict[str, Any] = {
        "id": f"{name}-0",
        "group": name,
        "index": 0,
        "task": Task(id=name, secret={"answer": 42}),
        "seed": 0,
        "transcripts": (Transcript([Segment(role="prompt", ids=(1, 2)), sampled]),),
        "messages": (Message(role="user", content="What?"), Message(role="assistant", content=text)),
        "turns": (Turn(tool_calls=2, tool_errors=1, parse_error="no number"),),
        "outcome": outcome,
        "rewards": {"env": reward},
    }
    return Episode(**{**fields, **more})


def group(*episodes: Episode) -> EpisodeGroup:
    return EpisodeGroup(id="g", number=0, task=episodes[0].task, episodes=episodes)


def test_a_row_counts_all_episodes_and_takes_means_of_those_that_are_not_aborted() -> None:
    row = of_groups(
        [
            group(episode(reward=1.0), episode(reward=0.0, outcome=Outcome.MAX_TURNS)),
            group(episode(reward=0.5, outcome=Outcome.SANDBOX_LOST), episode(reward=0.5, metrics={"sandbox_calls": 3.0})),
        ]
    )
    assert (row["groups"], row["episodes"], row["aborted"], row["truncated"]) == (2, 4, 1, 1)
    assert row["reward"] == pytest.approx(0.5)  # (1 + 0 + 0.5) / 3
    assert row["reward_std"] == pytest.approx((1 / 6) ** 0.5)  # deviations 0.5, 0.5, 0: variance 0.5 / 3
    assert row["pass_rate"] == pytest.approx(1 / 3)
    assert (row["sampled_tokens"], row["tokens_per_episode"]) == (8, 2)
    assert (row["tool_calls"], row["tool_errors"], row["parse_errors"], row["sandbox_calls"]) == (8, 4, 4, 3)
    assert row["equal_groups"] == 0.5  # the second group has one usable episode, which cannot differ
    assert row["reward/env"] == pytest.approx(0.5)


def test_an_environment_says_itself_what_passing_is() -> None:
    assert of_groups([group(episode(reward=1.0, metrics={"passed": 0.0}))])["pass_rate"] == 0.0
    assert of_groups([group(episode(reward=0.1, metrics={"passed": 1.0}))])["pass_rate"] == 1.0
    assert of_groups([group(episode(reward=0.1 + 0.2 + 0.7))])["pass_rate"] == 1.0  # 0.9999999999999999


def test_a_batch_in_which_all_were_aborted_has_no_means() -> None:
    row = of_groups([group(episode(outcome=Outcome.ENV_ERROR))])
    assert row["aborted"] == 1
    assert "reward" not in row


def test_wilson_is_that_of_the_literature() -> None:
    # Newcombe 1998, Statistics in Medicine 17, table I, method 3
    assert [round(x, 4) for x in wilson(81, 263)] == [0.2553, 0.3662]
    assert [round(x, 4) for x in wilson(15, 148)] == [0.0624, 0.1605]
    assert [round(x, 4) for x in wilson(0, 20)] == [0.0, 0.1611]
    assert [round(x, 4) for x in wilson(1, 29)] == [0.0061, 0.1718]


def test_a_score_leaves_aborted_episodes_out_and_counts_them() -> None:
    found = score(7, [episode(reward=1.0), episode(reward=0.0), episode(reward=1.0), episode(outcome=Outcome.ENV_ERROR)])
    assert (found.step, found.episodes, found.passed, found.aborted) == (7, 3, 2, 1)
    assert found.reward == pytest.approx(2 / 3)
    # sample deviation of 1, 0, 1 is sqrt(1/3); half width 1.96 * sqrt(1/3) / sqrt(3) = 1.96 / 3
    assert found.reward_half == pytest.approx(1.959964 / 3)
    assert "pass rate 66.7%" in str(found)
    assert "1 aborted" in str(found)
    assert score(0, []).pass_rate == 0.0


def test_evaluations_are_kept_without_the_tasks_secrets_and_read_back(tmp_path: Path) -> None:
    kept = Evaluations(tmp_path / "evals")
    kept.add(10, [episode("a", 1.0)])
    kept.add(0, [episode("a", 0.0), episode("b", 0.0)])
    assert "42" not in (tmp_path / "evals" / "step-000010.jsonl").read_text()
    again = Evaluations(tmp_path / "evals")
    assert [s.step for s in again.scores] == [0, 10]
    assert again.scores == kept.scores
    assert again.get(10) == score(10, [episode("a", 1.0)])
    assert again.get(5) is None
    assert [e.task.id for e in again.episodes(0)] == ["a", "b"]


def test_examples_are_pairs_of_one_task_the_improved_first() -> None:
    first = [episode("better", 0.0), episode("same", 1.0), episode("bad", 0.0), episode("gone", 0.0), episode("worse", 0.5)]
    last = [episode("worse", 0.1), episode("bad", 0.0), episode("same", 1.0), episode("better", 1.0), episode("new", 1.0)]
    pairs = choose(first, last)
    assert [(a.task.id, b.task.id) for a, b in pairs] == [("better", "better"), ("same", "same"), ("bad", "bad")]
    assert pairs[0][0].reward == 0.0
    assert pairs[0][1].reward == 1.0


def test_examples_fill_up_where_a_kind_is_missing_and_leave_aborted_ones_out() -> None:
    first = [episode(name, 0.0) for name in "abcd"]
    last = [episode("a", 0.2), episode("b", 0.9), episode("c", 0.5), episode("d", 1.0, outcome=Outcome.ENV_ERROR)]
    assert [b.task.id for _, b in choose(first, last)] == ["b", "c", "a"]


def test_examples_show_both_conversations_and_no_text_can_close_its_fence() -> None:
    text = compare([episode("a", 0.0, text="no idea")], [episode("a", 1.0, text="```python\nprint(1)\n```")])
    assert "Task `a`: reward 0.00 -> passed" in text
    assert text.index("no idea") < text.index("````text\n```python\nprint(1)\n```\n````")
    call = Message(role="assistant", content="x", tool_calls=(ToolCall(id="c", name="python", arguments={"code": "1"}),))
    assert "[calls python: {'code': '1'}]" in "\n".join(transcript([call]))
    assert "No task was played both" in compare([], [])


def test_a_demonstration_is_not_taken_for_the_models_words() -> None:
    roles = ("system", "user", "assistant", "user", "assistant", "user", "assistant")
    messages = tuple(Message(role=role, content=f"{role} {n}") for n, role in enumerate(roles))
    text = compare([episode("a", messages=messages, opening=4)], [episode("a", 1.0, messages=messages, opening=4)])
    heads = [line for line in text.splitlines() if line.startswith("**")]
    marked = " (demonstration, part of the prompt)"
    first = [
        "**system**",
        f"**user**{marked}",
        f"**assistant**{marked}",
        "**user**",
        "**assistant**",
        "**user**",
        "**assistant**",
    ]
    assert heads == first * 2


def test_the_report_is_a_picture_a_summary_and_examples(tmp_path: Path) -> None:
    rows = [{"step": k, "reward": k / 10, "episodes": 4, "time/step": 2.0, "time/rollout": 1.5} for k in range(1, 11)]
    before = [episode(str(k), 0.0) for k in range(20)]
    after = [episode(str(k), 1.0) for k in range(20)]
    paths = write(
        tmp_path / "report",
        title="a run",
        rows=rows,
        scores=[score(0, before), score(10, after)],
        first=before,
        last=after,
        changed={"trainer.lr": "0.1  (override: trainer.lr=0.1)"},
    )
    picture, summary, examples = paths
    data = picture.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (960, 540)
    text = summary.read_text()
    assert "| 0 | 0.0% [0.0, 16.1] |" in text
    assert "| 10 | 100.0% [83.9, 100.0] |" in text
    assert "do not overlap" in text
    assert "0.150 -> 0.950 (+0.800)" in text
    assert "- episodes: 40" in text
    assert "- time of all steps: 20.0 s" in text
    assert "`trainer.lr` = 0.1" in text
    assert examples.read_text().count("## ") == 3 + 6  # three tasks, each first and last


def test_a_run_without_evaluations_or_steps_has_a_report_too(tmp_path: Path) -> None:
    draw(tmp_path / "empty.png", title="empty", rows=[], scores=[])
    assert (tmp_path / "empty.png").stat().st_size > 1000
    assert "In training" not in summarize("empty", [], [], {})
    overlap = summarize("x", [], [score(0, [episode("a", 0.0)]), score(1, [episode("a", 1.0)])], {})
    assert "intervals of the first and the last evaluation overlap" in overlap


def test_plain_lines_say_what_a_step_did_and_how_long_it_will_take() -> None:
    stream = io.StringIO()
    shown = PlainWatch(stream)
    shown.begin("runs/x: tiny", steps=3)
    shown.phase("rollout")
    shown.progress("evaluation", 1, 2)
    shown.step(
        {
            "step": 1,
            "reward": 0.25,
            "pass_rate": 0.5,
            "episodes": 8,
            "truncated": 2,
            "aborted": 1,
            "rollout/aborted": 3.0,  # two of them were played again
            "sandbox_calls": 12.0,
            "engine/sampled_tokens": 300.0,
            "engine/busy_s": 1.5,
            "tokens_per_s": 90.4,
            "time/step": 75.0,
            "time/eval": 15.0,
        }
    )
    shown.close()
    lines = stream.getvalue().splitlines()
    assert lines[0] == "runs/x: tiny"
    assert len(lines) == 2
    assert lines[1].split("  ") == [
        "step 1/3",
        "reward 0.250",
        "pass 50%",
        "sampled/s 200 tok",
        "trained/s 90 tok",
        "sandbox 12",
        "cut 2/8",
        "aborted 3",
        "time 1 min 15 s",
        "left 2 min 00 s",  # two steps of 60 s: evaluations are left out
    ]


def test_a_row_with_nothing_in_it_shows_empty_cells() -> None:
    assert {name: cell for name, cell in cells_of({"step": 4}).items() if cell} == {"step": "4"}
    assert remaining([], 10) == 0.0


def test_the_live_table_shows_title_progress_trend_and_steps() -> None:
    import rich.console

    from agentrl.live import LiveWatch

    stream = io.StringIO()
    console = rich.console.Console(file=stream, force_terminal=True, width=120, color_system=None)
    shown = LiveWatch(console)
    shown.begin("runs/x: tiny", steps=2, rows=[{"step": 1, "reward": 0.0, "time/step": 1.0}])
    shown.step({"step": 2, "reward": 1.0, "pass_rate": 0.5, "time/step": 1.0})
    shown.note("a note")
    shown.phase("training")
    shown.close()
    text = stream.getvalue()
    for part in ("runs/x: tiny", "2/2 steps", "reward ▁█ 0.000 -> 1.000 (+1.000)", "50%", "a note"):
        assert part in text


def test_a_stream_that_is_no_terminal_gets_plain_lines() -> None:
    assert isinstance(watch(live=True, stream=io.StringIO()), PlainWatch)


def test_sparklines_trends_and_durations() -> None:
    assert sparkline([]) == ""
    assert sparkline([3.0, 3.0]) == "▁▁"
    assert sparkline([0.0] * 40 + [1.0] * 40, width=2) == "▁█"
    assert trend([0.0] * 5 + [1.0] * 5) == "0.000 -> 1.000 (+1.000)"
    assert [duration(s) for s in (0.04, 59.9, 60, 3599, 3600, 90061)] == [
        "0.0 s",
        "59.9 s",
        "1 min 00 s",
        "59 min 59 s",
        "1 h 00 min",
        "25 h 01 min",
    ]
    assert moving_mean([1.0, 2.0, 3.0, 4.0], 3) == [1.0, 1.5, 2.0, 3.0]


def test_trackers_write_each_row_and_need_no_torch(tmp_path: Path) -> None:
    rows = JsonLines(tmp_path / "metrics.jsonl")
    rows.log({"step": 1, "reward": 0.5})
    rows.close()
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"step": 1, "reward": 0.5}
    board = TensorBoard(tmp_path / "tb")
    board.log({"step": 1, "reward": 0.5, "time/train": 2.0, "note": "text is left out"})
    board.log({"step": 2, "reward": 0.75})
    board.close()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(tmp_path / "tb")).Reload()
    assert sorted(read.Tags()["tensors"] + read.Tags()["scalars"]) == ["reward/reward", "time/train"]
    assert tag("engine/busy_s") == "engine/busy_s"
    assert (tag("aborted"), tag("lr"), tag("eval/pass_rate")) == ("batch/aborted", "train/lr", "eval/pass_rate")
    assert tag("rollout/aborted") == "rollout/aborted"  # the same name of another thing: one must not hide the other
