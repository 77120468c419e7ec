# Progress of the node: the phase file that nixbench reads, the output of commands, and records of
# completed steps. Definitions only; a program calls start_program first.
set -u
set -o pipefail

records=/var/lib/nixbench/kubernetes # completed steps, one file each; kept over reboots
work=/run/nixbench/kubernetes        # temporary files, readable only by root; deleted by a reboot

# start_program: create the folders and initialize report_phase.
start_program() {
  mkdir -p "$work" "$records"
  chmod 0755 /run/nixbench
  chmod 0700 "$work" "$records"
  attempt=1 phase='' phase_since='' last_report=''
  progress=${progress:-file}
}

# report_phase PHASE [MESSAGE] writes the phase to kubernetes.json and to the journal. It writes nothing if the phase,
# the attempt and the message are those of the last call. With progress=log, it writes only to the journal.
report_phase() {
  local dir
  [ "$1|$attempt|${2:-}" != "$last_report" ] || return 0
  [ "$1" = "$phase" ] || phase_since=$(date -u +%Y-%m-%dT%H:%M:%SZ)
  last_report="$1|$attempt|${2:-}"
  phase=$1
  if [ "$progress" = log ]; then
    echo "${2:-$1}"
    return
  fi
  echo "$1${2:+: $2}"
  # Pass the message in a file, because all users can read the arguments of processes. Remove the join token from the message,
  # because the output of a program may contain it.
  printf '%s' "${2:-}" >"$work/message"
  if [ -s "$JOIN_TOKEN" ]; then cat "$JOIN_TOKEN"; fi >"$work/hide" 2>/dev/null
  for dir in /run/nixbench /var/lib/nixbench; do
    jq -n --arg phase "$phase" --arg since "$phase_since" --argjson attempt "$attempt" \
      --rawfile message "$work/message" --rawfile hide "$work/hide" '
      ($hide | rtrimstr("\n")) as $hide
      | { version: 1, $phase, $since, $attempt,
          message: (if $hide == "" then $message else $message | split($hide) | join("(secret)") end) }' \
      >"$dir/.kubernetes.json.new" &&
      chmod 0644 "$dir/.kubernetes.json.new" &&
      mv "$dir/.kubernetes.json.new" "$dir/kubernetes.json"
  done
  rm -f "$work/hide"
}

# exit_with_error MESSAGE: report MESSAGE as the failure of this program, and exit with an error.
exit_with_error() {
  echo "$1" >&2
  exit 1
}

# run_logged COMMAND...: run a command. Its output goes to the journal, and to a file for summarize_output.
run_logged() {
  "$@" </dev/null 2>&1 | tee "$work/output" >&2
}

# set_output TEXT: set the reason of a failure for summarize_output.
set_output() {
  printf '%s\n' "$1" >"$work/output"
}

# summarize_output: print the last lines of the output of the last command. If the output has errors of kubeadm's preflight
# checks, print these errors instead.
summarize_output() {
  {
    grep -F '[ERROR ' "$work/output" ||
      grep -v -e '^[[:space:]]*$' -e 'see the stack trace' -e 'If you know what you are doing' "$work/output"
  } 2>/dev/null | tail -n 4 | tr -s '[:space:]' ' ' | sed 's/^ //; s/ $//' | cut -c 1-800
}

# write_record NAME TEXT: write a record atomically.
write_record() {
  printf '%s\n' "$2" >"$records/.$1.new" && mv "$records/.$1.new" "$records/$1"
}

# read_record NAME: print a record. Fails if there is none.
read_record() {
  cat "$records/$1" 2>/dev/null
}

# write_time_record NAME: record that a step was completed, and when.
write_time_record() {
  write_record "$1" "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
}
