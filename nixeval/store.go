package nixeval

import (
	"context"
	"crypto/sha1" // Nix names indirect roots by SHA-1
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/nixbench/nixbench/deploy/event"
)

// queryStore runs a query of nix-store about paths, and returns the words that it prints.
func (e *Evaluator) queryStore(ctx context.Context, paths []string, query ...string) ([]string, error) {
	argv := slices.Concat([]string{"nix-store"}, query, []string{"--"}, paths)
	out, err := runNix(ctx, e.Run, newNixLog(e.Send, event.Build), Command{Argv: argv})
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
			if isRegisteredRoot(link, links[link]) {
				return nil
			}
			if err := checkStorePaths(links[link]); err != nil {
				return err
			}
			if _, err := runNix(ctx, e.Run, newNixLog(e.Send, event.Build), Command{Argv: argv(link, links[link])}); err != nil {
				// Do not wrap err with %w: the caller would take it for an error of the hive.
				return fmt.Errorf("%s: %v", link, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// autoRoots is the folder in which Nix lists indirect garbage collector roots. Each entry is a link
// to a root, and its name is the hash of the root's path.
const autoRoots = "/nix/var/nix/gcroots/auto"

// isRegisteredRoot reports whether link points to path and is a garbage collector root already. Without this check, a nix-store
// process for each link would take most of the time of a run that changes nothing. It returns false for a link that another
// program has created, and if Nix does not list its roots in autoRoots.
func isRegisteredRoot(link, path string) bool {
	if to, err := os.Readlink(link); err != nil || to != path {
		return false
	}
	if _, err := os.Stat(path); err != nil {
		return false
	}
	sum := sha1.Sum([]byte(link))
	to, err := os.Readlink(filepath.Join(autoRoots, encodeNix32(sum[:])))
	return err == nil && to == link
}

// encodeNix32 encodes a hash in Nix's base 32. The first digit encodes the last bits of the hash.
func encodeNix32(hash []byte) string {
	const digits = "0123456789abcdfghijklmnpqrsvwxyz"
	var out []byte
	for n := (len(hash)*8 - 1) / 5; n >= 0; n-- {
		i, j := n*5/8, n*5%8
		c := int(hash[i]) >> j
		if i+1 < len(hash) {
			c |= int(hash[i+1]) << (8 - j)
		}
		out = append(out, digits[c&31])
	}
	return string(out)
}
