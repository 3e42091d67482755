#!/usr/bin/env bash
# Makes more training pairs of those that a config has: three models of it translate the sources, and one of the other
# direction translates the targets (data diversification, Nguyen et al. 2020).
#
#   bash scripts/diversify.sh CONFIG OUTPUT [KEY=VALUE ...]
#   bash scripts/diversify.sh multi30k_en_de_tok.yaml FOLDER/diverse data.root=FOLDER data.both_directions_epochs=0
#
# OUTPUT gets the folders forward_1 to forward_3 and back, with a pair of files each, line by line those of data.train. A
# KEY=VALUE is a setting of all four trainings, whose runs stand in runs/. Each translates with the average of its last ten
# checkpoints, or of all it has. After a stop the same command goes on.
set -euo pipefail
if [ $# -lt 2 ]; then
  echo "Name a config and a folder for the new pairs: bash scripts/diversify.sh CONFIG OUTPUT [KEY=VALUE ...]" >&2
  exit 2
fi
config=$1 output=$2
shift 2
here=$PWD
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh" ""
cd "$here"
tmt=$root/.venv/bin/tmt
stem=$(basename "$config" .yaml)

for name in forward_1 forward_2 forward_3 back; do
  case $name in
    back) settings=(seed=1 data.reverse=true) ;;
    *) settings=("seed=${name##*_}") ;;
  esac
  "$tmt" train --config "$config" --resume auto training.keep_checkpoints=10 training.average_last=10 "$@" \
    "${settings[@]}" name="${stem}_$name"
  "$tmt" distill --run "runs/${stem}_$name" --checkpoint average --output "$output/$name"
done
