package closure

import (
	"context"
	"slices"

	"github.com/nixbench/nixbench/deploy/closure/daemon"
)

// missing contains the paths of a closure that a node does not have.
type missing struct {
	paths []string                    // sorted so that each path comes after the paths to which it refers
	bytes int64                       // unpacked size of these paths
	infos map[string]*daemon.PathInfo // the record of every path of the closure
}

func newMissing(infos map[string]*daemon.PathInfo, paths []string) missing {
	m := missing{paths: paths, infos: infos}
	for _, p := range paths {
		m.bytes += m.size(p)
	}
	return m
}

// size returns the unpacked size of a path of the closure in bytes.
func (m missing) size(path string) int64 { return int64(m.infos[path].NarSize) }

// closureSize returns the unpacked size of the whole closure in bytes.
func (m missing) closureSize() int64 {
	var sum int64
	for p := range m.infos {
		sum += m.size(p)
	}
	return sum
}

func (m missing) stepName() string { return "copy " + formatCount(len(m.paths), "path") }

// findMissing returns the paths of the closures that the node does not have. It first asks whether the node has the argument paths
// themselves. If a path is valid, its whole closure is valid. So the local store is not read if the node is up to date.
func (l *link) findMissing(ctx context.Context, paths []string) (missing, error) {
	if len(paths) == 0 {
		return missing{}, nil
	}
	invalid, err := l.queryInvalid(ctx, paths)
	if err != nil || len(invalid) == 0 {
		return missing{}, err
	}
	all, err := l.c.readClosure(ctx, l.node, paths)
	if err != nil {
		return missing{}, err
	}
	if invalid, err = l.queryInvalid(ctx, all.paths); err != nil {
		return missing{}, err
	}
	return newMissing(all.infos, invalid), nil
}

// queryInvalid returns those of the paths that are not in the node's store. It keeps the order of the paths.
func (l *link) queryInvalid(ctx context.Context, paths []string) ([]string, error) {
	var valid []string
	err := l.ask(func() (err error) {
		valid, err = l.daemon.QueryValidPaths(paths, false)
		return err
	})
	if err != nil {
		return nil, l.newError("query the missing paths", l.explain(ctx, err))
	}
	return without(paths, valid), nil
}

// without returns the elements of paths that are not in drop. It keeps the order of the elements.
func without(paths, drop []string) []string {
	isDropped := map[string]bool{}
	for _, p := range drop {
		isDropped[p] = true
	}
	return slices.DeleteFunc(slices.Clone(paths), func(p string) bool { return isDropped[p] })
}
