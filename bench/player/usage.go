package player

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"
)

//go:embed usage.sh
var usageScript string

const (
	maxComm      = 15               // the length to which the kernel cuts the name of a process
	usageTimeout = 30 * time.Second // for reading the usage on all nodes
)

// Usage implements [Player]. It reads the processor time and memory of the cgroups of the scheduler's programs, which may be patterns of the
// shell. The values are sums over all nodes; programs that do not run are left out.
func (r *Remote) Usage(ctx context.Context) (map[string]Usage, error) {
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	argv, full := []string{"sh", "-s", "--", ""}, map[string]string{}
	for _, p := range r.Programs {
		name := p[:min(len(p), maxComm)]
		full[name] = strings.TrimSuffix(p, "-*")
		argv = append(argv, name)
	}
	outputs, err := eachNode(r.nodes(), func(node string) ([]byte, error) {
		return r.Cluster.Run(ctx, node, strings.NewReader(usageScript), argv...)
	})
	if err != nil {
		return nil, fmt.Errorf("%s: read the usage: %w", r.Engine, err)
	}
	total := map[string]Usage{}
	for node, out := range outputs {
		for line := range strings.Lines(string(out)) {
			f := strings.Split(strings.TrimSpace(line), "|")
			if len(f) != 3 {
				return nil, fmt.Errorf("%s: read the usage: %s: unexpected line %.100q", r.Engine, node, line)
			}
			used, errUsed := strconv.ParseUint(f[1], 10, 63)
			memory, errMemory := strconv.ParseUint(f[2], 10, 63)
			if errUsed != nil || errMemory != nil {
				return nil, fmt.Errorf("%s: read the usage: %s: unexpected line %.100q", r.Engine, node, line)
			}
			u := total[full[f[0]]]
			total[full[f[0]]] = Usage{CPU: u.CPU + float64(used)/1e6, Memory: u.Memory + int64(memory)}
		}
	}
	return total, nil
}
