"""The tools of an MCP server in an environment. This file is both: run by itself it is the server, imported it is the
environment, which starts one for each episode.

pip install 'agentrl-gym[mcp]'
agentrl play env=examples/mcp_tool.py:Exchange        (call a tool with: /call rate {"currency": "krona"})
agentrl tool info --mcp 'python examples/mcp_tool.py'
agentrl train env=examples/mcp_tool.py:Exchange model=tiny trainer.steps=2
"""

import agentrl as rl

RATES = {"krona": 7, "dinar": 12, "peso": 3, "rupee": 5}


class Exchange(rl.Env):
    """What is an amount of foreign money worth? The rates are known to the server only."""

    max_turns = 4
    tools = [rl.mcp(["python", __file__], timeout=10)]  # any server: "npx some-server", or url="http://..."

    def reset(self, task):
        self.currency, self.amount = self.rng.choice(sorted(RATES)), self.rng.randint(2, 9)
        return f"How many cents is {self.amount} {self.currency} worth? Look the rate up, then answer with the number alone."

    def step(self, action):
        right = action.parse(int) == self.amount * RATES[self.currency]
        return rl.done("Right." if right else "That is not right.", reward=float(right))


def serve():
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("exchange", log_level="ERROR")

    @server.tool()
    def rate(currency: str) -> str:
        """What one unit of a currency is worth, in cents."""
        if currency not in RATES:
            return f"There is no {currency!r}; there are {', '.join(sorted(RATES))}."
        return str(RATES[currency])

    server.run()


if __name__ == "__main__":
    serve()
