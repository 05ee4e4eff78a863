"""A first environment: count the letters of a word. Try it, then train a tiny model in it:

agentrl play env=examples/first_env.py:CountLetters
agentrl train env=examples/first_env.py:CountLetters model=tiny trainer.steps=2
"""

import agentrl as rl

WORDS = ("apple", "moon", "letter", "banana", "sky", "window", "success", "hello")


class CountLetters(rl.Env):
    """How often does a letter occur in a word? Two tries; the second answer is worth half."""

    max_turns = 2

    def reset(self, task):
        self.word = self.rng.choice(WORDS)
        self.letter = self.rng.choice(self.word)
        self.worth = 1.0
        return f"How often does the letter {self.letter!r} occur in {self.word!r}? Answer with a number."

    def step(self, action):
        if action.parse(int) == self.word.count(self.letter):  # without a number in it, the model is told so
            return rl.done("Correct.", reward=self.worth)
        self.worth /= 2
        return "No. Spell the word and try again."
