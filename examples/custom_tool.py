"""A tool of one's own: a shop's price list that the model must look up before it can answer.

agentrl play env=examples/custom_tool.py:Shop        (call the tool with: /call price {"item": "tea"})
agentrl train env=examples/custom_tool.py:Shop model=tiny trainer.steps=2
"""

import agentrl as rl

ITEMS = ("tea", "bread", "rice", "soap")


class Shop(rl.Env):
    """What do so many of one thing cost? Prices are known to the tool only."""

    max_turns = 4

    def reset(self, task):
        self.prices = {item: self.rng.randint(2, 20) for item in ITEMS}
        self.item, self.count = self.rng.choice(ITEMS), self.rng.randint(2, 9)
        self.looked_up = False
        return f"What do {self.count} packs of {self.item} cost? Look the price up, then answer with the number alone."

    @rl.tool(timeout=5)
    def price(self, item: str) -> int:
        """The price of one pack.

        Args:
            item: what is bought, for instance tea
        """
        if item not in self.prices:
            raise rl.ToolError(f"the shop has no {item!r}; it has {', '.join(ITEMS)}")  # the model reads this
        self.looked_up = self.looked_up or item == self.item
        return self.prices[item]

    def step(self, action):
        right = action.parse(int) == self.count * self.prices[self.item]
        return rl.done("Thank you." if right else "That is not right.", reward=float(right))

    @rl.metric
    def tool_used(self):
        """The share of episodes in which the price was looked up: watch it rise."""
        return self.looked_up
