# machine.sh - what a machine with a GPU has of NVIDIA's tools and libraries, and which GPUs.
# shellcheck shell=bash disable=SC2154  # gpu_check sets work, build

# keep_gpus_awake: where no daemon does, the driver starts anew for each program, seconds each time,
# unless somebody holds the device.
keep_gpus_awake() {
  local device
  for device in /dev/nvidia[0-9]*; do
    [[ ! -c $device ]] || { exec {awake_fd}<> "$device"; } 2> /dev/null || true
  done
}

# search_disk: where Python environments and toolkits keep what PATH and the loader do not know; it
# takes a while, so others look at $work/found when they need it.
search_disk() {
  timeout 60 find "${PASSEL_GPU_SEARCH:-/}" -xdev \( -path /proc -o -path /sys -o -path "$work" \) -prune -o \
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

# find_cublas: sets PASSEL_CUBLASLT_PATH where the plugin would not find the library by itself.
find_cublas() {
  local name path
  [[ -z ${PASSEL_CUBLASLT_PATH:-} ]] || return 0
  name=$(grep -ao 'libcublasLt\.so\.[0-9]*' "$build/lib/passel/libpassel_cuda.so" | head -n 1)
  ! ldconfig -p 2> /dev/null | grep -q "$name" || return 0
  ! compgen -G "/usr/local/cuda*/lib64/$name" > /dev/null || return 0
  ! compgen -G "/usr/local/cuda*/targets/x86_64-linux/lib/$name" > /dev/null || return 0
  path=$(found "$name")
  if [[ -n $path ]]; then
    export PASSEL_CUBLASLT_PATH=$path
    facts+=("cuBLASLt: $path, which the loader does not know")
  else
    facts+=("cuBLASLt: no $name on this machine, so large layers run on the plugin's own kernels")
  fi
}

# card_fact NAME: of the GPU, as the plugin names it: name uuid capability memory_mib free_mib driver mps.
card_fact() { sed -n "s/^CARD .*\b$1=\([^;]*\);.*/\1/p" "$work/opens.log" | head -n 1; }

# free_memory: MiB of the GPU that are free, asked anew; -1 if it cannot be asked.
free_memory() {
  local mib
  mib=$(timeout 20 "$build/bin/device_gpu_test" --gtest_filter=Gpu.Card 2> /dev/null |
    sed -n 's/^CARD .*\bfree_mib=\([0-9]*\);.*/\1/p')
  echo "${mib:--1}"
}

# describe_machine: sentences for the report, of what is there to say them.
describe_machine() {
  local smi cpu
  facts+=("$("$build/bin/passel" --version 2> /dev/null | head -n 1); $(uname -srm), $(ldd --version 2> /dev/null | head -n 1 | grep -o '[0-9.]*$' | sed 's/^/C library /')")
  cpu=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)
  facts+=("$(nproc) processors, ${cpu:-of a kind that /proc/cpuinfo does not name}")
  facts+=("$(sed -n 's/^CARD //p' "$work/opens.log" | tr ';' ',' | sed 's/,$//' | sed 's/,/, /g')")
  if smi=$(timeout 20 nvidia-smi ${uuid:+-i "$uuid"} --format=csv,noheader \
      --query-gpu=pcie.link.gen.max,pcie.link.width.max,mig.mode.current,compute_mode,persistence_mode,clocks.max.sm,ecc.mode.current 2> /dev/null); then
    facts+=("nvidia-smi: PCIe generation and width, MIG, compute mode, persistence, clock, ECC: $(head -n 1 <<< "$smi")")
  else
    facts+=("nvidia-smi is not there, or does not answer")
  fi
}
