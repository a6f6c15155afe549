# kills.sh - kill -9, again and again, of one task of a training job on the GPU.
# shellcheck shell=bash disable=SC2154  # gpu_check sets passel, work, end, small

job=  # its process
job_name=gpu-check-$$

# look: "ps PID" and, for each worker, "worker/K PID LOCAL_STEPS" of the job; nothing if it does not
# answer. An object of a list begins with a brace alone and ends with one as far to the right,
# whatever the order of its keys; objects within it (seconds) belong to it.
look() {
  timeout 5 "$passel" ctl status "$job_name" --json 2> /dev/null | awk '
    { match($0, /[^ ]/); column = RSTART; gsub(/[",]/, "") }
    $1 == "{" { begin = column; task = pid = steps = "" }
    $1 == "task:" { task = $2 }
    $1 == "pid:" && column == 3 { outer = $2 }
    $1 == "pid:" && column > 3 { pid = $2 }
    $1 == "local_steps:" { steps = $2 }
    $1 == "}" && column == begin && task != "" && pid != "" && steps != "" { print task, pid, steps }
    END { if (outer != "") print "ps", outer }'
}
# await TASK OLD_PID: until TASK is another process, and every worker of two has trained since it
# was. Sets `seen` to the last look.
await() {
  local task=$1 old=$2 limit pid first='' a b
  limit=$(( SECONDS + $(at_most 30) ))
  while (( SECONDS < limit )) && kill -0 "$job" 2> /dev/null; do
    seen=$(look)
    pid=$(awk -v task="$task" '$1 == task { print $2 }' <<< "$seen")
    a=$(awk '$1 == "worker/0" { print $3 }' <<< "$seen")
    b=$(awk '$1 == "worker/1" { print $3 }' <<< "$seen")
    if [[ -n $pid && $pid != "$old" && -n $a && -n $b ]]; then
      [[ -n $first ]] || first="$a $b"
      # Whose count is lower began a new life meanwhile.
      if (( a < ${first% *} || b < ${first#* } )); then first="$a $b"; fi
      if (( a > ${first% *} && b > ${first#* } )); then return 0; fi
    fi
    sleep 0.02
  done
  echo "$task was not replaced, or somebody stopped training, in time: $seen"
  return 1
}
# end_job: within 20 s, one way or the other.
end_job() {
  [[ -n $job ]] || return 0
  kill -TERM "$job" 2> /dev/null
  timeout "$(at_most 20)" tail --pid="$job" -f /dev/null || { echo "the job did not end"; kill -KILL "$job"; }
  wait "$job" 2> /dev/null
  job=
}
# memory_back BEFORE: whether as much of the GPU is free as before, within 10 s; sets `memory_now`.
memory_back() {
  local i
  for (( i = 0; i < 5; ++i )); do
    memory_now=$(free_memory)
    (( memory_now < 0 || memory_now + 64 >= $1 )) && return 0
    sleep 1
  done
  return 1
}

# kills TASK WANTED SECONDS LONELY JOB...: kills that task over and over at random moments, and looks
# whether everybody trains on afterwards and the GPU's memory comes back; with LONELY also whether nobody
# else died. The last line begins with REASON. Returns 2 if nothing
# went wrong, but the time was over before 10 kills.
kills() {
  local task=$1 wanted=$2 limit=$3 lonely=$4 before after='not asked for' killed=0 others now pid seen=''
  local good=1 other='^worker/0 ' began=$SECONDS memory_now least deaths=0
  shift 4
  [[ $task != ps ]] || other='^worker/'
  before=$(free_memory)
  "${leash[@]}" "$@" --fake_data --workers 2 --overlap --train_steps 1000000000 --max_restarts 1000 \
    --job_id "$job_name" > "$work/killed_job.log" 2>&1 < /dev/null &
  job=$!
  if await "$task" 0; then
    others=$(grep "$other" <<< "$seen" | cut -d ' ' -f 1,2)
    while (( killed < wanted && SECONDS - began < limit )); do
      pid=$(awk -v task="$task" '$1 == task { print $2 }' <<< "$seen")
      # A ps that dies within a second of its start is started again only after a pause.
      [[ $task != ps ]] || sleep 1
      sleep "0.0$(( RANDOM % 90 + 10 ))"
      kill -KILL "$pid" 2> /dev/null || { echo "$task had ended by itself"; good=0; break; }
      killed=$(( killed + 1 ))
      await "$task" "$pid" || { good=0; break; }
      now=$(grep "$other" <<< "$seen" | cut -d ' ' -f 1,2)
      if [[ $now != "$others" ]]; then
        deaths=$(( deaths + 1 ))
        others=$now
        if (( lonely )); then echo "somebody else died with it: now $now"; good=0; break; fi
      fi
    done
  else
    good=0
  fi
  end_job
  if (( before < 0 )); then
    after='not known: the GPU did not say what is free'
  elif memory_back "$before"; then
    after="$before MiB free before, $memory_now after"
  elif (( shared )) || [[ -n $mps_runs ]]; then
    after="$before MiB free before, $memory_now after, which says little: others, or an MPS server, have the card"
  else
    after="$before MiB free before, only $memory_now after"
    good=0
  fi
  least=$(( wanted < 10 ? wanted : 10 ))
  (( killed >= least )) || echo "fewer than $least kills"
  echo "REASON $killed of $wanted kills in $(( SECONDS - began )) s, $deaths times somebody else died too; GPU memory: $after"
  (( good )) || return 1
  (( killed >= least )) || return 2
}
# kill_step NAME TASK WANTED SECONDS LONELY JOB...: a step; it takes its share of the time that is left
# for all kill steps to come.
kill_steps_to_come=0
kill_step() {
  local name=$1 task=$2 wanted=$3 limit=$4 lonely=$5 share reason
  shift 5
  wanted "$name" || return 0
  # Starting the job, ending it and asking for memory take their time, too.
  share=$(( $(left) / (kill_steps_to_come > 0 ? kill_steps_to_come : 1) - 10 ))
  kill_steps_to_come=$(( kill_steps_to_come - 1 ))
  if (( share < 5 )); then skipped "$name" "the $seconds s are over"; return; fi
  (( limit <= share )) || limit=$share
  running=$name
  write_report
  kills "$task" "$wanted" "$limit" "$lonely" "$@" > "$work/$name.log" 2>&1
  local good=$?
  running=
  reason=$(sed -n 's/^REASON //p' "$work/$name.log" | tail -n 1)
  if (( good == 0 )); then
    note "$name" "passed: $reason"
  elif (( good == 2 )); then
    skipped "$name" "too little time was left: $reason"
  else
    reason="$(grep -v '^REASON' "$work/$name.log" | tail -n 1 | cut -c 1-160); $reason"
    tail -n 20 "$work/killed_job.log" >> "$work/$name.log"
    fails "$name" "$reason"
  fi
}
