# jobs.sh - whole training jobs on the GPU, beside the same on the CPU, and what explains their speed.
# shellcheck shell=bash disable=SC2154  # gpu_check sets passel, build, work, small, mnist

model=()
[[ -z $small ]] || model=(--hidden_units 8 --batch_size 16)
train_anywhere=("$passel" train --device cuda "${model[@]}")
train=("${train_anywhere[@]}" --num_gpus 1)

# What a job reaches, beside what was predicted for it before any measurement.
# shellcheck disable=SC2016  # for the inner shell
job_speed='what=$1 low=$2 high=$3 report=$4; shift 4
  "$@" --report "$report" || exit 1
  got=$(sed -n "s/^ *\"steps_per_second\": \([0-9.]*\).*/\1/p" "$report" | head -n 1)
  awk -v got="$got" -v low="$low" -v high="$high" -v what="$what" "BEGIN {
    if (got <= 0) exit 1
    printf \"RESULT job, %s: %.0f steps/s\", what, got
    if (high > 0) {
      printf \" (predicted %d-%d; %.2f of the lower, %.2f of the higher)\", low, high, got / low,
             got / high
    }
    print \"\"
  }"'
# speed_of STEP: steps/s of that job, 0 if it did not end well.
speed_of() {
  local got
  got=$(sed -n 's/^RESULT job, .*: \([0-9]*\) steps\/s.*/\1/p' "$work/$1.log" 2> /dev/null | head -n 1)
  echo "${got:-0}"
}
# job NAME WHAT LOW HIGH FLAGS...
job() {
  local name=$1 what=$2 low=$3 high=$4
  shift 4
  [[ -z $small ]] || high=0
  step "$name" 60 bash -c "$job_speed" - "$what" "$low" "$high" "$work/$name.json" "${train[@]}" \
    --fake_data "$@"
}

# cpu_job: the same model on all processors, and whether the GPU was worth it.
cpu_job() {
  local workers best=0 best_name='' name got line
  wanted job_cpu || return 0
  workers=$(size "$(usable_processors)" 2)
  (( workers <= 64 )) || workers=64
  step job_cpu 60 bash -c "$job_speed" - "the processors, $workers workers, hogwild" 0 0 \
    "$work/job_cpu.json" "$passel" train --device cpu "${model[@]}" \
    --fake_data --workers "$workers" "--train_steps=$(size 60000 100)" || return
  for name in job_graph job_overlap job_device job_device_fused; do
    got=$(speed_of "$name")
    if (( got > best )); then best=$got best_name=$name; fi
  done
  if (( best == 0 )); then return; fi
  line=$(awk -v best="$best" -v name="$best_name" -v cpu="$(speed_of job_cpu)" -v n="$workers" 'BEGIN {
    printf "RESULT GPU against CPU: one worker on the GPU (%s) makes %.2f times the steps/s of %d on the processors",
           name, best / cpu, n }')
  measured+=("$line")
  printf '%s\n' "$line"
  write_report
}

# mnist_step NAME FLAGS...: 20,000 steps of the default model, and its test accuracy. Two workers on CPUs
# reach 0.974 to 0.977 of all 60,000 images, and 0.966 to 0.969 of the 20,000 that are packed.
# shellcheck disable=SC2016  # for the inner shell
accuracy='least=$1 report=$2; shift 2
  "$@" --report "$report" || exit 1
  got=$(sed -n "s/^ *\"test_accuracy\": \([0-9.]*\).*/\1/p" "$report" | head -n 1)
  echo "RESULT MNIST, $(basename "$report" .json | sed "s/^mnist$/host arena/; s/^device_arena_mnist$/device arena/; s/^peer_mnist$/device arena on two GPUs/"): test accuracy $got (wanted $least or more)"
  awk -v got="$got" -v least="$least" "BEGIN { exit !(got >= least) }" ||
    { echo "test accuracy $got is below $least"; exit 1; }'
