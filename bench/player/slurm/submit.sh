# shellcheck shell=bash
# Functions of the script that submits jobs. `submit` runs sbatch, sets id, and prints the number of the command, the time at which sbatch
# starts, and the id of the job, or ! and an error. `dependency` prints the option for the ids that are not empty: a job that sbatch has refused
# has an empty id.
LC_ALL=C
log=$(mktemp) || exit
trap 'rm -f "$log"' EXIT
submit() {
	key=$1
	shift
	at=$EPOCHREALTIME
	if id=$(sbatch --parsable --job-name=nixbench-bench --output=/dev/null --chdir=/ --no-requeue "$@" < /dev/null 2> "$log"); then
		id=${id%%;*}
		printf '%s %s %s\n' "$key" "$at" "$id"
	else
		id=
		printf '%s %s ! %s\n' "$key" "$at" "$(tail -n 1 "$log")"
	fi
}
dependency() {
	ids=
	for i; do
		[ -z "$i" ] || ids=$ids:$i
	done
	[ -z "$ids" ] || printf %s "--dependency=afterany$ids"
}
