"""Why a model translates as it does: words that mattered, what else it might have said, and what it learned from."""
