package nixeval

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/nixeval/daemon"
	"github.com/nixbench/nixbench/nixeval/nixlog"
)

// queryStore runs a query of nix-store about paths, and returns the words that it prints.
func (e *Evaluator) queryStore(ctx context.Context, paths []string, query ...string) ([]string, error) {
	argv := slices.Concat([]string{"nix-store"}, query, []string{"--"}, paths)
	out, err := runNix(ctx, e.Run, &nixlog.Log{Send: e.Send, Phase: event.Build}, Command{Argv: argv})
	return strings.Fields(string(out)), err
}

// Requisites returns all store paths in the closures of paths, in alphabetical order.
func (e *Evaluator) Requisites(ctx context.Context, paths []string) ([]string, error) {
	all, err := e.queryStore(ctx, paths, "--query", "--requisites")
	slices.Sort(all)
	return slices.Compact(all), err
}

// Realise builds derivations, fetches store paths that are missing, and returns the resulting paths.
func (e *Evaluator) Realise(ctx context.Context, paths []string) ([]string, error) {
	return e.queryStore(ctx, paths, "--realise")
}

// Keep makes garbage collector roots, so that Nix does not delete the store paths. links maps the path of a new symbolic link to
// the store path that it points to. Keep replaces an existing symbolic link with the same path. One program makes all roots; none
// is started if all exist.
func (e *Evaluator) Keep(ctx context.Context, links map[string]string) error {
	var missing []string
	roots := registeredRoots()
	for _, link := range slices.Sorted(maps.Keys(links)) {
		path := links[link]
		if err := checkStorePaths(path); err != nil {
			return err
		}
		if info, err := os.Lstat(link); err == nil && info.Mode()&os.ModeSymlink == 0 {
			return fmt.Errorf("%s exists and is not a link; move it, or run the command in another folder", link)
		}
		if roots[link] != path || !durable.Exists(path) {
			missing = append(missing, link)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	store, err := OpenStore(ctx, nil, e.NixOptions)
	if err != nil {
		return err
	}
	defer store.Close()
	for _, link := range missing {
		if err := addRoot(store, link, links[link]); err != nil {
			return fmt.Errorf("%s: %w", link, cmp.Or(context.Cause(ctx), err))
		}
	}
	return nil
}

// addRoot makes a symbolic link to a store path, and registers the link as a garbage collector root. Before, it protects the path
// until the connection to the store is closed, so that a garbage collection that runs at this moment does not delete the path.
func addRoot(store *daemon.Conn, link, path string) error {
	if err := store.AddTempRoot(path); err != nil {
		return err
	}
	valid, err := store.QueryValidPaths([]string{path}, false)
	if err != nil {
		return err
	}
	if len(valid) == 0 {
		return fmt.Errorf("%s is not in the local store", path)
	}
	if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
		return err
	}
	if err := durable.Symlink(path, link); err != nil {
		return err
	}
	return store.AddIndirectRoot(link)
}

// StartFunc starts a local program and returns a connection to its stdin and stdout.
type StartFunc func(ctx context.Context, c Command) (io.ReadWriteCloser, error)

// OpenStore connects to the local store. options are passed to Nix as --option. start starts nix-daemon; nil: StartPipe.
func OpenStore(ctx context.Context, start StartFunc, options [][2]string) (*daemon.Conn, error) {
	argv := append([]string{"nix-daemon", "--stdio"}, Flags(options)...)
	if start == nil {
		start = StartPipe
	}
	var printed []string
	conn, err := start(ctx, Command{Argv: argv, Stderr: func(line string) { printed = append(printed, line) }})
	if err != nil {
		return nil, err
	}
	store, err := daemon.Open(conn, math.MaxInt64)
	if err != nil { // nix-daemon has ended, because Open has closed conn
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, strings.Join(printed, "\n"))
	}
	return store, nil
}

// autoRoots is the folder in which Nix lists indirect garbage collector roots. Each entry is a link to a root.
const autoRoots = "/nix/var/nix/gcroots/auto"

// registeredRoots returns the store path that each indirect garbage collector root protects, by the path of the root. So a run that
// changes nothing starts no program. It returns none if Nix does not list its roots in autoRoots.
func registeredRoots() map[string]string {
	roots := map[string]string{}
	entries, _ := os.ReadDir(autoRoots)
	for _, entry := range entries {
		root, _ := os.Readlink(filepath.Join(autoRoots, entry.Name()))
		if path, err := os.Readlink(root); err == nil {
			roots[root] = path
		}
	}
	return roots
}

var storePathRE = regexp.MustCompile(`^/nix/store/[0-9a-z]{32}-[0-9A-Za-z+._?=-]+$`)

// IsStorePath reports whether path may be the path of an object in the Nix store.
func IsStorePath(path string) bool { return storePathRE.MatchString(path) }

// checkStorePaths returns an error if one of the paths is not the path of an object in the Nix store. The paths come from an
// evaluation or a file, and become arguments of Nix. They must be checked, because Nix accepts options anywhere in its command
// line.
func checkStorePaths(paths ...string) *NixError {
	for _, path := range paths {
		if !IsStorePath(path) {
			return newHiveError("%q is not a store path", path)
		}
	}
	return nil
}
