"""wordle: marks against an independent count, the word list, how guesses are read, and that it can be won by its rules."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.env import as_step
from agentrl.envs.wordle import Wordle, marks, read_guess
from agentrl.envs.wordle_tasks import words
from agentrl.messages import Action, ParseError
from agentrl.task import Task


@pytest.mark.parametrize(
    ("guess", "secret", "found"),
    [
        ("crane", "crane", "GGGGG"),
        ("slate", "crony", "XXXXX"),
        ("crony", "crane", "GGXGX"),
        ("speed", "abide", "XXYXY"),  # one e, one d: the second e is no more
        ("erase", "speed", "YXXYY"),
        ("allee", "apple", "GYXXG"),
        ("geese", "eerie", "XGYXG"),
        ("llama", "small", "YYGYX"),
    ],
)
def test_marks_worked_out_by_hand(guess, secret, found):
    assert marks(guess, secret) == found


LETTERS = st.text("abc", min_size=5, max_size=5)


@given(LETTERS, LETTERS)
def test_marks_by_counting(guess, secret):
    found = marks(guess, secret)
    for letter in "abc":
        places = [i for i in range(5) if guess[i] == letter]
        green = sum(secret[i] == letter for i in places)
        assert [found[i] == "G" for i in places] == [secret[i] == letter for i in places]
        marked = sum(found[i] in "GY" for i in places)
        assert marked == min(len(places), Counter(secret)[letter])
        assert marked >= green
        yellow_or_not = [found[i] for i in places if found[i] != "G"]
        assert yellow_or_not == sorted(yellow_or_not, reverse=True)  # Y before X, from left to right


def test_the_list():
    assert len(words()) >= 1500
    assert len(set(words())) == len(words())
    assert list(words()) == sorted(words())
    assert all(len(word) == 5 and word.isascii() and word.isalpha() and word.islower() for word in words())


@pytest.mark.parametrize(
    ("text", "guess"),
    [
        ("crane", "crane"),
        ("CRANE.", "crane"),
        ("My guess is crane", "crane"),
        ("Guess: Crane, since these words share three", "crane"),
        ("c r a n e", "crane"),
        ("C-R-A-N-E", "crane"),
        ("I try **crane** because those other words fail", "crane"),
        ("I try [crane] these days", "crane"),
        ('"crane" could work', "crane"),
        ("<guess>crane</guess> slate", "crane"),
        ("<answer>crane</answer> slate", "crane"),
        ("The word CRANE has every vowel that could match", "crane"),
        ("slate or maybe crane", "crane"),
        ("xqzjk", "xqzjk"),
    ],
)
def test_reading(text, guess):
    assert read_guess(text) == guess


@pytest.mark.parametrize("text", ["", "no", "cranes", "cr4ne", "c r a n", "c r a n e s", "a-c-r-a-n-e", "cr\u0130ne"])
def test_no_guess(text):
    with pytest.raises(ParseError, match="five letters"):
        read_guess(text)


def played(secret, *guesses, **settings):
    env = Wordle()
    env.task = Task(id="t", prompt="?", secret={"word": secret})
    for name, value in settings.items():
        setattr(env, name, value)
    return [as_step(env.step(Action(text=guess))) for guess in guesses], env.found()


def test_boards_and_rewards():
    steps, reward = played("crane", "crony", "crane")
    assert steps[0].observation[0].text == "C R O N Y\nG G X G X"
    assert not steps[0].terminated
    assert steps[1].terminated
    assert reward == 1.0
    assert played("crane", "crony", "slate")[1] == pytest.approx(0.3)  # the best guess counts
    assert played("crane", "vivid")[1] == 0.0
    assert played("crane", "crony", letter_credit=0.0)[1] == 0.0


def test_hints_of_the_levels():
    one, two, three = (Wordle.tasks(level).get(4) for level in (1, 2, 3))
    assert one.secret["word"] in one.public["choices"]
    assert len(set(one.public["choices"])) == 8
    assert all(word in one.prompt for word in one.public["choices"])
    assert f"It begins with '{two.secret['word'][0]}'." in two.prompt
    assert two.secret["word"] not in two.prompt
    assert three.secret["word"] not in three.prompt


def test_words_that_are_held_out_are_never_secret_in_training():
    source = Wordle.tasks([1, 2, 3])
    held_out = {task.secret["word"] for task in source.held_out(300)}
    assert not held_out & {source.get(index).secret["word"] for index in range(2000)}


@pytest.mark.parametrize("level", [1, 2, 3])
def test_a_player_who_only_sees_marks_wins_most_games(level):
    """Guesses the first word that agrees with all marks so far."""
    won = 0
    for task in Wordle.tasks(level).held_out(40):
        env = Wordle()
        env.task = task
        left = list(task.public.get("choices") or words())
        if level == 2:
            left = [word for word in left if word[0] == task.secret["word"][0]]
        for _ in range(env.max_turns):
            guess = left[len(left) // 2]
            step = as_step(env.step(Action(text=guess)))
            if step.terminated:
                break
            found = step.observation[0].text.splitlines()[1].replace(" ", "")
            left = [word for word in left if marks(guess, word) == found]
        won += env.found() == 1.0
    assert won >= 30


def test_the_demonstration_guesses_a_word_of_those_it_names():
    task = Wordle.tasks(1).get(0)
    question, answer, real = Wordle().reset(task)
    assert read_guess(answer.text) in question.text
    assert answer.text in words()
    assert real.text == task.prompt
