package player

import (
	"context"
	_ "embed"
	"fmt"
	"io"
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
	outputs, err := eachNode(nodes, func(node string) ([]byte, error) { return run(ctx, node, strings.NewReader(usageScript), argv...) })
	if err != nil {
		return nil, err
	}
	total := map[string]Usage{}
	for node, out := range outputs {
		for line := range strings.Lines(string(out)) {
			f := strings.Split(strings.TrimSpace(line), "|")
			if len(f) != 3 {
				return nil, fmt.Errorf("%s: unexpected line %.100q", node, line)
			}
			used, errUsed := strconv.ParseUint(f[1], 10, 63)
			memory, errMemory := strconv.ParseUint(f[2], 10, 63)
			if errUsed != nil || errMemory != nil {
				return nil, fmt.Errorf("%s: unexpected line %.100q", node, line)
			}
			u := total[full[f[0]]]
			total[full[f[0]]] = Usage{CPU: u.CPU + float64(used)/1e6, Memory: u.Memory + int64(memory)}
		}
	}
	return total, nil
}
