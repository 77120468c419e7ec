package deployments

import (
	"context"
	"fmt"
)

// makeGenerations gives the nodes more generations of the system profile. Their links have the system of the first
// apply as their target: an inspection costs the same as with different systems.
func (r *runner) makeGenerations(ctx context.Context) error {
	if err := r.apply(ctx, r.tools[0], hive{line: r.count()}); err != nil {
		return err
	}
	r.tools[0].applied = nil // it deploys again, and records the number of its generation
	return r.runOnNodes(ctx, fmt.Sprintf(`set -eu
cd /nix/var/nix/profiles
system=$(readlink -f system) last=$(readlink system) number=${last#system-} number=${number%%-link}
for i in $(seq $((number + 1)) $((number + %d))); do ln -s "$system" "system-$i-link"; done
ln -sfn "system-$i-link" system`, r.options.Generations))
}
