package closure

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/deploy/remote"
	"github.com/nixbench/nixbench/nixeval"
	"github.com/nixbench/nixbench/nixeval/daemon"
)

// pathSet is a set of paths in the local store, such as the closure of paths, or the paths of a closure that a node does not have.
type pathSet struct {
	paths []string                    // a path comes after the paths that it refers to
	infos map[string]*daemon.PathInfo // the record of at least these paths
}

// size returns the unpacked size of a path of the set in bytes, or 0 for another path.
func (s pathSet) size(path string) int64 {
	if info := s.infos[path]; info != nil {
		return int64(info.NarSize)
	}
	return 0
}

// bytes returns the unpacked size of all paths.
func (s pathSet) bytes() (sum int64) {
	for _, p := range s.paths {
		sum += s.size(p)
	}
	return sum
}

func (s pathSet) stepName() string { return "copy " + event.Count(len(s.paths), "path") }

// records caches what the local store records about paths, because closures share most of their paths. A valid path
// has the same record during a run.
type records struct {
	mu       sync.Mutex // held while the store is read; other nodes wait, and then use the result
	expected []string   // paths that are read together with the first path that is asked for
	known    map[string]*daemon.PathInfo
}

// Expect announces paths that will be copied. When it is found that a node lacks one of them, the closures of all
// expected paths are read together. Expect itself reads nothing.
func (c *Copier) Expect(paths []string) {
	c.records.mu.Lock()
	defer c.records.mu.Unlock()
	c.records.expected = append(c.records.expected, paths...)
}

// readClosure returns the closure of the paths, from the cache or from the local store. If the read fails or is
// cancelled for one node, the next waiting node reads again.
func (c *Copier) readClosure(ctx context.Context, node string, paths []string) (pathSet, error) {
	r := &c.records
	r.mu.Lock()
	defer r.mu.Unlock()
	var err error
	if slices.ContainsFunc(paths, func(p string) bool { return r.known[p] == nil }) {
		err = c.readRecords(ctx, slices.Concat(paths, r.expected))
	}
	all, missing := r.sortClosure(paths)
	if err = cmp.Or(context.Cause(ctx), err, missing); err != nil {
		return pathSet{}, newError(node, "read the closure", err, "")
	}
	return all, nil
}

// readRecords reads the records of the closures of paths from the local store into the cache. It asks one process for
// everything.
func (c *Copier) readRecords(ctx context.Context, paths []string) error {
	store, err := nixeval.OpenStore(ctx, c.Start, c.NixOptions)
	if err != nil {
		return err
	}
	defer store.Close()
	found, err := queryClosure(store, paths, c.records.known)
	if err != nil {
		return err
	}
	maps.Copy(found, c.records.known)
	c.records.known, c.records.expected = found, nil // add all records at once: if a path is in the cache, its closure is, too
	return nil
}

// Sizes returns the unpacked size of each path in the closure of path. It reads the local store, or the store of the
// node if only the node has the path. It returns nil if neither store has the path. If h is nil, the node is not asked.
func (c *Copier) Sizes(ctx context.Context, node string, h remote.Connector, path string) (map[string]int64, error) {
	if durable.Exists(path) {
		if all, err := c.readClosure(ctx, node, []string{path}); err == nil || ctx.Err() != nil {
			return narSizes(all.infos), err
		}
	}
	if h == nil {
		return nil, nil
	}
	var infos map[string]*daemon.PathInfo
	err := c.withLink(ctx, node, h, func(l *link) (err error) {
		if infos, err = queryClosure(l.daemon, []string{path}, nil); err != nil {
			return newError(l.node, "read the closure of the running system", l.explain(ctx, err), "")
		}
		return nil
	})
	if err != nil || infos[path] == nil {
		return nil, err
	}
	return narSizes(infos), nil
}

func narSizes(infos map[string]*daemon.PathInfo) map[string]int64 {
	out := make(map[string]int64, len(infos))
	for p, info := range infos {
		out[p] = int64(info.NarSize)
	}
	return out
}

// queryClosure returns the records of the closures of paths: it asks the daemon first for the paths, then for their references, and so
// on. It does not ask for paths in known, because their closures are also in known. It leaves out paths that are not in the store.
func queryClosure(store *daemon.Conn, paths []string, known map[string]*daemon.PathInfo) (map[string]*daemon.PathInfo, error) {
	found := map[string]*daemon.PathInfo{}
	asked := map[string]bool{}
	for next := paths; len(next) > 0; {
		var ask []string
		for _, p := range next {
			if !asked[p] && known[p] == nil {
				asked[p] = true
				ask = append(ask, p)
			}
		}
		infos, err := store.QueryPathInfos(ask)
		if err != nil {
			return nil, err
		}
		next = nil
		for _, info := range infos {
			found[info.Path] = info
			next = append(next, info.References...)
		}
	}
	return found, nil
}

// sortClosure returns the closure of paths from the cache.
func (r *records) sortClosure(paths []string) (pathSet, error) {
	all := pathSet{infos: map[string]*daemon.PathInfo{}}
	var err error
	var visit func(paths []string)
	visit = func(paths []string) {
		for _, p := range paths {
			if info := r.known[p]; info == nil {
				err = fmt.Errorf("%s is not in the local store", p)
			} else if all.infos[p] == nil {
				all.infos[p] = info
				visit(info.References)
				all.paths = append(all.paths, p)
			}
		}
	}
	visit(paths)
	return all, err
}
