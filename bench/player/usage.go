package player

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
)

// usageScript prints a line for each cgroup that contains a process whose name matches one of the patterns in its arguments after the
// first one. The line contains the pattern, the processor time of the cgroup in microseconds, and its largest memory in bytes. A cgroup also
// contains the children of the process, such as the programs that start containers, and the times of those that have ended. A scope of
// systemd counts as a whole, because it may contain a cgroup for each job. The first argument is the folder that contains proc and sys.
//
// With version 1 of cgroups, systemd gives the cgroups no counters. Then the script adds up the processes in the cgroup; ended ones
// count if their parent has waited for them.
const usageScript = `root=$1
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
`

// maxComm is the length to which the kernel cuts the name of a process.
const maxComm = 15

// usageTimeout is the time limit for reading the usage on all nodes.
const usageTimeout = 30 * time.Second

// ReadUsage returns the processor time and memory of the cgroups of programs on nodes, by the name of the program. A name may be a pattern
// of the shell. The values are sums over all nodes; programs that do not run are left out. run runs a command on a node.
func ReadUsage(ctx context.Context, run func(ctx context.Context, node string, stdin io.Reader, argv ...string) ([]byte, error), root string, nodes, programs []string) (map[string]Usage, error) {
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	argv, full := []string{"sh", "-s", "--", root}, map[string]string{}
	for _, p := range programs {
		name := p[:min(len(p), maxComm)]
		full[name] = strings.TrimSuffix(p, "-*")
		argv = append(argv, name)
	}
	total, mu := map[string]Usage{}, sync.Mutex{}
	err := eachNode(nodes, func(node string) error {
		out, err := run(ctx, node, strings.NewReader(usageScript), argv...)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for line := range strings.Lines(string(out)) {
			f := strings.Split(strings.TrimSpace(line), "|")
			if len(f) != 3 {
				return fmt.Errorf("%s: unexpected line %.100q", node, line)
			}
			used, errUsed := strconv.ParseUint(f[1], 10, 63)
			memory, errMemory := strconv.ParseUint(f[2], 10, 63)
			if errUsed != nil || errMemory != nil {
				return fmt.Errorf("%s: unexpected line %.100q", node, line)
			}
			u := total[full[f[0]]]
			total[full[f[0]]] = Usage{CPU: u.CPU + float64(used)/1e6, Memory: u.Memory + int64(memory)}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return total, nil
}
