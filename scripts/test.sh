#!/usr/bin/env bash
# Sets everything up and runs every check: ruff, pyright, pytest. Arguments go to pytest.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh" dev

.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/pyright
.venv/bin/python -m pytest "$@"
