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
	"slices"
	"strings"
	"sync"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/modules"
)

//go:embed nix/eval.nix
var evalNix string

// Options configure an Evaluator.
type Options struct {
	Source Source
	Sets   []Set
	Facts  string // path of runtime.json, or empty
	// ExtraModules are Nix functions `parts: role: [ modules ]`, which return modules that a node has in addition. parts is that of [Evaluator.Query], and
	// role is null for a named node.
	ExtraModules []string
	// Specialisation is the specialisation whose deployment options the survey reads, or empty.
	Specialisation string

	ShowTrace  bool        // pass --show-trace
	Impure     bool        // evaluate a flake with --impure; hives in files are always evaluated with --impure
	NixOptions [][2]string // name and value, passed as --option
	Workers    int         // maximum number of concurrent evaluations; 0: as many as cores and memory allow
	ChunkSize  int         // number of units that one process evaluates, or Unlimited; 0: what takes the least time with the cores and the free memory
	Send       event.Sink
	Run        Runner // starts programs; nil: Exec
}

// Evaluator evaluates and builds one hive with Nix. It is safe for concurrent use.
type Evaluator struct {
	Options

	mu           sync.Mutex
	attr         string          // flake output to evaluate: the user's, or the first in flakeAttrs that is not known to be missing
	sentMessages map[string]bool // level and text of messages that were sent
}

// New returns an evaluator. It does not run Nix.
func New(o Options) *Evaluator {
	if o.Run == nil {
		o.Run = Exec
	}
	e := &Evaluator{Options: o, attr: o.Source.Attr, sentMessages: map[string]bool{}}
	send := o.Send
	e.Send = func(ev event.Event) {
		if e.isNew(ev) && send != nil {
			send(ev)
		}
	}
	return e
}

// isNew reports whether an event must be sent. It returns false for a message that was sent before,
// because every evaluation of a hive prints the hive's warnings again.
func (e *Evaluator) isNew(ev event.Event) bool {
	if ev.Kind != event.Message {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	key := ev.Level + "\x00" + ev.Text
	seen := e.sentMessages[key]
	e.sentMessages[key] = true
	return !seen
}

// eval applies a Nix function to the evaluated hive and decodes the result into v.
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

// Query applies a Nix function of `parts` (nix/eval.nix), such as the hive as its author wrote it, and decodes the result into v. It evaluates no node.
func (e *Evaluator) Query(ctx context.Context, function string, v any) error {
	return toSetError(e.eval(ctx, event.Survey, "h: ("+function+") h.parts", v))
}

// Module returns a Nix expression for a module with a text. name is its place in messages.
func Module(name, text string) string {
	return fmt.Sprintf("{ _file = %q; imports = [ (%s) ]; }", name, text)
}

// evalJSON applies a Nix function to the evaluated hive and returns the result as JSON. For a flake
// without a selected output, it tries flakeAttrs in order.
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
		apply, err := e.wrapFunction(function) // error messages in the text contain the name of the output
		if err != nil {
			return nil, err
		}
		args := []string{"--apply", apply}
		if e.Impure {
			args = append(args, "--impure")
		}
		data, err := e.nixEval(ctx, phase, append([]string{e.Source.Flake + "#" + attr}, args...)...)
		if e.isMissingOutput(err, attr) && e.Source.Attr == "" {
			if !last {
				e.advanceFlakeAttr(attr)
				continue
			}
			return nil, newHiveError("%s", e.noHiveMessage())
		}
		return data, err
	}
}

// flakeAttr returns the flake output to evaluate, and whether it is the last of flakeAttrs.
func (e *Evaluator) flakeAttr() (attr string, last bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.attr == "" {
		e.attr = flakeAttrs[0]
	}
	return e.attr, e.attr == flakeAttrs[len(flakeAttrs)-1]
}

func (e *Evaluator) advanceFlakeAttr(after string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, a := range flakeAttrs[:len(flakeAttrs)-1] {
		if a == after && e.attr == after {
			e.attr = flakeAttrs[i+1]
			return
		}
	}
}

// noHiveMessage is the error for a flake without a hive and without nixosConfigurations.
func (e *Evaluator) noHiveMessage() string {
	also := ""
	if file := filepath.Join(e.Source.Dir, "hive.nix"); isFile(file) {
		also = "; to use the hive.nix beside it: -f " + file
	}
	return fmt.Sprintf("%s has no output with a hive (%s), and no %s%s", e.Source, strings.Join(hiveOutputs, ", "), configurationsOutput, also)
}

