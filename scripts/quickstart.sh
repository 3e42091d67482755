#!/usr/bin/env bash
# Sets everything up, trains the small model on the built-in corpus, and translates one sentence.
# A second call goes on where the first stopped; a finished training is not repeated.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

.venv/bin/tmt train --config quickstart.yaml --resume auto
.venv/bin/tmt evaluate --run runs/quickstart --split test
.venv/bin/tmt translate --run runs/quickstart "The cat sat"
