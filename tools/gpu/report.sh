# report.sh - steps, their verdicts, and the report, which is written anew after each of them.
# shellcheck shell=bash disable=SC2154  # gpu_check sets work, out, build, passel, began_at, seconds, end
#
# A verdict is `passed`, `**failed**: why` or `not run: why`. Steps only ever fail for what went wrong
# in them; what this machine has not, and what the time did not reach, is not run.

rows=()      # "| step | verdict |"
measured=()  # RESULT and its like, in the order they came
failed=0
running=     # the step under way
report=
card='unknown card'
facts=()     # sentences about the machine
# Whoever starts a program here ends it, even if we are killed.
leash=()
if setpriv --pdeathsig TERM true 2> /dev/null; then leash=(setpriv --pdeathsig TERM); fi

# write_report: all of it, under its name in one instant.
write_report() {
  local log name state=complete
  [[ -z $finished ]] && state="**unfinished**: after $SECONDS of $seconds s${running:+, in the step \`$running\`}; what is not in the table was not reached"
  {
    printf '# %s\n\n' "$card"
    # shellcheck disable=SC2016
    printf '`tools/gpu_check`, begun %s; %s.\n\n' "$began_at" "$state"
    (( ${#facts[@]} == 0 )) || printf -- '- %s\n' "${facts[@]}"
    printf '\n| step | result |\n|---|---|\n'
    (( ${#rows[@]} == 0 )) || printf '%s\n' "${rows[@]}"
    printf '\n## Measured, and predicted before\n\n'
    (( ${#measured[@]} == 0 )) || printf '%s\n' "${measured[@]}" |
      sed 's/^RESULT /* /; s/^FAILED /* **failed** /; s/^SKIPPED /* not measured: /; s/^CARD /* /'
    if [[ -s $work/ncu.log ]]; then
      # shellcheck disable=SC2016
      printf '\n## Kernels, by ncu\n\n```\n%s\n```\n' "$(grep -E \
        'RunKernel|Duration|Throughput|Occupancy  |Registers Per Thread|Grid Size|Block Size' \
        "$work/ncu.log" | cut -c 1-160 | head -n 100)"
    fi
    for name in ${failed_steps[@]+"${failed_steps[@]}"}; do
      log=$work/$name.log
      # shellcheck disable=SC2016
      [[ ! -f $log ]] || printf '\n## Output of %s, the end\n\n```\n%s\n```\n' "$name" "$(tail -n 40 "$log")"
    done
  } > "$report.new" && mv "$report.new" "$report"
}
failed_steps=()
finished=

# name_report CARD: the report's name has the card in it, once that is known.
name_report() {
  local former=$report name
  card=$1
  name=$(tr -cs 'A-Za-z0-9' '-' <<< "$card" | sed 's/^-//; s/-$//' | tr '[:upper:]' '[:lower:]')
  report=$out/gpu-${began_at%% *}-$(cut -c 12-19 <<< "$began_at" | tr -d :)-$name.md
  [[ -z $former || $former == "$report" ]] || mv "$former" "$report"
  write_report
}

# note STEP VERDICT: a row of the table.
note() {
  rows+=("| $1 | ${2//|/\\|} |")
  say "$1: $2"
  write_report
}
skipped() { ! wanted "$1" || note "$1" "not run: $2"; }
# fails STEP WHY
fails() {
  failed=1
  failed_steps+=("$1")
  note "$1" "**failed**: $2"
}

# wanted STEP: whether it is to be run, by --only.
wanted() { [[ -z $only || ",$only," == *",$1,"* ]]; }

# left: seconds that remain.
left() { echo $(( end - SECONDS )); }
# at_most SECONDS: that, or what is left of the time; 1 at least.
at_most() {
  local rest=$(( end - SECONDS ))
  (( rest > 0 )) || rest=1
  echo $(( $1 < rest ? $1 : rest ))
}

# tell: what the log of the step under way has gained; results are shown and kept at once.
tell() {
  local line=
  while IFS= read -r line <&"$log_fd"; do
    line=$half$line
    half=
    if [[ $line =~ ^(RESULT|FAILED|SKIPPED)\  ]]; then
      measured+=("$line")
      printf '%s\n' "$line"
      fresh=1
    fi
  done
  half+=$line
}

# follow STEP SECONDS COMMAND...: its output in $work/STEP.log; its exit code, 137 if it cannot even be
# killed.
follow() {
  local log=$work/$1.log limit=$2 pid status='' half='' fresh=0 log_fd told=$SECONDS began=$SECONDS
  shift 2
  : > "$log"
  exec {log_fd}< "$log"
  "${leash[@]}" timeout --kill-after=5 "$limit" "$@" > "$log" 2>&1 < /dev/null &
  pid=$!
  while kill -0 "$pid" 2> /dev/null; do
    sleep 0.05
    tell
    if (( fresh && SECONDS > told )); then write_report; fresh=0; told=$SECONDS; fi
    if (( SECONDS - began > limit + 8 )); then status=137; disown "$pid"; break; fi
  done
  if [[ -z $status ]]; then wait "$pid"; status=$?; fi
  tell
  exec {log_fd}<&-
  return "$status"
}

# why LOG: one line that says what failed: the first expectation of a test, the first error of a job, or
# the last line, rather not of figures.
why() {
  local text
  # Of an expectation the sentence that was added to it says most; else what was expected.
  text=$(awk '/^\[ RUN  / { test = $4 }
    /: Failure$/ {
      while (getline > 0 && $0 != "") {
        all = all " " $0
        if ($0 !~ /^ *(Value of|Actual|Expected|Which is)/) said = said " " $0
      }
      print test ":" (said == "" ? all : said)
      exit
    }' "$1")
  [[ -n $text ]] || text=$(sed -n 's/^[-0-9T:.+]* E //p; s/^[-0-9T:.+]* W \(.* exited with \)/\1/p' "$1" | head -n 1)
  [[ -n $text ]] || text=$(grep -v '^\(RESULT\|\[\|$\)' "$1" | tail -n 1)
  [[ -n $text ]] || text=$(tail -n 1 "$1")
  tr -s '[:space:]' ' ' <<< "$text" | cut -c 1-240
}

# step NAME SECONDS COMMAND...: a row, and the exit code; 77 is for what this machine does not allow.
step() {
  local name=$1 limit=$2 status=0 began took
  shift 2
  wanted "$name" || return 0
  if (( $(left) < 3 )); then skipped "$name" "the $seconds s are over"; return 1; fi
  limit=$(at_most "$limit")
  began=$SECONDS
  running=$name
  write_report
  follow "$name" "$limit" "$@" || status=$?
  running=
  took=$(( SECONDS - began ))
  if (( status == 0 )); then
    note "$name" "passed, $took s"
  elif (( status == 124 || (status == 137 && took >= limit) )); then
    fails "$name" "hung: not done after $limit s"
  elif (( status == 77 )); then
    note "$name" "not run: $(why "$work/$name.log")"
  elif (( status > 128 )); then
    fails "$name" "crashed: signal $(( status - 128 )) ($(kill -l $(( status - 128 )))) after $took s"
  else
    fails "$name" "exit code $status after $took s: $(why "$work/$name.log")"
  fi
  return "$status"
}

# print_table: for people, and where only the end of an output is kept.
print_table() {
  local row
  for row in "${rows[@]}"; do
    row=${row#| }
    row=${row% |}
    printf '%-28s %.110s\n' "${row%% | *}" "${row#* | }"
  done
}
