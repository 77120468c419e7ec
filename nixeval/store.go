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

// queryStore returns the words that a query of nix-store about paths prints.
func (e *Evaluator) queryStore(ctx context.Context, paths []string, query ...string) ([]string, error) {
	argv := slices.Concat([]string{"nix-store"}, query, []string{"--"}, paths)
	out, err := runNix(ctx, e.Run, newNixLog(e.Send, event.Build), Command{Argv: argv})
	return strings.Fields(string(out)), err
}

// Requisites returns the store paths in the closures of paths, in alphabetical order.
func (e *Evaluator) Requisites(ctx context.Context, paths []string) ([]string, error) {
	all, err := e.queryStore(ctx, paths, "--query", "--requisites")
	slices.Sort(all)
	return slices.Compact(all), err
}

// Keep creates symbolic links to store paths and registers them as garbage collector roots. links
// maps the path of a link to a store path. An existing symbolic link with the same path is
// replaced.
func (e *Evaluator) Keep(ctx context.Context, links map[string]string) error {
	return e.addRoots(ctx, links, func(link, path string) []string {
		return []string{"nix-store", "--realise", "--add-root", link, "--", path}
	})
}

// KeepDerivations is like Keep for derivations, which it does not build.
func (e *Evaluator) KeepDerivations(ctx context.Context, links map[string]string) error {
	return e.addRoots(ctx, links, func(link, drv string) []string {
		return []string{"nix-instantiate", "--add-root", link, "--expr", `import "` + drv + `"`} // an expression that imports the file of a derivation yields this derivation, and nix-instantiate makes a root for it
	})
}

// addRoots runs the command that argv returns for each link that is not registered as a root.
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
				// Without %w: the caller would take a wrapped error for an error of the hive.
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

// isRegisteredRoot reports whether link points to path and is registered as a garbage collector root. Without it, a nix-store
// process per link would take most of the time of a run that changes nothing. It returns false for a link that another program
// has created, and if Nix's list is not in autoRoots.
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
