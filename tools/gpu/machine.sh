# machine.sh - what a machine with a GPU has of NVIDIA's tools and libraries, and which GPUs.
# shellcheck shell=bash disable=SC2154  # gpu_check sets work, build, seconds

# keep_gpus_awake: where no daemon does, the driver starts anew for each program, seconds each time,
# unless somebody holds the device. In processes of their own, since a wedged card may hold up who opens
# it. Sets `awake`.
awake=()
keep_gpus_awake() {
  local device
  for device in /dev/nvidia[0-9]*; do
    [[ -c $device ]] || continue
    { "${leash[@]}" sleep "$seconds" <> "$device" & } 2> /dev/null
    awake+=($!)
  done
}

# What the loader knows; ldconfig need not be in everybody's PATH.
libraries=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2> /dev/null || true)

# search_disk: where Python environments and toolkits keep what PATH and the loader do not know; it
# takes a while, so others look at $work/found when they need it.
search_disk() {
  local places=(/) place
  # Of their own, often, on rented machines: -xdev leaves them out.
  for place in /home /opt /workspace /usr /root; do ! mountpoint -q "$place" || places+=("$place"); done
  [[ -z ${PASSEL_GPU_SEARCH:-} ]] || places=("$PASSEL_GPU_SEARCH")
  timeout "$(at_most 60)" find "${places[@]}" -xdev \( -path /proc -o -path /sys -o -path "$work" \) -prune -o \
    \( -type f -o -type l \) \( -name 'libcublasLt.so.1[0-9]' -o -name cuobjdump -o -name nvdisasm \
    -o -name compute-sanitizer -o -name ncu -o -name nvidia-cuda-mps-control \) -print \
    > "$work/found" 2> /dev/null
}
# found NAME: the first of that name that search_disk saw so far; empty if none.
found() { grep -m 1 "/$1\$" "$work/found" 2> /dev/null || true; }

# tool NAME: its path, from PATH, the CUDA toolkit or elsewhere; empty if it is not there.
tool() {
  command -v "$1" || command -v "/usr/local/cuda/bin/$1" ||
    command -v "/usr/local/cuda/nsight-compute/$1" || found "$1"
}

# find_cublas: sets PASSEL_CUBLASLT_PATH where the plugin would not find the library by itself; fails
# where nobody would.
find_cublas() {
  local name path
  [[ -z ${PASSEL_CUBLASLT_PATH:-} ]] || return 0
  name=$(grep -ao 'libcublasLt\.so\.1[0-9]' "$build/lib/passel/libpassel_cuda.so" | head -n 1)
  [[ -n $name ]] || return 0
  [[ $libraries != *"$name "* ]] || return 0
  ! compgen -G "/usr/local/cuda*/lib64/$name" > /dev/null || return 0
  ! compgen -G "/usr/local/cuda*/targets/x86_64-linux/lib/$name" > /dev/null || return 0
  path=$(found "$name")
  if [[ -z $path ]]; then
    facts+=("cuBLASLt: no $name on this machine, so large layers run on the plugin's own kernels")
    return 1
  fi
  export PASSEL_CUBLASLT_PATH=$path
  facts+=("cuBLASLt: $path, which the loader does not know")
}

# card_fact NAME: of the GPU, as the plugin names it: name uuid capability memory_mib free_mib driver mps.
card_fact() { sed -n "s/^CARD .*\b$1=\([^;]*\);.*/\1/p" "$work/opens.log" | head -n 1; }

# free_memory: MiB of the GPU that are free, asked anew; -1 if it cannot be asked.
free_memory() {
  local mib
  mib=$(timeout "$(at_most 20)" "$build/bin/device_gpu_test" --gtest_filter=Gpu.Card 2> /dev/null |
    sed -n 's/^CARD .*\bfree_mib=\([0-9]*\);.*/\1/p')
  echo "${mib:--1}"
}

# usable_processors: what this process may use, and a quota pays for.
usable_processors() {
  local all quota
  all=$(nproc)
  quota=$(timeout 20 "$build/bin/passel" topology --json 2> /dev/null |
    sed -n 's/^ *"processor_quota": *\([0-9]*\).*/\1/p')
  if [[ -n $quota ]] && (( quota > 0 && quota < all )); then echo "$quota"; else echo "$all"; fi
}

# describe_machine: sentences for the report, of what is there to say them.
describe_machine() {
  local smi cpu ours
  ours=$(compgen -e PASSEL_ | paste -sd ' ')
  [[ -z $ours ]] || facts+=("set in the environment: $ours")
  [[ $(card_fact mps) != yes ]] || facts+=("an MPS server has the GPU: nothing here is without MPS")
  facts+=("$("$build/bin/passel" --version 2> /dev/null | head -n 1); $(uname -srm), $(ldd --version 2> /dev/null | head -n 1 | grep -o '[0-9.]*$' | sed 's/^/C library /')")
  cpu=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)
  facts+=("$(usable_processors) processors, ${cpu:-of a kind that /proc/cpuinfo does not name}")
  facts+=("$(sed -n 's/^CARD //p' "$work/opens.log" | tr ';' ',' | sed 's/,$//' | sed 's/,/, /g')")
  if smi=$(timeout 20 nvidia-smi ${uuid:+-i "$uuid"} --format=csv,noheader \
      --query-gpu=pcie.link.gen.max,pcie.link.width.max,mig.mode.current,compute_mode,persistence_mode,clocks.max.sm,ecc.mode.current 2> /dev/null); then
    facts+=("nvidia-smi: PCIe generation and width, MIG, compute mode, persistence, clock, ECC: $(head -n 1 <<< "$smi")")
  else
    facts+=("nvidia-smi is not there, or does not answer")
  fi
}
