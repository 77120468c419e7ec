package deploy

import (
	"context"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/activate"
	"github.com/nixbench/nixbench/nixeval"
)

// Reasons are the last words of units that failed, by node and unit. It is one command on
// each node that has any.
func FailureReasons(ctx context.Context, f *Fleet, inspected []Outcome[activate.Node], parallel int) map[string]map[string]string {
	var nodes []nixeval.Node
	units := map[string][]string{}
	for _, o := range inspected {
		if o.Err == nil && len(o.Value.Failed) > 0 {
			nodes = append(nodes, o.Node)
			units[o.Node.Name] = o.Value.Failed
		}
	}
	out := map[string]map[string]string{}
	for _, o := range Each(ctx, nodes, parallel, func(ctx context.Context, n nixeval.Node) (map[string]string, error) {
		return f.readFailureReasons(ctx, n.Name, units[n.Name])
	}) {
		if o.Err == nil { // else the unit's name has to do
			out[o.Node.Name] = o.Value
		}
	}
	return out
}

// reasons asks for what the units' last start has said itself; what systemd says of it is
// always the same.
func (f *Fleet) readFailureReasons(ctx context.Context, node string, units []string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	const script = `for unit; do
  id=$(systemctl show --property=InvocationID --value -- "$unit")
  printf '%s\t%s\n' "$unit" "$([ -z "$id" ] || journalctl --quiet --no-pager --output=cat --lines=1 "_SYSTEMD_INVOCATION_ID=$id" | tail -n 1 | cut -c 1-600)"
done`
	out, err := f.runOn(ctx, node, nil, append([]string{"sh", "-c", script, "sh"}, units...)...)
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
