package nixeval

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/modules"
)

//go:embed nix/eval.nix
var evalNix string

// Options contain the hive to evaluate and how to evaluate it.
type Options struct {
	Source     Source
	Sets       []Set
	Facts      string      // path of runtime.json, or empty
	ShowTrace  bool        // pass --show-trace
	Impure     bool        // pass --impure also for a flake
	NixOptions [][2]string // name and value, passed as --option
	Workers    int         // maximum number of concurrent evaluations; 0: derived from cores and memory
	Send       event.Sink
	Run        Runner // nil: Exec
}

// Evaluator runs Nix on one hive.
type Evaluator struct {
	Options
	limits limits

	mu   sync.Mutex
	attr string          // the flake output that contains the hive; empty until it is found
	said map[string]bool // messages that were already sent
}

// New returns an evaluator. It runs no program.
func New(o Options) *Evaluator {
	if o.Run == nil {
		o.Run = Exec
	}
	e := &Evaluator{Options: o, attr: o.Source.Attr, said: map[string]bool{}}
	send := o.Send
	e.Send = func(ev event.Event) {
		if e.isNew(ev) && send != nil {
			send(ev)
		}
	}
	e.limits = machineLimits(o.Workers)
	return e
}

// isNew reports whether an event is to be sent. It drops repeated messages: every evaluation of a
// hive prints the hive's warnings again.
func (e *Evaluator) isNew(ev event.Event) bool {
	if ev.Kind != event.Message {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	key := ev.Level + "\x00" + ev.Text
	seen := e.said[key]
	e.said[key] = true
	return !seen
}

// eval applies a Nix function to the evaluated hive and decodes its JSON into v.
func (e *Evaluator) eval(ctx context.Context, phase event.Phase, function string, v any) error {
	data, err := e.evalJSON(ctx, phase, function)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		// Do not include the data: it may contain the texts of keys.
		return fmt.Errorf("nix eval printed JSON of an unexpected structure: %w", err)
	}
	return nil
}

func (e *Evaluator) evalJSON(ctx context.Context, phase event.Phase, function string) ([]byte, error) {
	if !e.Source.IsFlake() {
		apply, err := e.wrapFunction(function)
		if err != nil {
			return nil, err
		}
		file, err := nixPath(e.Source.File)
		if err != nil {
			return nil, err
		}
		return e.nixEval(ctx, phase, "--impure", "--expr", "("+apply+") (import "+file+")")
	}
	for {
		attr, last := e.flakeAttr()
		apply, err := e.wrapFunction(function) // contains the name of the output, so it differs for each output
		if err != nil {
			return nil, err
		}
		args := []string{"--apply", apply}
		if e.Impure {
			args = append(args, "--impure")
		}
		data, err := e.nixEval(ctx, phase, append([]string{e.Source.Flake + "#" + attr}, args...)...)
		if isMissingOutput(err, attr) && e.Source.Attr == "" {
			if !last {
				e.nextFlakeAttr(attr)
				continue
			}
			return nil, e.noHiveError()
		}
		return data, err
	}
}

// flakeAttr returns the output to try, and whether it is the last candidate.
func (e *Evaluator) flakeAttr() (attr string, last bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.attr == "" {
		e.attr = flakeAttrs[0]
	}
	return e.attr, e.attr == flakeAttrs[len(flakeAttrs)-1]
}

func (e *Evaluator) nextFlakeAttr(after string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, a := range flakeAttrs[:len(flakeAttrs)-1] {
		if a == after && e.attr == after {
			e.attr = flakeAttrs[i+1]
			return
		}
	}
}

func (e *Evaluator) noHiveError() error {
	also := ""
	if file := filepath.Join(e.Source.Dir, "hive.nix"); isFile(file) {
		also = "; to use the hive.nix beside it: -f " + file
	}
	return hiveError("%s has no output with a hive (%s)%s", e.Source, strings.Join(flakeAttrs, ", "), also)
}

