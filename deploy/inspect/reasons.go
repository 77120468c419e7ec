package inspect

import (
	"context"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/deploy/fleet"
	"github.com/nixbench/nixbench/nixeval"
)

// FailureReasons returns the last log line of each failed unit, by node and unit. It runs one command on each
// node that has failed units.
func FailureReasons(ctx context.Context, f *fleet.Fleet, inspected []fleet.Outcome[activate.Node], parallel int) map[string]map[string]string {
	var nodes []nixeval.Node
	units := map[string][]string{}
	for _, o := range inspected {
		if o.Err == nil && len(o.Value.Failed) > 0 {
			nodes = append(nodes, o.Node)
			units[o.Node.Name] = o.Value.Failed
		}
	}
	out := map[string]map[string]string{}
	for _, o := range fleet.Each(ctx, nodes, parallel, func(ctx context.Context, n nixeval.Node) (map[string]string, error) {
		return readNodeReasons(ctx, f, n.Name, units[n.Name])
	}) {
		if o.Err == nil { // otherwise only the unit's name is shown
			out[o.Node.Name] = o.Value
		}
	}
	return out
}

// readNodeReasons returns, by unit, the last line that each unit of a node has logged itself since its last
// start. It leaves out the lines of systemd, because they are the same for every failure.
func readNodeReasons(ctx context.Context, f *fleet.Fleet, node string, units []string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	const script = `for unit; do
  id=$(systemctl show --property=InvocationID --value -- "$unit")
  printf '%s\t%s\n' "$unit" "$([ -z "$id" ] || journalctl --quiet --no-pager --output=cat --lines=1 "_SYSTEMD_INVOCATION_ID=$id" | tail -n 1 | cut -c 1-600)"
done`
	out, err := f.Run(ctx, node, nil, append([]string{"sh", "-c", script, "sh"}, units...)...)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if unit, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); text != "" {
			all[unit] = text
		}
	}
	return all, nil
}
