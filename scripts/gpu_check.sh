#!/usr/bin/env bash
# What only a GPU can show, in one run of under nine minutes: its tests, the base model from nothing to a translation,
# exact resuming, and a kill, all at a time; and speed beside the others, and what compiling costs. The former go on beside
# the latter, and are halted while something is measured. A stage that fails is reported, and the next one runs.
#
#   bash scripts/gpu_check.sh OUT [--wheels DIR] [--data DIR] [--joey-python PATH] [--minutes 9] [--device cuda]
#        [--smoke] [--only STAGE,STAGE]
#
# OUT gets report.txt and a log of each stage; what is trained lies in OUT/work. DIR of --wheels has the Python packages
# that the machine lacks; nothing is installed but in OUT. CTranslate2 asks for the cuBLAS of CUDA 12; where torch
# brings that of 13 it is given this one. DIR of --data holds tok/, the tokenized Multi30k, and beside it
# ../../bench the plain loop; without it the stages that need it are left out. PYTHON names another Python. --smoke is a
# few steps of tiny models: whether all of it runs, on any --device. --only runs some of the stages, whose names are the
# headings of a report: decode wants decode-model with it, and base-translation base. While OUT/alone is there something
# is measured, and other programs had better wait.
set -uo pipefail

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2; exit 2; }
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out='' wheels='' data='' joey='' minutes=9 device=cuda smoke='' only=''
unmeasured="tests page resume-bit-for-bit killed-and-resumed base base-translation"
measured="compile-base compile-big decode-model train-base decode train-base-uncompiled max-tokens-auto train-big"
stages="$unmeasured $measured"
while [ $# -gt 0 ]; do
  case $1 in
    --wheels|--data|--joey-python|--minutes|--device|--only)
      [ $# -ge 2 ] || { echo "gpu_check.sh: $1 needs a value" >&2; exit 2; }
      case $1 in
        --wheels) wheels=$(realpath "$2") || exit 2 ;; --data) data=$(realpath "$2") || exit 2 ;;
        --joey-python) joey=$2; case $2 in */*) joey=$(realpath -s "$2") || exit 2 ;; esac ;;
        --minutes) minutes=$2 ;; --device) device=$2 ;; --only) only=$2 ;;
      esac
      shift 2 ;;
    --smoke) smoke=1; shift ;;
    -*) usage ;;
    *) [ -z "$out" ] || usage; out=$1; shift ;;
  esac
done
[ -n "$out" ] || usage
case $minutes in
  ''|*[!0-9]*|[012]) echo "gpu_check.sh: --minutes is $minutes; give a whole number of 3 or more" >&2; exit 2 ;;
esac
for name in ${only//,/ }; do
  [[ " $stages " == *" $name "* ]] || { echo "gpu_check.sh: --only: there is no stage $name, but $stages" >&2; exit 2; }
  [[ -n $data || " $measured " != *" $name "* ]] || { echo "gpu_check.sh: $name needs --data" >&2; exit 2; }
done
for folder in "$wheels" ${data:+"$data/tok"}; do
  [ -z "$folder" ] || [ -d "$folder" ] || { echo "gpu_check.sh: there is no folder $folder" >&2; exit 2; }
done
mkdir -p "$out/work" "$out/tmp" || exit 2
out=$(realpath "$out")
forget() { rm -f "$out"/*.group "$out"/*.end "$out/alone"; }  # of a check that was killed, too
forget
python=${PYTHON:-python3}
end=$((SECONDS + 60 * minutes))
export PYTHONPATH=$root${wheels:+:$out/site} PYTHONUNBUFFERED=1 TMPDIR=$out/tmp
export TORCHINDUCTOR_CACHE_DIR=$out/compiled  # for all stages, which have temporary folders of their own

left() { echo $((end - SECONDS)); }
report() { tee -a "$out/report.txt"; }
failed=0
# told NAME LINES STATUS SECONDS LIMIT: the last lines of a stage's log go into the report, and how it ended.
told() {
  grep -v '^$' "$out/$1.log" | tail -n "$2" | cut -c1-400 | report
  case $3 in
    0) echo "ok, $4 s" ;;
    124|137) echo "STOPPED after $5 s" ;;
    *) echo "FAILED with status $3 after $4 s" ;;
  esac | report
  [ "$3" = 0 ] || failed=$((failed + 1))
}
headed() { printf '\n== %s ==\n$ %.400s\n' "$1" "$(tr -s ' \n' ' ' <<<"${*:2}")" | report; }
# wanted NAME: whether --only leaves this stage in; wheels and device are no stages.
wanted() { [[ -z $only || ,$only, == *",$1,"* || $1 == wheels || $1 == device ]]; }
# halted and gone_on: what was begun beside the stages. `timeout` leads its group of processes.
halted() { touch "$out/alone"; signalled STOP; }
gone_on() { rm -f "$out/alone"; signalled CONT; }
signalled() {
  local group
  for group in "$out"/*.group; do [ ! -s "$group" ] || kill "-$1" -- "-$(<"$group")" 2>/dev/null; done
}
# alone NAME: a benchmark of training has the GPU for itself from its first line of metrics on, a search from its start.
alone() {
  case $1 in
    decode) ;;
    train-*) until grep -qs '"kind": "train"' "$out"/tmp/*/runs/preset/metrics.jsonl; do sleep 0.2; done ;;
    *) return ;;
  esac
  halted
}
# stage NAME SECONDS LINES COMMAND...: a command that is stopped after so many seconds, or where what was halted for it
# needs the rest of the time. It is left out where less than a third of the seconds is left. A benchmark is killed with all its processes, one of which would train on beside the next stage.
stage() {
  local name=$1 limit=$2 lines=$3 status=0 start=$SECONDS signal=TERM
  wanted "$name" || return 0
  shift 3
  local least=$((limit / 3)) most=$(left)
  case $name in train-*) signal=KILL ;; esac
  [[ " $measured " != *" $name "* ]] || most=$((most - 110))
  [ "$limit" -le "$most" ] || limit=$most
  headed "$name" "$@"
  if [ "$limit" -lt "$least" ]; then
    echo "LEFT OUT: no time is left" | report
    failed=$((failed + 1))
    return
  fi
  rm -rf "$out"/tmp/*
  alone "$name" &
  local watching=$!
  (cd "$out/work" && exec timeout -s "$signal" -k 5 "$limit" "$@") >"$out/$name.log" 2>&1 &
  current=$!
  wait $current || status=$?
  kill $watching 2>/dev/null
  wait $watching
  gone_on
  told "$name" "$lines" "$status" $((SECONDS - start)) "$limit"
}
# beside NAME SECONDS LINES COMMAND...: the same, begun while others run; `gathered NAME...` waits for these, or for all
# that are left, and reports. They are stopped as by Ctrl-C, at which pytest says what has failed so far.
waiting=()
beside() {
  local name=$1 limit=$2 lines=$3 most=$(($(left) - 40))
  wanted "$name" || return 0
  shift 3
  [ "$limit" -le "$most" ] || limit=$most
  (
    status=0 start=$SECONDS
    mkdir -p "$out/apart/$name"
    TMPDIR=$out/apart/$name bash -c 'cd "$0/work"; echo $$ >"$0/$1.group"; shift; exec "$@"' "$out" "$name" \
      env --default-signal=INT timeout -s INT -k 10 "$limit" "$@" >"$out/$name.log" 2>&1 || status=$?
    rm -f "$out/$name.group"
    echo "$status $((SECONDS - start)) $limit" >"$out/$name.end"
  ) &
  waiting+=("$name $! $lines $*")
}
gathered() {
  local one name process lines command status seconds limit later=()
  for one in ${waiting[@]+"${waiting[@]}"}; do
    read -r name process lines command <<<"$(tr -s ' \n' ' ' <<<"$one")"
    if [[ $# -gt 0 && " $* " != *" $name "* ]]; then later+=("$one"); continue; fi
    wait "$process"
    headed "$name" "$command"
    read -r status seconds limit <"$out/$name.end"
    rm "$out/$name.end"
    told "$name" "$lines" "$status" "$seconds" "$limit"
  done
  waiting=(${later[@]+"${later[@]}"})
}
# Ctrl-C reaches none of them, since `timeout` makes groups of their own.
stopped() {
  trap '' INT TERM HUP
  gone_on
  signalled INT
  [ -z "$current" ] || kill -TERM -- "-$current" 2>/dev/null
  wait
  forget
  exit 130
}
current=''
trap stopped INT TERM HUP
tmt=("$python" -m transformer_mt)
small=()
[ -z "$smoke" ] || small=(model.d_model=32 model.d_ff=64 model.num_heads=2 model.num_encoder_layers=1
  model.num_decoder_layers=1 training.max_tokens=1024 validation.num_translated=8)

: >"$out/report.txt"
if [ -n "$wheels" ]; then
  stage wheels 60 3 "$python" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade \
    --target "$out/site" "$wheels"/*.whl
fi
stage device 30 8 bash -c "nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader; \
  '$python' -c 'import platform, torch; print(\"torch\", torch.__version__, \"Python\", platform.python_version())'; \
  git -C '$root' log -1 --format=%h 2>/dev/null || true"
blas=$("$python" -c 'from importlib.util import find_spec; print(*(find_spec("nvidia") or find_spec("torch")).submodule_search_locations)')
for name in cublas cublasLt; do
  there=$(find $blas -name "lib$name.so.13" 2>/dev/null | head -n 1)
  [ -z "$there" ] || { mkdir -p "$out/lib"; ln -sf "$there" "$out/lib/lib$name.so.12"; }
done
[ ! -d "$out/lib" ] || export LD_LIBRARY_PATH=$out/lib:$(dirname "$(readlink -f "$out/lib/libcublas.so.12")"):${LD_LIBRARY_PATH:-}

# First what is not measured, all at a time. Each process that tests the page trains two models of its own. What is
# compiled for the benchmarks is kept by torch and Triton, so that they begin sooner.
if [ -z "$smoke" ]; then
  page=tests/cli/translating/test_translating_page.py
  pytest=(env -C "$root" "$python" -m pytest -m gpu -q -p no:cacheprovider -W ignore --durations 8
    --continue-on-collection-errors)
  beside tests 400 24 "${pytest[@]}" -n 5 --ignore $page
  beside page 400 24 "${pytest[@]}" -n 3 $page
fi
beside resume-bit-for-bit 300 4 "${tmt[@]}" verify-resume --config quickstart.yaml --steps 20 \
  training.device="$device" training.deterministic=true "${small[@]}"
killed=(train --config quickstart.yaml --runs runs name=killed training.device="$device" training.max_steps=120
  training.checkpoint_every_steps=20 validation.every_steps=60 validation.num_translated=8
  "${small[@]}")
beside killed-and-resumed 300 6 bash -c '
  "$@" & training=$!
  for _ in $(seq 1500); do [ -d runs/killed/checkpoints/step_40 ] && break; kill -0 $training || exit 1; sleep 0.1; done
  kill -9 $training; wait $training 2>/dev/null
  "$@" --resume auto && grep -c "\"kind\": \"train\"" runs/killed/metrics.jsonl' bash "${tmt[@]}" "${killed[@]}"
# preset PRESET OPTION...: a benchmark of training, as a command.
preset() { speed=("$python" "$root/scripts/bench_train.py" --data "$data" --device "$device" --preset "$@" ${smoke:+--smoke}); }
if [ -n "$data" ]; then
  beside decode-model 120 2 "${tmt[@]}" train --config "$root/scripts/measuring/bench_multi30k.yaml" --runs runs name=decode \
    data.root="$data/tok" training.device="$device" training.compile=false "${small[@]}" \
    training.max_steps="$([ -n "$smoke" ] && echo 20 || echo 400)" \
    training.warmup_steps="$([ -n "$smoke" ] && echo 10 || echo 100)"
  for one in base big; do
    preset $one $([ -n "$smoke" ] || echo --max-tokens 25000 --warm-up 6 --steps 3)
    beside compile-$one 200 1 "${speed[@]}"
  done
fi
# The base model has ten minutes at most, and 80 seconds of all are for its last validation and a translation.
base=$(($(left) - 50))
[ "$base" -le 600 ] || base=600
training=$(awk "BEGIN { print ($base - 30) / 60 }")
[ -z "$smoke" ] || training=0.02
beside base "$base" 14 "${tmt[@]}" train --config base.yaml --runs runs training.device="$device" \
  training.max_minutes="$training" "${small[@]}"
gathered decode-model compile-base compile-big

if [ -n "$data" ]; then
  opponents=()
  # with OPTION VALUE TEST...: an opponent, or a line on that it is missing.
  with() {
    if "${@:3}" >/dev/null 2>&1; then opponents+=("$1" "$2"); else echo "without $1 $2, which is not there" | report; fi
  }
  loop=$(dirname "$(dirname "$data")")/bench/plain_loop.py
  with --plain-loop "$loop" [ -f "$loop" ]
  [ -z "$joey" ] || with --joey-python "$joey" "$joey" -c 'import joeynmt'
  # train STAGE PRESET OPTION...: passes are captured, and a profile is taken, before the steps that are timed.
  train() { preset "${@:2}"; stage "$1" 180 34 "${speed[@]}"; }
  sizes() { [ -n "$smoke" ] || echo "$@"; }
  train train-base base "${opponents[@]}" $(sizes --profile --max-tokens 25000 --warm-up 150 --steps 60)
  stage decode 130 80 "$python" "$root/scripts/bench_decode.py" --run runs/decode --data "$data" --device "$device" \
    $([ -n "$smoke" ] && echo --smoke || echo --rounds 1 --no-plain --precisions fp32 fp16 --batch-sizes 512 --profile)
  train train-big big $(sizes --profile --max-tokens 64000 --warm-up 40 --steps 30)
  train train-base-uncompiled base $(sizes --max-tokens 25000) --set training.compile=false
  # The sizes of base, whose kernels are compiled already.
  stage max-tokens-auto 50 8 "${tmt[@]}" train --config "$root/scripts/measuring/bench_multi30k.yaml" --runs runs name=auto \
    data.root="$data/tok" training.device="$device" model.d_model=512 model.d_ff=2048 model.num_encoder_layers=6 \
    model.num_decoder_layers=6 "${small[@]}" training.schedule=constant training.max_steps=6 \
    training.max_tokens=auto training.update_tokens="$([ -n "$smoke" ] && echo 4096 || echo 400000)"
fi
gathered
stage base-translation 60 3 "${tmt[@]}" translate --run runs/base --device "$device" "The cat sat"
printf '\n%s stages failed, were stopped or left out; %s s in all\n' "$failed" "$SECONDS" | report
exit $((failed > 0))
