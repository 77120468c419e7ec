package nixeval

import (
	"context"
	"crypto/sha1" // Nix names indirect roots by SHA-1
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/nixbench/nixbench/deploy/event"
)

// Build builds the closures of units, and returns the names of the units whose closures exist, with
// a [*BuildError] for the other units. A failed build does not stop other builds. One Nix process
// builds all closures, so that Nix schedules the builds. builders is the path of Nix's machines
// file, or empty.
func (e *Evaluator) Build(ctx context.Context, closures map[string]Closure, builders string) ([]string, error) {
	return e.NewBuilds(len(closures), builders, nil).Finish(ctx, closures)
}

// realise runs one Nix process that builds closures. send receives its events.
func (e *Evaluator) realise(ctx context.Context, closures map[string]Closure, builders string, send event.Sink) ([]string, error) {
	units := slices.SortedFunc(maps.Keys(closures), CompareNatural)
	drvs := distinctValues(units, func(u string) string { return closures[u].Drv })
	if len(drvs) == 0 {
		return nil, nil
	}
	// Use nix-store, because the meaning of `nix build X.drv` depends on the version of Nix.
	argv := append([]string{"nix-store", "--realise", "--keep-going", "--no-gc-warning"}, e.nixFlags()...)
	if builders != "" {
		argv = append(argv, "--builders", "@"+builders)
	}
	log := newNixLog(send, event.Build)
	_, err := e.Run(ctx, Command{Argv: slices.Concat(argv, []string{"--"}, drvs), Stderr: log.HandleLine})
	if err == nil {
		return units, nil
	}
	failure := newProcessError(argv, err, log)
	var ne *NixError
	if !errors.As(failure, &ne) {
		return nil, failure
	}
	// If one build fails, nix-store prints no paths. So query which paths exist.
	missing, err := e.findInvalidPaths(ctx, distinctValues(units, func(u string) string { return closures[u].Out }))
	if err != nil {
		return nil, err
	}
	be := &BuildError{Failures: log.buildFailures()}
	if len(be.Failures) == 0 {
		be.Failures = []*NixError{ne}
	}
	var built []string
	for _, u := range units {
		if slices.Contains(missing, closures[u].Out) {
			be.Units = append(be.Units, u)
		} else {
			built = append(built, u)
		}
	}
	if len(be.Units) == 0 {
		return nil, failure // all closures exist, but Nix failed
	}
	return built, be
}

// consequenceRE matches errors that only report the failure of a dependency.
var consequenceRE = regexp.MustCompile(`dependenc(?:y|ies) of derivation|^build of |Reason: \d+ dependenc|^some (?:outputs|builds) `)

// buildFailures returns the errors that are the causes of failed builds, with the last lines of the
// build logs: a builder that failed, a hash mismatch, or a platform that no builder supports.
func (l *nixLog) buildFailures() []*NixError {
	var out []*NixError
	for _, err := range l.errors {
		if consequenceRE.MatchString(err.Raw) {
			continue
		}
		withLog := *err
		withLog.Text, _, _ = strings.Cut(err.Raw, ";\n") // remove the build log, which newer versions of Nix append to the message
		withLog.Log = l.tails[err.Drv]
		out = append(out, &withLog)
	}
	return out
}

// findInvalidPaths returns the paths that do not exist in the store or are incomplete.
func (e *Evaluator) findInvalidPaths(ctx context.Context, paths []string) ([]string, error) {
	argv := append([]string{"nix-store", "--check-validity", "--print-invalid", "--"}, paths...)
	log := newNixLog(e.Send, event.Build)
	out, err := e.Run(ctx, Command{Argv: argv, Stderr: log.HandleLine})
	if err != nil {
		return nil, newProcessError(argv, err, log)
	}
	return strings.Fields(string(out)), nil
}

// Keep creates symbolic links to store paths and registers them as garbage collector roots. links
// maps the path of a link to a store path. An existing symbolic link with the same path is
// replaced.
func (e *Evaluator) Keep(ctx context.Context, links map[string]string) error {
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
			argv := []string{"nix-store", "--realise", "--add-root", link, "--", links[link]}
			log := newNixLog(e.Send, event.Build)
			if _, err := e.Run(ctx, Command{Argv: argv, Stderr: log.HandleLine}); err != nil {
				// Do not wrap the error with %w. It would count as an evaluation error, but the
				// hive has no error.
				return fmt.Errorf("%s: %v", link, newProcessError(argv, err, log))
			}
			return nil
		})
	}
	return g.Wait()
}

// KeepDerivations creates symbolic links to derivations, and registers them as garbage collector roots, without building them. links maps the path of a
// link to a derivation.
func (e *Evaluator) KeepDerivations(ctx context.Context, links map[string]string) error {
	var g errgroup.Group
	g.SetLimit(4)
	for _, link := range slices.Sorted(maps.Keys(links)) {
		g.Go(func() error {
			if isRegisteredRoot(link, links[link]) {
				return nil
			}
			if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
				return err
			}
			drv, err := nixString(links[link])
			if err != nil {
				return err
			}
			argv := []string{"nix-instantiate", "--add-root", link, "--expr", "import " + drv} // the import of a derivation has it as its drvPath
			log := newNixLog(e.Send, event.Build)
			if _, err := e.Run(ctx, Command{Argv: argv, Stderr: log.HandleLine}); err != nil {
				return fmt.Errorf("%s: %v", link, newProcessError(argv, err, log))
			}
			return nil
		})
	}
	return g.Wait()
}

// autoRoots is the folder in which Nix lists indirect garbage collector roots. Each entry is a link
// to a root, and its name is the hash of the root's path.
const autoRoots = "/nix/var/nix/gcroots/auto"

// isRegisteredRoot reports whether link points to path and is registered as a garbage collector
// root. It saves a nix-store process per link, which would take most of the time of a run that
// changes nothing. isRegisteredRoot returns false for a link that another program has created, and
// if Nix's list is not in autoRoots.
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

// distinctValues returns the values of f for the units, each value once.
func distinctValues(units []string, f func(string) string) []string {
	var out []string
	for _, u := range units {
		if v := f(u); !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// Requisites returns the store paths in the closures of paths, in alphabetical order.
func (e *Evaluator) Requisites(ctx context.Context, paths []string) ([]string, error) {
	argv := append([]string{"nix-store", "--query", "--requisites", "--"}, paths...)
	log := newNixLog(e.Send, event.Build)
	out, err := e.Run(ctx, Command{Argv: argv, Stderr: log.HandleLine})
	if err != nil {
		return nil, newProcessError(argv, err, log)
	}
	all := strings.Fields(string(out))
	slices.Sort(all)
	return slices.Compact(all), nil
}
