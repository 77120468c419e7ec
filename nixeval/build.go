package nixeval

import (
	"context"
	"crypto/sha1" // Nix's choice for the names of roots
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

// Build realises closures with one Nix process, so that Nix itself decides what
// runs beside what. A failed build stops nothing else: it returns the names of the
// units whose closures are there, and a [*BuildError] for the others. builders is
// a machines file, or empty.
func (e *Evaluator) Build(ctx context.Context, closures map[string]Closure, builders string) ([]string, error) {
	units := slices.SortedFunc(maps.Keys(closures), compareNatural)
	drvs := distinct(units, func(u string) string { return closures[u].Drv })
	e.Send.Send(event.Event{Kind: event.PhaseStart, Phase: event.Build, Total: len(units)})
	built, err := e.build(ctx, units, drvs, closures, builders)
	end := event.Event{Kind: event.PhaseEnd, Phase: event.Build, Done: len(built), Total: len(units), Failed: err != nil}
	end.Text = count(len(distinct(built, func(u string) string { return closures[u].Out })), "closure")
	e.Send.Send(end)
	return built, err
}

func (e *Evaluator) build(ctx context.Context, units, drvs []string, closures map[string]Closure, builders string) ([]string, error) {
	if len(drvs) == 0 {
		return nil, nil
	}
	// nix-store, since `nix build X.drv` means different things in different versions.
	argv := append([]string{"nix-store", "--realise", "--keep-going", "--no-gc-warning"}, e.nixFlags()...)
	if builders != "" {
		argv = append(argv, "--builders", "@"+builders)
	}
	log := newNixLog(e.Send, event.Build)
	_, err := e.Run(ctx, Command{Argv: append(argv, drvs...), Stderr: log.line})
	if err == nil {
		return units, nil
	}
	failure := nixFailure(argv, err, log)
	var ne *NixError
	if !errors.As(failure, &ne) {
		return nil, failure
	}
	// It prints no path when one of them fails, so ask which are there.
	missing, err := e.invalid(ctx, distinct(units, func(u string) string { return closures[u].Out }))
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
		return nil, failure // everything is there, and Nix failed all the same
	}
	return built, be
}

// consequenceRE finds errors that only say that something else failed.
var consequenceRE = regexp.MustCompile(`dependenc(?:y|ies) of derivation|^build of |Reason: \d+ dependenc|^some (?:outputs|builds) `)

// buildFailures are the errors that say why something was not built: a builder that
// failed, with the end of its log, a wrong hash, a system that nobody here can build.
func (l *nixLog) buildFailures() []*NixError {
	var out []*NixError
	for _, err := range l.errors {
		if consequenceRE.MatchString(err.Raw) {
			continue
		}
		withLog := *err
		withLog.Text, _, _ = strings.Cut(err.Raw, ";\n") // newer versions append the log themselves
		withLog.Log = l.tails[err.Drv]
		out = append(out, &withLog)
	}
	return out
}

// invalid tells which of the store paths are not there.
func (e *Evaluator) invalid(ctx context.Context, paths []string) ([]string, error) {
	argv := append([]string{"nix-store", "--check-validity", "--print-invalid"}, paths...)
	log := newNixLog(e.Send, event.Build)
	out, err := e.Run(ctx, Command{Argv: argv, Stderr: log.line})
	if err != nil {
		return nil, nixFailure(argv, err, log)
	}
	return strings.Fields(string(out)), nil
}

// Keep makes a link to each store path that also keeps Nix from collecting it.
// What stood in a link's place is replaced, if it was such a link.
func (e *Evaluator) Keep(ctx context.Context, links map[string]string) error {
	var g errgroup.Group
	g.SetLimit(4)
	for _, link := range slices.Sorted(maps.Keys(links)) {
		g.Go(func() error {
			if info, err := os.Lstat(link); err == nil && info.Mode()&os.ModeSymlink == 0 {
				return fmt.Errorf("%s is in the way: it is not a link; move it, or run elsewhere", link)
			}
			if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
				return err
			}
			if kept(link, links[link]) {
				return nil
			}
			argv := []string{"nix-store", "--realise", links[link], "--add-root", link}
			log := newNixLog(e.Send, event.Build)
			if _, err := e.Run(ctx, Command{Argv: argv, Stderr: log.line}); err != nil {
				// Not %w: the hive is fine, so this is no error of evaluation.
				return fmt.Errorf("%s: %v", link, nixFailure(argv, err, log))
			}
			return nil
		})
	}
	return g.Wait()
}

// autoRoots is where Nix lists the links that are roots, by a hash of their place.
const autoRoots = "/nix/var/nix/gcroots/auto"

// kept tells whether link is a root that keeps path already: a process for each
// would be most of what a run with nothing to do costs. A link that somebody has
// copied here is not on Nix's list; a list that is elsewhere does not have it either.
func kept(link, path string) bool {
	if to, err := os.Readlink(link); err != nil || to != path {
		return false
	}
	if _, err := os.Stat(path); err != nil {
		return false
	}
	sum := sha1.Sum([]byte(link))
	to, err := os.Readlink(filepath.Join(autoRoots, nix32(sum[:])))
	return err == nil && to == link
}

// nix32 is Nix's own base 32, which reads a hash from its end.
func nix32(hash []byte) string {
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

func distinct(units []string, f func(string) string) []string {
	var out []string
	for _, u := range units {
		if v := f(u); !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}
