# common.sh - what tools/quickstart, tools/check and .ci/run share. Sourced, never run.
#
# shellcheck shell=bash

# The repository root, without symbolic links.
ROOT=$(cd -P "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
ME=$(basename "$0")

say() { printf '%s: %s\n' "$ME" "$*" >&2; }
# fail SENTENCE: the work could not be done.
fail() { say "$@"; exit 1; }
# misuse SENTENCE: the command line is wrong.
misuse() { say "$* (see $ME --help)"; exit 2; }

# Whole cores this process may use: the affinity mask, then the cgroup's quota, rounded up.
cores() {
  local count quota period
  count=$(nproc)
  if [[ -r /sys/fs/cgroup/cpu.max ]]; then
    read -r quota period < /sys/fs/cgroup/cpu.max
  elif [[ -r /sys/fs/cgroup/cpu/cpu.cfs_quota_us && -r /sys/fs/cgroup/cpu/cpu.cfs_period_us ]]; then
    quota=$(< /sys/fs/cgroup/cpu/cpu.cfs_quota_us)
    period=$(< /sys/fs/cgroup/cpu/cpu.cfs_period_us)
  fi
  if [[ ${quota:-max} =~ ^[1-9][0-9]*$ && ${period:-} =~ ^[1-9][0-9]*$ ]]; then
    quota=$(( (quota + period - 1) / period ))
    (( quota < count )) && count=$quota
  fi
  echo "$count"
}

# MiB of memory that are free for us: MemAvailable, then what the cgroup has left.
free_mib() {
  local free limit used
  free=$(awk '$1 == "MemAvailable:" { print int($2 / 1024) }' /proc/meminfo)
  if [[ -r /sys/fs/cgroup/memory.max ]]; then
    limit=$(< /sys/fs/cgroup/memory.max)
    used=$(< /sys/fs/cgroup/memory.current)
  elif [[ -r /sys/fs/cgroup/memory/memory.limit_in_bytes ]]; then
    limit=$(< /sys/fs/cgroup/memory/memory.limit_in_bytes)
    used=$(< /sys/fs/cgroup/memory/memory.usage_in_bytes)
  fi
  # An unlimited group of version 1 reports a number near 2^63.
  if [[ ${limit:-max} =~ ^[0-9]{1,16}$ && ${used:-} =~ ^[0-9]+$ ]]; then
    limit=$(( (limit - used) / 1048576 ))
    (( limit < free )) && free=$limit
  fi
  echo "$free"
}

# Parallel compilers: $PASSEL_JOBS, else one per core, but at least 1 GiB of memory for each.
build_jobs() {
  local jobs memory_jobs
  if [[ -n ${PASSEL_JOBS:-} ]]; then
    [[ $PASSEL_JOBS =~ ^[1-9][0-9]{0,3}$ ]] ||
      misuse "PASSEL_JOBS is '$PASSEL_JOBS', but it must be a number from 1 to 9999"
    echo "$PASSEL_JOBS"
    return
  fi
  jobs=$(cores)
  memory_jobs=$(( $(free_mib) / 1024 ))
  (( memory_jobs < 1 )) && memory_jobs=1
  if (( memory_jobs < jobs )); then
    say "building with $memory_jobs jobs instead of $jobs: each needs about 1 GiB of free memory"
    jobs=$memory_jobs
  fi
  echo "$jobs"
}

# Installs what is missing. On another system than Debian 12 tools/setup cannot: it names the
# packages, and we go on, since CMake names any library that is not there.
run_setup() {
  local status=0
  "$ROOT/tools/setup" || status=$?
  if (( status == 2 )); then
    say "going on with the libraries that this system has"
  elif (( status != 0 )); then
    exit "$status"
  fi
}

# lock_build PRESET: one build at a time per folder; unlock_build ends it.
lock_build() {
  mkdir -p "$ROOT/build"
  exec 9> "$ROOT/build/.$1.lock"
  flock --wait 900 9 ||
    fail "another build has held build/.$1.lock for 15 minutes: wait for it or end it, then try again"
}
unlock_build() { exec 9>&-; }

# configure PRESET [-D...]: build/PRESET, with ccache where it is installed.
configure() {
  local preset=$1 home cache=$ROOT/build/$1/CMakeCache.txt args=()
  shift
  if command -v ccache > /dev/null; then
    args+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  fi
  # A tree that was moved or copied brings a cache that CMake refuses.
  if [[ -f $cache ]]; then
    home=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$cache")
    if [[ $home != "$ROOT" ]]; then
      say "build/$preset was made for $home: configuring it anew"
      args+=(--fresh)
    fi
  fi
  (cd "$ROOT" && cmake --preset "$preset" "${args[@]}" "$@") ||
    fail "CMake could not configure build/$preset: its first error above says what is missing"
}

# build PRESET [TARGET...]: everything without a target.
build() {
  local preset=$1 jobs args=()
  shift
  (( $# > 0 )) && args=(--target "$@")
  jobs=$(build_jobs)
  (cd "$ROOT" && cmake --build --preset "$preset" --parallel "$jobs" "${args[@]}") ||
    fail "the build of build/$preset failed: the first error above says where"
}