// isMissingOutput reports whether the flake does not have the output, or whether the paths of all outputs were something else.
func (e *Evaluator) isMissingOutput(err error, attr string) bool {
	var ne *NixError
	if !errors.As(err, &ne) {
		return false
	}
	if attr == rootAttrs[1] && ne.Raw == ourPrefix+e.noHiveMessage() {
		return true
	}
	return strings.Contains(ne.Raw, "does not provide attribute") && (strings.Contains(ne.Raw, "'"+attr+"'") || slices.Contains(rootAttrs, attr))
}

// nixEval runs `nix eval --json` once and returns its output.
func (e *Evaluator) nixEval(ctx context.Context, phase event.Phase, target ...string) ([]byte, error) {
	argv := append([]string{"nix", "eval", "--json"}, e.nixFlags()...)
	argv = append(argv, target...)
	log := newNixLog(e.Send, phase)
	log.fullTrace = e.ShowTrace
	// Return no output of a failed evaluation, because old versions of Nix may have printed
	// incomplete JSON.
	out, err := e.Run(ctx, Command{Argv: argv, Stderr: log.HandleLine, Disposable: true})
	if err != nil {
		return nil, newProcessError(argv, err, log)
	}
	return out, nil
}

// nixFlags returns the flags for all commands of Nix that evaluate or build.
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
// the result. The text contains eval.nix and the modules, and fetches the facts by their hash, so
// it can be evaluated in pure mode.
func (e *Evaluator) wrapFunction(function string) (string, error) {
	argument, source, outputs := "raw", e.Source.String(), "null"
	if e.Source.IsFlake() {
		switch attr, _ := e.flakeAttr(); {
		case slices.Contains(rootAttrs, attr):
			outputs = `[ "` + strings.Join(hiveOutputs, `" "`) + `" ]`
		case attr == configurationsOutput:
			source, argument, outputs = e.Source.Flake, "{ "+configurationsOutput+" = raw; }", "[ ]"
		default:
			source = e.Source.Flake + "#" + attr
		}
	}
	source, err := nixString(source)
	if err != nil {
		return "", err
	}
	noHive, err := nixString(e.noHiveMessage())
	if err != nil {
		return "", err
	}
	sets := "[ ]"
	if len(e.Sets) > 0 {
		if sets, err = EncodeJSON(e.Sets); err != nil {
			return "", err
		}
	}
	specialisation := "null"
	if e.Specialisation != "" {
		if specialisation, err = nixString(e.Specialisation); err != nil {
			return "", err
		}
	}
	runtime, err := e.factsExpression()
	if err != nil {
		return "", err
	}
	module := func(name, text string) string { return Module("nixbench/modules/"+name, text) }
	var extra strings.Builder
	for _, f := range e.ExtraModules {
		extra.WriteString("(" + f + ") ")
	}
	return fmt.Sprintf(`raw: (%s) ((%s) {
  hiveOptions = %s;
  deploymentModules = [ %s %s %s ];
  sharedRoleModule = %s;
  source = %s;
  hiveOutputs = %s;
  noHive = %s;
  hermetic = %t;
  runtime = %s;
  specialisation = %s;
  sets = %s;
  extraModules = [ %s];
} (%s))`,
		function, evalNix,
		module("hive.nix", modules.Hive),
		module("deployment.nix", modules.Deployment),
		module("engine.nix", modules.Engine),
		module("keys.nix", modules.Keys),
		module("shared-role.nix", modules.SharedRole),
		source, outputs, noHive, e.Source.IsFlake() && !e.Impure, runtime, specialisation, sets, extra.String(), argument), nil
}

// factsExpression returns a Nix expression for the facts, or null if there are none.
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

// fetchExpression returns a Nix expression that fetches the given file into the store. Pure mode
// allows this, because the expression contains the file's hash. The content is not passed on the
// command line, because the length of an argument is limited.
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
	// Nix caches the file of a URL for an hour. Add the hash as a query, which Nix ignores in a
	// file URL, so that each content has another URL.
	from, err := nixString((&url.URL{Scheme: "file", Path: abs, RawQuery: hex.EncodeToString(sum[:])}).String())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(`(builtins.fetchurl { name = %q; url = %s; sha256 = %q; })`, name, from, hex.EncodeToString(sum[:])), nil
}
