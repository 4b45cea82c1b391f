# Functions for `<!-- setup: COMMAND -->` in pages whose session is a demo.
# shellcheck shell=bash

DEMO="$HOME/.local/state/trimtab/demo"
HERE=$(dirname "${BASH_SOURCE[0]}")

# Repeat a command until its output matches a pattern, for at most 60 s: await PATTERN COMMAND ...
await() {
  local pattern=$1 printed end=$((SECONDS + 60))
  shift
  while ((SECONDS < end)); do
    printed=$("$@" 2>&1) && grep -qE -- "$pattern" <<<"$printed" && return
    sleep 0.5
  done
  printf '%s has not printed %s:\n%s\n' "$*" "$pattern" "$printed"
  return 1
}

# Print a value of a JSON object: value KEY
value() {
  python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"
}

# Give an order to the fake hosts: hosts ORDER ...
hosts() {
  python3 -m sim_backend.fake_server ctl --socket "$DEMO/hosts.socket" "$@"
}

# Change the controller's file, then restart the controller: reconfigure SED-SCRIPT [FILE-TO-APPEND]
reconfigure() {
  local pid
  sed -i "$1" "$DEMO/config/controller.toml"
  [ $# -lt 2 ] || cat "$2" >>"$DEMO/config/controller.toml"
  pid=$(trimtab demo status -o json | value controller_pid)
  kill -9 "$pid"
  while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
  await ' up 6' trimtab status
}

# Write the file of a job of 40 minutes that fills half a host: job_file FILE [WITHIN_S]
job_file() {
  cat >"$1" <<END
name = "$(basename "$1" .toml)"
vcpus = 2
template = "fake:work=9600000;max=4000"

[[stages]]
work_mcycles = 9_600_000
max_mhz = 4_000
memory_mib = 2_048
END
  [ $# -lt 2 ] || printf '\n[goal]\nwithin_s = %s\n' "$2" >>"$1"
}

# Write the file of the web application in the examples, without what a demo does not have: web_file FILE
web_file() {
  sed '/^template/d; /^required/d; /^metrics_url/d; /^node_anti/d; s/^max_inst.*/max_instances = 3/' examples/web.toml >"$1"
}

# Decide more often: decide_every S [FILE-TO-APPEND]
decide_every() {
  reconfigure "s/^decide_s.*/decide_s = $1.0/; s/^decide_limit_s.*/decide_limit_s = 3.0/" "${@:2}"
}

# Print the process id of a host's agent: agent_pid HOST
agent_pid() {
  trimtab demo status | sed -n "s/^$1 .* \\([0-9]\\+\\) *$/\\1/p"
}

# Report measurements of a web application, by the function `body` of a page's program, or "-": push_web PROGRAM APP SAMPLE
push_web() {
  python3 "$HERE/push.py" "$DEMO/bus.socket" "$@"
}

# Submit the job of a file under several names, and wait until the last one runs: run_jobs FILE NAME ...
run_jobs() {
  local file=$1 name
  shift
  for name in "$@"; do trimtab jobs submit --no-wait --name "$name" "$file" >/dev/null 2>&1 || return; done
  await "^$name#0 +host[0-9]+ +running" trimtab vms list
}

# Wait until something waits for approval, and print its number.
waiting_plan() {
  await 'waiting approval +yes' trimtab plan show && trimtab plan show -o json | value number
}
