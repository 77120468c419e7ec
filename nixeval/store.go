package nixeval

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/event"
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

// Keep makes garbage collector roots, so that Nix does not delete the store paths. links maps the path of a new symbolic link to
// the store path that it points to. Keep replaces an existing symbolic link with the same path.
func (e *Evaluator) Keep(ctx context.Context, links map[string]string) error {
	return e.addRoots(ctx, links, func(link, path string) []string {
		return []string{"nix-store", "--realise", "--add-root", link, "--", path}
	})
}

// KeepDerivations does the same as Keep for derivations. It does not build them.
func (e *Evaluator) KeepDerivations(ctx context.Context, links map[string]string) error {
	return e.addRoots(ctx, links, func(link, drv string) []string {
		return []string{"nix-instantiate", "--add-root", link, "--expr", `import "` + drv + `"`} // an expression that imports the file of a derivation yields this derivation, and nix-instantiate makes a root for it
	})
}

// addRoots makes a garbage collector root of each link that is not one yet. argv returns the command that does this for a link.
func (e *Evaluator) addRoots(ctx context.Context, links map[string]string, argv func(link, path string) []string) error {
	roots := registeredRoots()
	var g errgroup.Group
	g.SetLimit(4)
	for _, link := range slices.Sorted(maps.Keys(links)) {
		g.Go(func() error {
			if info, err := os.Lstat(link); err == nil && info.Mode()&os.ModeSymlink == 0 {
				return fmt.Errorf("%s exists and is not a link; move it, or run the command in another folder", link)
			}
			if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
				return err
			}
			path := links[link]
			if err := checkStorePaths(path); err != nil {
				return err
			}
			if to, _ := os.Readlink(link); to == path && roots[link] && durable.Exists(path) {
				return nil
			}
			if _, err := runNix(ctx, e.Run, &nixlog.Log{Send: e.Send, Phase: event.Build}, Command{Argv: argv(link, path)}); err != nil {
				// Do not wrap err with %w: the caller would take it for an error of the hive.
				return fmt.Errorf("%s: %v", link, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// autoRoots is the folder in which Nix lists indirect garbage collector roots. Each entry is a link to a root.
const autoRoots = "/nix/var/nix/gcroots/auto"

// registeredRoots returns the paths of all indirect garbage collector roots. Without it, a nix-store process for each link would
// take most of the time of a run that changes nothing. It returns no paths if Nix does not list its roots in autoRoots.
func registeredRoots() map[string]bool {
	roots := map[string]bool{}
	entries, _ := os.ReadDir(autoRoots)
	for _, entry := range entries {
		if root, err := os.Readlink(filepath.Join(autoRoots, entry.Name())); err == nil {
			roots[root] = true
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
