# Sourced by the other scripts: makes .venv with the project in it, unless it is there and up to date.
# Usage: . setup.sh [EXTRA]

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1
extra=${1:-}
stamp=.venv/.installed${extra:+-$extra}

if [ ! -x .venv/bin/python ]; then
  "${PYTHON:-python3}" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "Python 3.11 or newer is needed; name one with PYTHON=/path/to/python3.11" >&2
    exit 2
  }
  echo "making .venv" >&2
  "${PYTHON:-python3}" -m venv .venv || exit 1
fi
if [ ! "$stamp" -nt pyproject.toml ] || [ ! "$stamp" -nt constraints.txt ]; then
  echo "installing the project${extra:+ with its extra $extra}" >&2
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt \
    -e ".${extra:+[$extra]}" || exit 1
  # pip would compile 13,000 modules on one core. A few are meant for other Pythons and cannot be compiled.
  .venv/bin/python -m compileall -qq -j 0 .venv/lib || true
  touch "$stamp"
fi