func isMissingOutput(err error, attr string) bool {
	var ne *NixError
	return errors.As(err, &ne) && strings.Contains(ne.Raw, "does not provide attribute") && strings.Contains(ne.Raw, "'"+attr+"'")
}

// nixEval runs `nix eval --json` once and returns its output.
func (e *Evaluator) nixEval(ctx context.Context, phase event.Phase, target ...string) ([]byte, error) {
	argv := append([]string{"nix", "eval", "--json"}, e.nixFlags()...)
	argv = append(argv, target...)
	log := newNixLog(e.Send, phase)
	log.full = e.ShowTrace
	// Ignore the output of a failed evaluation: old versions of Nix print part of the JSON before
	// they fail.
	out, err := e.Run(ctx, Command{Argv: argv, Stderr: log.HandleLine, Disposable: true})
	if err != nil {
		return nil, nixFailure(argv, err, log)
	}
	return out, nil
}

// nixFlags returns the flags that nixbench passes to every Nix command.
func (e *Evaluator) nixFlags() []string {
	flags := []string{"--extra-experimental-features", "nix-command flakes", "--log-format", "internal-json"}
	if e.ShowTrace {
		flags = append(flags, "--show-trace")
	}
	for _, o := range e.NixOptions {
		flags = append(flags, "--option", o[0], o[1])
	}
	return flags
}

// wrapFunction returns a Nix function that evaluates the raw hive and applies the given function to
// the result. The text is self-contained: it includes the modules, and fetches the facts by hash,
// which pure mode allows.
func (e *Evaluator) wrapFunction(function string) (string, error) {
	location, err := nixString(e.location())
	if err != nil {
		return "", err
	}
	sets := "[ ]"
	if len(e.Sets) > 0 {
		if sets, err = nixJSON(e.Sets); err != nil {
			return "", err
		}
	}
	runtime, err := e.factsExpression()
	if err != nil {
		return "", err
	}
	module := func(name, text string) string {
		return fmt.Sprintf("{ _file = %q; imports = [ (%s) ]; }", "nixbench/modules/"+name, text)
	}
	return fmt.Sprintf(`raw: (%s) ((%s) {
  hiveOptions = %s;
  deploymentModules = [ %s %s ];
  sharedRoleModule = %s;
  location = %s;
  hermetic = %t;
  runtime = %s;
  sets = %s;
} raw)`,
		function, evalNix,
		module("hive.nix", modules.Hive),
		module("deployment.nix", modules.Deployment),
		module("keys.nix", modules.Keys),
		module("shared-role.nix", modules.SharedRole),
		location, e.Source.IsFlake() && !e.Impure, runtime, sets), nil
}

// location returns the name of the hive for Nix's error messages.
func (e *Evaluator) location() string {
	if e.Source.IsFlake() && e.Source.Attr == "" {
		attr, _ := e.flakeAttr()
		return e.Source.Flake + "#" + attr
	}
	return e.Source.String()
}

// factsExpression returns the Nix expression for the facts.
func (e *Evaluator) factsExpression() (string, error) {
	if e.Facts == "" {
		return "null", nil
	}
	file, err := fetchExpression(e.Facts, "runtime.json")
	if err != nil {
		return "", fmt.Errorf("facts: %w", err)
	}
	return "(builtins.fromJSON (builtins.readFile " + file + "))", nil
}

// fetchExpression returns a Nix expression for a file with the content of the given file. Pure mode
// allows it because it contains the hash. Unlike a command-line argument, the file has no size
// limit.
func fetchExpression(file, name string) (string, error) {
	data, err := durable.Read(file, durable.ConfigSize)
	if err != nil {
		return "", err
	}
	abs, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	// Nix caches the result for a URL for an hour. The hash in the query gives each content its own
	// URL; a file URL ignores the query.
	from, err := nixString((&url.URL{Scheme: "file", Path: abs, RawQuery: hex.EncodeToString(sum[:])}).String())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(`(builtins.fetchurl { name = %q; url = %s; sha256 = %q; })`, name, from, hex.EncodeToString(sum[:])), nil
}
