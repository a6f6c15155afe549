# pack.sh - one file for a machine that builds nothing: programs, plugin, their libraries, a third of
# MNIST, and gpu_check, which it unpacks and runs. OpenBLAS is a third of it: jobs evaluate with it, and
# the CPU is compared by it; the tests, which come first, do not load it.
# shellcheck shell=bash disable=SC2154  # gpu_check sets build, mnist, programs, ROOT

# first_images FROM SET NUMBER TO: that many of MNIST's images and labels, or all where there are fewer;
# not compressed: xz makes them smaller than gzip did. A file of IDX begins with its kind, the number,
# and for images two sizes, four bytes each.
first_images() {
  local from=$1 set=$2 number=$3 to=$4 kind file here head each
  for kind in images-idx3:16:784 labels-idx1:8:1; do
    IFS=: read -r file head each <<< "$kind"
    file=$set-$file-ubyte
    zcat -f "$from/$file"* > "$to/all" || return 1
    here=$(( ($(stat -c %s "$to/all") - head) / each ))
    (( here < number )) || here=$number
    {
      head -c 4 "$to/all"
      # shellcheck disable=SC2059  # the format is the bytes
      printf "$(printf '\\x%02x' $(( here >> 24 & 255 )) $(( here >> 16 & 255 )) $(( here >> 8 & 255 )) $(( here & 255 )))"
      head -c "$(( head + here * each ))" "$to/all" | tail -c "+9"
    } > "$to/$file" || return 1
  done
  rm "$to/all"
}

# fill FOLDER: what goes into the file.
fill() {
  local folder=$1 file library kind
  mkdir -p "$folder"/{bin,tools,lib/passel,lib/system,lib/fallback} || return 1
  cp "${programs[@]/#/$build/bin/}" "$folder/bin/" || return 1
  cp "$build/lib/passel/libpassel_cuda.so" "$folder/lib/passel/" || return 1
  cp -r "$ROOT/tools/gpu_check" "$ROOT/tools/gpu" "$folder/tools/" || return 1
  if [[ -n $mnist ]]; then
    mkdir "$folder/data" || return 1
    first_images "$mnist" train 20000 "$folder/data" && first_images "$mnist" t10k 10000 "$folder/data" ||
      return 1
  fi
  # Everything but the C library, which must be the machine's own. The compiler's libraries are for
  # machines without any: NVIDIA's tools may want newer ones.
  for file in "${programs[@]/#/$build/bin/}" "$build/lib/passel/libpassel_cuda.so"; do
    ldd "$file" || return 1
  done | awk '$3 ~ /^\// { print $3 }' | sort -u |
    grep -Ev '/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*)\.so' |
    while read -r library; do
      kind=system
      [[ $library != */lib@(stdc++|gcc_s).so* ]] || kind=fallback
      cp -L "$library" "$folder/lib/$kind/" || return 1
    done || return 1
  chmod -R u+w,go-w "$folder"
  strip --strip-unneeded "$folder"/bin/* "$folder"/lib/*/*.so* || return 1
}

# The head of the file: a shell script, behind whose last line the archive begins.
head_of_pack() {
  cat << 'HEAD'
#!/bin/sh
# gpu_check of passel, with all that it needs: unpacks itself into a temporary folder, runs, and removes
# that again. Arguments go to gpu_check (--help says which); its report goes to this folder, or --out.
folder=$(mktemp -d "${TMPDIR:-/tmp}/gpu_check.XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
trap 'exit 143' TERM INT HUP
lines=$(awk '/^THE ARCHIVE BEGINS$/ { print NR + 1; exit }' "$0")
if command -v xz > /dev/null; then
  tail -n "+$lines" "$0" | xz -dc
else
  tail -n "+$lines" "$0" | python3 -c 'import lzma, shutil, sys
shutil.copyfileobj(lzma.open(sys.stdin.buffer), sys.stdout.buffer)'
fi | tar -x --no-same-owner -C "$folder" || {
  echo "gpu_check: cannot unpack $0 into $folder: it takes 150 MB there, and xz or python3; TMPDIR names another place" >&2
  exit 1
}
"$folder/bin/gpu_count" > /dev/null 2>&1
if [ $? = 126 ]; then
  echo "gpu_check: no program may be started in $folder (a file system with noexec?): TMPDIR names another place" >&2
  exit 1
fi
"$folder/tools/gpu_check" --out "$PWD" "$@" &
child=$!
trap 'kill -TERM "$child" 2> /dev/null; wait "$child"; exit 143' TERM INT HUP
wait "$child"
exit
THE ARCHIVE BEGINS
HEAD
}

# pack FILE
pack() {
  local folder status=0
  folder=$(mktemp -d) || return 1
  set -o pipefail
  if fill "$folder" && { head_of_pack && tar -c --owner=0 --group=0 -C "$folder" . | XZ_OPT=${XZ_OPT:--9} xz -T0; } > "$1" &&
     chmod +x "$1"; then
    say "packed $(( $(stat -c %s "$1") / 1000000 )) MB in $1, $([[ -n $mnist ]] && echo with || echo without) MNIST"
  else
    say "could not write $1: the error above says why"
    status=1
  fi
  rm -rf "$folder"
  return "$status"
}
