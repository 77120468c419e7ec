# shellcheck shell=sh disable=SC2034,SC2044,SC2086,SC2254
# usage.sh ROOT PATTERN...: prints a line for each cgroup that contains a process whose name matches a pattern: the pattern, the processor time
# of the cgroup in microseconds, and its largest memory in bytes. ROOT is the folder that contains proc and sys.
#
# A cgroup also contains the children of the process, such as the programs that start containers, and the times of those that have ended. A
# scope of systemd counts as a whole, because it may contain a cgroup for each job. With version 1 of cgroups, systemd gives the cgroups no
# counters: the script then adds up the processes in the cgroup, and ended ones count if their parent has waited for them.
root=$1
shift
seen=
for d in "$root"/proc/[0-9]*; do
	read -r name < "$d/comm" || continue
	for pattern; do
		case $name in $pattern) ;; *) continue ;; esac
		while IFS=: read -r number controllers path; do
			case $controllers in "" | name=systemd) break ;; esac
		done < "$d/cgroup"
		case $path in *.scope/*) path=${path%%.scope/*}.scope ;; esac
		case "$seen " in *" $path "*) break ;; esac
		seen="$seen $path"
		folder=$root/sys/fs/cgroup$path
		used=0 memory=0
		if read -r key used < "$folder/cpu.stat"; then
			read -r memory < "$folder/memory.peak" || read -r memory < "$folder/memory.current" || :
		else
			for pid in $(find "$root/sys/fs/cgroup/systemd$path" -name cgroup.procs -exec cat {} +); do
				read -r stat < "$root/proc/$pid/stat" || continue
				set_stat() { used=$((used + (${12} + ${13} + ${14} + ${15}) * 10000)); }
				set_stat ${stat##*) }
				while read -r key kib unit; do
					[ "$key" != VmHWM: ] || memory=$((memory + kib * 1024))
				done < "$root/proc/$pid/status"
			done
		fi
		printf '%s|%s|%s\n' "$pattern" "$used" "$memory"
		break
	done
done 2> /dev/null
