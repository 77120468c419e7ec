package closure

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/nixeval"
)

// missing is the set of a closure's paths that a node does not have.
type missing struct {
	paths []string         // sorted: a path is behind the paths that it refers to
	bytes int64            // unpacked size of these paths
	sizes map[string]int64 // path → unpacked size, for every path of the closure
}

// findMissing returns the paths of the closures that the node does not have. It first checks the paths
// themselves: a valid path has a valid closure, so the local store is not read for an up-to-date node.
func (c *Copier) findMissing(ctx context.Context, node string, conn *remote.Conn, paths []string) (missing, error) {
	if len(paths) == 0 {
		return missing{}, nil
	}
	invalid, err := c.queryInvalid(ctx, node, conn, paths)
	if err != nil || len(invalid) == 0 {
		return missing{}, err
	}
	all, err := c.readClosure(ctx, node, paths)
	if err != nil {
		return missing{}, err
	}
	if invalid, err = c.queryInvalid(ctx, node, conn, all.paths); err != nil {
		return missing{}, err
	}
	return newMissing(all.sizes, invalid), nil
}

func newMissing(sizes map[string]int64, paths []string) missing {
	m := missing{paths: paths, sizes: sizes}
	for _, p := range paths {
		m.bytes += sizes[p]
	}
	return m
}

// closureSize returns the unpacked size of the whole closure in bytes.
func (m missing) closureSize() int64 {
	var sum int64
	for _, size := range m.sizes {
		sum += size
	}
	return sum
}

// queryInvalid returns those of the paths that are not in the node's store. It passes the paths on
// stdin, since thousands of paths are too long for a command line.
func (c *Copier) queryInvalid(ctx context.Context, node string, conn *remote.Conn, paths []string) ([]string, error) {
	argv := []string{"xargs", "nix-store", "--check-validity", "--print-invalid"}
	out, err := conn.Output(ctx, remote.Cmd{Argv: argv, Stdin: strings.NewReader(strings.Join(paths, "\n") + "\n")})
	if err != nil {
		return nil, newQueryError(conn, node, err)
	}
	return strings.Fields(string(out)), nil
}

// closures caches closures, because many nodes get the same closure. A store path's closure never
// changes, so an entry never expires.
type closures struct {
	mu    sync.Mutex
	known map[string]*cachedClosure
}

type cachedClosure struct {
	readLock chan struct{} // a lock: the node that has sent a value reads the closure, and other nodes wait
	paths    []string
	sizes    map[string]int64
}

// entry returns the cache's entry for the paths. It adds an empty entry if the cache has none; readClosure sets
// the entry's paths and sizes.
func (k *closures) entry(paths []string) *cachedClosure {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := strings.Join(paths, "\n")
	if k.known == nil {
		k.known = map[string]*cachedClosure{}
	}
	if k.known[key] == nil {
		k.known[key] = &cachedClosure{readLock: make(chan struct{}, 1)}
	}
	return k.known[key]
}

// readClosure returns the closures of the paths, from the cache or from the local store. If the read
// fails or is cancelled for one node, the next waiting node reads again.
func (c *Copier) readClosure(ctx context.Context, node string, paths []string) (*cachedClosure, error) {
	all := c.known.entry(paths)
	select {
	case all.readLock <- struct{}{}:
		defer func() { <-all.readLock }()
	case <-ctx.Done():
		return nil, &Error{Node: node, Phase: event.Copy, Step: "read the closure", Err: context.Cause(ctx)}
	}
	if all.sizes != nil {
		return all, nil
	}
	list, err := c.queryStore(ctx, node, "-R", paths)
	if err != nil {
		return nil, err
	}
	sizes := make(map[string]int64, len(list))
	// A command line is limited to two megabytes, and a path has about 70 bytes.
	for part := range slices.Chunk(list, 8000) {
		lines, err := c.queryStore(ctx, node, "--size", part)
		if err != nil {
			return nil, err
		}
		if len(lines) != len(part) {
			return nil, &Error{Node: node, Phase: event.Copy, Step: "read the closure",
				Err: fmt.Errorf("nix-store -q --size gave %d sizes for %d paths", len(lines), len(part))}
		}
		for i, p := range part {
			if sizes[p], err = strconv.ParseInt(lines[i], 10, 64); err != nil {
				return nil, &Error{Node: node, Phase: event.Copy, Step: "read the closure", Err: err}
			}
		}
	}
	all.paths, all.sizes = list, sizes
	return all, nil
}

// queryStore runs nix-store -q with the option `what` and returns the words of its output.
func (c *Copier) queryStore(ctx context.Context, node, what string, paths []string) ([]string, error) {
	argv := append([]string{"nix-store", "-q", what}, c.nixFlags()...)
	log := newNixLog(nil)
	out, err := c.runLocal(ctx, nixeval.Command{Argv: append(argv, paths...), Stderr: log.HandleLine})
	if err != nil {
		return nil, newNixError(node, event.Copy, "read the closure", argv, err, log)
	}
	return strings.Fields(string(out)), nil
}
