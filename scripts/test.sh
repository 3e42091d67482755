#!/usr/bin/env bash
# Sets everything up and runs every check: ruff, pyright, pytest. Arguments go to pytest.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh" dev

.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/pyright
# Two workers with a thread each: what is slow is to start tmt again and again, which uses one core at a time.
OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} .venv/bin/python -m pytest -n 2 --dist loadfile "$@"
