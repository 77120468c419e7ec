package player

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// usageScript prints a line for each process whose name matches one of the patterns in its arguments. The line contains the
// pattern, the largest resident memory in KiB since the last call or the start of the process, and the file /proc/PID/stat.
// Writing 5 to clear_refs resets the largest memory to the current memory. That costs nothing, and does not touch the memory
// itself.
const usageScript = `for d in /proc/[0-9]*; do
	read -r name 2> /dev/null < "$d/comm" || continue
	for pattern; do
		case $name in
		$pattern)
			read -r stat 2> /dev/null < "$d/stat" || break
			while read -r key kib unit; do
				[ "$key" != VmHWM: ] || printf '%s|%s|%s\n' "$pattern" "$kib" "$stat"
			done 2> /dev/null < "$d/status"
			{ echo 5 > "$d/clear_refs"; } 2> /dev/null || :
			break ;;
		esac
	done
done
`

// maxComm is the length to which the kernel cuts the name of a process.
const maxComm = 15

// usageTimeout is the time limit for reading the usage on all nodes.
const usageTimeout = 30 * time.Second

// ReadUsage returns the processor time and memory of programs on nodes, by the name of the program. A name may be a pattern of
// the shell. The values are sums over all nodes and processes; programs that do not run are left out. The memory of a process is
// its largest memory since the last call, or since its start. run runs a command on a node.
func ReadUsage(ctx context.Context, run func(ctx context.Context, node string, stdin io.Reader, argv ...string) ([]byte, error), nodes, programs []string) (map[string]Usage, error) {
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	argv := []string{"sh", "-s", "--"}
	full := map[string]string{}
	for _, p := range programs {
		name := p[:min(len(p), maxComm)]
		full[name] = p
		argv = append(argv, name)
	}
	outputs := make([][]byte, len(nodes))
	var g errgroup.Group
	g.SetLimit(8)
	for i, node := range nodes {
		g.Go(func() (err error) {
			outputs[i], err = run(ctx, node, strings.NewReader(usageScript), argv...)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	total := map[string]Usage{}
	for i, out := range outputs {
		for line := range strings.Lines(string(out)) {
			name, u, err := parseUsage(strings.TrimSpace(line))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", nodes[i], err)
			}
			name = full[name]
			total[name] = Usage{CPU: total[name].CPU + u.CPU, Memory: total[name].Memory + u.Memory}
		}
	}
	return total, nil
}

// parseUsage parses a line of usageScript.
func parseUsage(line string) (string, Usage, error) {
	parts := strings.SplitN(line, "|", 3)
	if len(parts) != 3 {
		return "", Usage{}, fmt.Errorf("unexpected line %.100q", line)
	}
	cpu, errCPU := ParseStat(parts[2], false)
	kib, errMemory := strconv.ParseInt(parts[1], 10, 64)
	if errCPU != nil || errMemory != nil {
		return "", Usage{}, fmt.Errorf("unexpected line %.100q", line)
	}
	return parts[0], Usage{CPU: cpu, Memory: kib << 10}, nil
}
