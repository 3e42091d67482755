#!/usr/bin/env bash
# Sets everything up and runs every check: ruff, pyright, pytest. Arguments go to pytest.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh" dev

# What is imported is kept compiled, also where the environment has Python compile it anew in each of many processes.
export PYTHONDONTWRITEBYTECODE=

.venv/bin/ruff check .
.venv/bin/ruff format --check .
# Types are checked beside the tests, which leave a core alone at times; what is found is printed behind theirs.
types=$(mktemp)
trap 'rm -f "$types"; kill $(jobs -p) 2>/dev/null || true' EXIT
.venv/bin/pyright >"$types" 2>&1 &
checking=$!
status=0
# Three workers with a thread each keep two cores busy: a quarter of their time they wait for processes and for the disk.
# Files come in the order of their names. By the number of their tests, those with few long ones would be the last.
OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} .venv/bin/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder "$@" ||
  status=$?
wait "$checking" || status=1
cat "$types"
exit "$status"
