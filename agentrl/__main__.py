"""`python -m agentrl`: the command line, also in a checkout that is not installed."""

import sys

from agentrl.cli import main

sys.exit(main())