mnist_step() {
  local name=$1 job=("${train[@]}") least
  shift
  [[ $name != peer_* ]] || job=("${train_anywhere[@]}")
  if [[ -z $mnist ]]; then
    skipped "$name" "there is no MNIST here: name its folder with --mnist"
  else
    least=0.97
    (( $(zcat -f "$mnist"/train-labels* | wc -c) > 60000 )) || least=0.96
    step "$name" 90 bash -c "$accuracy" - "$(size "$least" 0.5)" "$work/$name.json" "${job[@]}" "$@" \
      --data_dir "$mnist" --train_steps "$(size 20000 300)"
  fi
}

# peer_steps: two GPUs, parameters in the memory of the first. The peer is the first GPU that the launcher
# lets work there: it looks at NVLink and atomic operations. Sets `across`.
across=()
peer_steps() {
  local uuids i name any='' peer=
  for name in peers peer_counting peer_hogwild peer_locked peer_mnist peer_kill_workers; do
    ! wanted "$name" || any=1
  done
  [[ -n $any ]] || return 0
  mapfile -t uuids < <(timeout 20 "$passel" topology --json 2> /dev/null |
    sed -n 's/^ *{"uuid":"\(GPU-[^"]*\)".*/\1/p')
  if (( ${#uuids[@]} < 2 )); then
    skipped peers "it takes two GPUs with NVLink, and there is one GPU here"
    return
  fi
  for (( i = 1; i < ${#uuids[@]}; ++i )); do
    if timeout "$(at_most 20)" "$passel" train --dry_run --gpus "0,$i" --arena device \
        > "$work/peer" 2>&1; then
      peer=$i
      break
    fi
  done
  if [[ -z $peer ]]; then
    skipped peers "$(tail -n 1 "$work/peer" | cut -c 1-300)"
    return
  fi
  facts+=("GPU $peer works in the memory of GPU 0")
  across=(--gpus "0,$peer" --arena device)
  step peer_counting 60 env PASSEL_GPU_PEERS="${uuids[0]},${uuids[peer]}" "$gpu_test" \
    --gtest_filter='GpuArenaPeers.*'
  for name in hogwild locked; do
    step "peer_$name" 60 bash -c "$job_speed" - \
      "two GPUs, device arena, graph, SGD, pushes, $name, 4 workers" 0 0 "$work/peer_$name.json" \
      "${train_anywhere[@]}" "${across[@]}" --workers_per_gpu 2 --fake_data --mode "$name" "${sgd[@]}" \
      --train_steps "$(size 8000 100)"
  done
  mnist_step peer_mnist "${across[@]}" --workers_per_gpu 2
}

# What another's MPS daemon does here is not what we look for: our programs look where none is, but
# behind start_mps.
export CUDA_MPS_PIPE_DIRECTORY=$work/no_mps
# start_mps STEP...: a daemon of our own in a folder of our own, for those steps; says why not.
mps_runs=
start_mps() {
  local control name any='' why=
  for name in "$@"; do ! wanted "$name" || any=1; done
  [[ -n $any ]] || return 1
  control=$(tool nvidia-cuda-mps-control)
  mkdir -p "$work/mps" "$work/mps_log"
  export CUDA_MPS_PIPE_DIRECTORY=$work/mps CUDA_MPS_LOG_DIRECTORY=$work/mps_log
  if [[ -z $control ]]; then
    why="nvidia-cuda-mps-control is not installed"
  # The server numbers the GPUs anew by CUDA_VISIBLE_DEVICES, and so would our programs a second time.
  elif ! env -u CUDA_VISIBLE_DEVICES timeout 20 "$control" -d > "$work/mps.log" 2>&1 < /dev/null; then
    why="the control daemon of MPS does not start here: $(tail -n 1 "$work/mps.log" | cut -c 1-200)"
  else
    mps_runs=$control
    return 0
  fi
  export CUDA_MPS_PIPE_DIRECTORY=$work/no_mps
  for name in "$@"; do skipped "$name" "$why"; done
  return 1
}
stop_mps() {
  [[ -n $mps_runs ]] || return 0
  echo quit | timeout 20 "$mps_runs" > /dev/null 2>&1 || fails mps "the control daemon does not end"
  mps_runs=
  export CUDA_MPS_PIPE_DIRECTORY=$work/no_mps
}

ncu_step() {
  local ncu
  wanted ncu || return 0
  ncu=$(tool ncu)
  if [[ -z $ncu ]]; then skipped ncu "it is not installed"; return; fi
  # shellcheck disable=SC2016  # for the inner shell
  step ncu 60 bash -c '"$@"; status=$?
    if (( status != 0 )); then
      if grep -q ERR_NVGPUCTRPERM "$0"; then
        echo "this user may not read the counters of the GPU (ERR_NVGPUCTRPERM)"
        exit 77
      fi
      exit "$status"
    fi
    (( $(grep -c Duration "$0") >= 3 )) || { echo "it shows fewer than 3 kernels"; exit 1; }' \
    "$work/ncu.log" "$ncu" --clock-control none --kernel-name-base demangled \
    -k 'regex:(Gather|Gemm|CrossEntropy)Kernel' --launch-count 8 --section SpeedOfLight \
    --section LaunchStats --section Occupancy "$gpu_test" --gtest_filter='*Profile'
}

# sanitizer_step CHECK: one of compute-sanitizer's tools on small steps. It is slow, and not possible
# everywhere: only what it found is a failure.
sanitizer_step() {
  local sanitizer tests="-*Speed:*Large*:$processes"
  wanted "$1" || return 0
  # It does not know memory that is handed to other processes (cuMemMap): kernels that use it fail there.
  [[ $1 != initcheck ]] || tests='Gpu.*:-*Speed:*Large*'
  sanitizer=$(tool compute-sanitizer)
  if [[ -z $sanitizer ]]; then skipped "$1" "compute-sanitizer is not installed"; return; fi
  # A call that the driver answers with no is part of asking: what must not fail, our code looks at.
  # shellcheck disable=SC2016  # for the inner shell
  step "$1" "$(at_most 75)" bash -c '
    timeout 60 "$@" && exit 0
    status=$?
    grep -q "SUMMARY: [1-9]\|FAILED  " "$0" && exit "$status"
    (( status != 124 )) || echo "it was not done after 60 s"
    exit 77' "$work/$1.log" env PASSEL_GPU_SMALL=1 "$sanitizer" --tool "$1" --report-api-errors no \
    --target-processes all --error-exitcode 9 "$gpu_test" --gtest_filter="$tests"
}

machine_code_step() {
  local cuobjdump capability wanted=('LDG\.E\.128' 'STG\.E\.128')
  wanted machine_code || return 0
  cuobjdump=$(tool cuobjdump)
  if [[ -z $cuobjdump ]]; then skipped machine_code "cuobjdump is not installed"; return; fi
  capability=$(card_fact capability | tr -d .)
  (( capability < 90 )) || wanted+=('REDG*\.E\.ADD\.F32x4')
  # shellcheck disable=SC2016  # for the inner shell
  step machine_code 60 bash -c 'sass=$1; shift
    "$1" --dump-sass -arch "sm_$2" "$3" > "$sass" || exit 1
    [[ -s $sass ]] || { echo "the plugin holds no machine code for sm_$2, but PTX"; exit 77; }
    shift 3
    for wanted in "$@"; do
      echo "RESULT $wanted: $(grep -c "$wanted" "$sass") times"
      grep -q "$wanted" "$sass" || { echo "the plugin has no $wanted"; exit 1; }
    done' - "$work/sass" "$cuobjdump" "$capability" "$build/lib/passel/libpassel_cuda.so" "${wanted[@]}"
}
