package nixeval

import (
	"context"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/nixeval/nixlog"
)

// Build builds the closures of units (sets of nodes that share one system). It returns the names of the units whose closures
// exist, and a [*BuildError] for the other units. A failed build does not stop other builds. One Nix process builds all closures,
// so that Nix schedules the builds. builders is the path of Nix's machines file (a list of remote builders), or empty.
func (e *Evaluator) Build(ctx context.Context, closures map[string]Closure, builders string) ([]string, error) {
	return e.NewBuilds(len(closures), builders, nil).Finish(ctx, closures)
}

// realise builds the closures of units with one Nix process, whose events go to send. It returns what [Evaluator.Build] returns. The
// process does not build closures that exist and have a garbage collector root; if no others are left, no process is started.
func (e *Evaluator) realise(ctx context.Context, closures map[string]Closure, builders string, send event.Sink) ([]string, error) {
	units := SortedNames(closures)
	isGiven := func(u string) bool { return e.Evaluated != nil && e.Evaluated.Systems[u] == closures[u] } // its derivation may be on another computer
	kept := slices.Collect(maps.Values(registeredRoots()))
	rest := slices.DeleteFunc(slices.Clone(units), func(u string) bool { return slices.Contains(kept, closures[u].Out) && durable.Exists(closures[u].Out) })
	drvs := distinctValues(rest, func(u string) string {
		if isGiven(u) {
			return closures[u].Out
		}
		return closures[u].Drv
	})
	if len(drvs) == 0 {
		return units, nil
	}
	// Use nix-store and not `nix build X.drv`, whose meaning depends on the version of Nix.
	argv := append([]string{"nix-store", "--realise", "--keep-going", "--no-gc-warning", "--log-format", "internal-json"}, e.nixFlags()...)
	if builders != "" {
		argv = append(argv, "--builders", "@"+builders)
	}
	log := &nixlog.Log{Send: send, Phase: event.Build}
	_, failure := runNix(ctx, e.Run, log, Command{Argv: slices.Concat(argv, []string{"--"}, drvs)})
	if failure == nil {
		return units, nil
	}
	var ne *NixError
	if !errors.As(failure, &ne) {
		return nil, failure
	}
	// nix-store prints no paths if one build has failed. So ask nix-store which paths exist.
	missing, err := e.queryStore(ctx, distinctValues(units, func(u string) string { return closures[u].Out }), "--check-validity", "--print-invalid")
	if err != nil {
		return nil, err
	}
	be := &BuildError{Failures: BuildFailures(log)}
	var built []string
	for _, u := range units {
		if slices.Contains(missing, closures[u].Out) {
			be.Units = append(be.Units, u)
			if isGiven(u) {
				be.Failures = append(be.Failures, newHiveError("%s is neither in the local store nor in a substituter; copy it here (nix copy), or add --nix-option extra-substituters URL", closures[u].Out))
			}
		} else {
			built = append(built, u)
		}
	}
	if len(be.Units) == 0 {
		return nil, failure // all closures exist, but Nix failed
	}
	if len(be.Failures) == 0 {
		be.Failures = []*NixError{ne}
	}
	return built, be
}

// consequenceRE matches Nix's errors about a derivation that was not built because another derivation failed.
var consequenceRE = regexp.MustCompile(`dependenc(?:y|ies) of derivation|^build of |Reason: \d+ dependenc|^some (?:outputs|builds) `)

// BuildFailures returns the errors that caused the failed builds, with the last lines of the build logs. Such an error is a
// builder that failed, a hash mismatch, or a platform that no builder supports.
func BuildFailures(l *nixlog.Log) []*NixError {
	var out []*NixError
	for _, e := range l.Errors {
		if consequenceRE.MatchString(e.Raw) {
			continue
		}
		e.Text, _, _ = strings.Cut(e.Raw, ";\n") // without the build log, which newer versions of Nix append to the message
		out = append(out, &NixError{Message: e, Log: l.Tail(e.Drv)})
	}
	return out
}

// distinctValues calls f for each unit, and returns each different result once.
func distinctValues(units []string, f func(string) string) []string {
	var out []string
	for _, u := range units {
		if v := f(u); !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}
