#!/usr/bin/env bash
# Makes the synthetic pairs that multi30k_task2.yaml trains on, of captions that have no translation.
#
#   bash scripts/multi30k_task2.sh FOLDER [KEY=VALUE ...]
#   tmt train --config multi30k_task2.yaml data.root=FOLDER
#
# FOLDER holds the files of multi30k_en_de_tok.yaml and a folder task2 with train.lc.norm.tok.1.de to
# train.lc.norm.tok.5.en, as the data set's repository has them in data/task2/tok: five more captions in each language of
# the same 29,000 images. First come the models that translate: four of diversify.sh, and one that learns from what those
# write, multi30k_diverse.yaml's. What is there already is kept. A KEY=VALUE is a setting of all five. German captions get
# English sources, English ones German targets. Lines of the validation and test splits are left out. After a stop the
# same command goes on.
set -euo pipefail
refuse() { echo "$1" >&2; exit 2; }
[ $# -ge 1 ] || refuse "Name the folder with the data: bash scripts/multi30k_task2.sh FOLDER"
folder=$(cd "$1" 2>/dev/null && pwd) || refuse "There is no folder $1. Name the one with the data."
for name in train.lc.norm.tok.en task2/train.lc.norm.tok.{1..5}.{de,en}; do
  [ -f "$folder/$name" ] || refuse "There is no file $folder/$name. See the beginning of this script for what it reads."
done
shift
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh" ""

for side in de en; do
  cat "$folder"/task2/train.lc.norm.tok.[1-5].$side >"$folder/task2/captions.$side"
done
bash scripts/diversify.sh multi30k_en_de_tok.yaml "$folder/diverse" data.root="$folder" data.both_directions_epochs=0 "$@"
.venv/bin/tmt train --config multi30k_diverse.yaml --resume auto training.average_last=10 data.root="$folder" "$@"

make() {  # a verb, its run, the side of the captions, a tag, a folder
  .venv/bin/tmt "$1" --run "runs/$2" --checkpoint average --input "$folder/task2/captions.$3" --tag "$4" \
    --without "$folder/val.lc.norm.tok.$3" --without "$folder/test_2016_flickr.lc.norm.tok.$3" \
    --output "$folder/task2/$5"
}
make backtranslate multi30k_en_de_tok_back de "<BT>" back_translated
make distill multi30k_diverse en "<ST>" self_trained
