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

// Options say which hive to evaluate, and how.
type Options struct {
	Source     Source
	Sets       []Set
	Facts      string      // file with runtime.json, or empty
	ShowTrace  bool        // pass --show-trace
	Impure     bool        // pass --impure for a flake, too
	NixOptions [][2]string // name and value, passed as --option
	Workers    int         // evaluations at once; 0: what cores and memory allow
	Send       event.Sink
	Run        Runner // nil: Exec
}

// Evaluator runs Nix on one hive.
type Evaluator struct {
	Options
	limits limits

	mu   sync.Mutex
	attr string          // the flake's output, once it is known
	said map[string]bool // messages that were passed on already
}

// New prepares an evaluator; it runs nothing yet.
func New(o Options) *Evaluator {
	if o.Run == nil {
		o.Run = Exec
	}
	e := &Evaluator{Options: o, attr: o.Source.Attr, said: map[string]bool{}}
	send := o.Send
	e.Send = func(ev event.Event) {
		if e.first(ev) && send != nil {
			send(ev)
		}
	}
	e.limits = machineLimits(o.Workers)
	return e
}

// first drops messages that another process of the same run gave before: every
// evaluation of a hive repeats its warnings.
func (e *Evaluator) first(ev event.Event) bool {
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
		// Not the data itself: it may hold the texts of keys.
		return fmt.Errorf("nix eval gave JSON of an unexpected shape: %w", err)
	}
	return nil
}

func (e *Evaluator) evalJSON(ctx context.Context, phase event.Phase, function string) ([]byte, error) {
	if !e.Source.IsFlake() {
		apply, err := e.applied(function)
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
		apply, err := e.applied(function) // names the output, so it is made for each
		if err != nil {
			return nil, err
		}
		args := []string{"--apply", apply}
		if e.Impure {
			args = append(args, "--impure")
		}
		data, err := e.nixEval(ctx, phase, append([]string{e.Source.Flake + "#" + attr}, args...)...)
		if missingOutput(err, attr) && e.Source.Attr == "" {
			if !last {
				e.nextFlakeAttr(attr)
				continue
			}
			return nil, e.noHive()
		}
		return data, err
	}
}

// flakeAttr is the output to try, and whether there is no other after it.
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

func (e *Evaluator) noHive() error {
	also := ""
	if file := filepath.Join(e.Source.Dir, "hive.nix"); isFile(file) {
		also = "; if you mean the hive.nix beside it, say -f " + file
	}
	return hiveError("%s has none of the outputs that hold a hive: %s%s", e.Source, strings.Join(flakeAttrs, ", "), also)
}

func missingOutput(err error, attr string) bool {
	var ne *NixError
	return errors.As(err, &ne) && strings.Contains(ne.Raw, "does not provide attribute") && strings.Contains(ne.Raw, "'"+attr+"'")
}

// nixEval runs `nix eval --json` once.
func (e *Evaluator) nixEval(ctx context.Context, phase event.Phase, target ...string) ([]byte, error) {
	argv := append([]string{"nix", "eval", "--json"}, e.nixFlags()...)
	argv = append(argv, target...)
	log := newNixLog(e.Send, phase)
	log.full = e.ShowTrace
	// The exit status decides: old versions print half of the JSON before they fail.
	out, err := e.Run(ctx, Command{Argv: argv, Stderr: log.line, Disposable: true})
	if err != nil {
		return nil, nixFailure(argv, err, log)
	}
	return out, nil
}

// nixFlags are those that every Nix command of ours takes.
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

// applied is a Nix function from the raw hive to what the given function makes of
// the evaluated one. It is self-contained: modules are part of the text, facts are
// fetched by hash, which pure mode allows.
func (e *Evaluator) applied(function string) (string, error) {
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
	runtime, err := e.runtime()
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

// location is how Nix's messages name the hive.
func (e *Evaluator) location() string {
	if e.Source.IsFlake() && e.Source.Attr == "" {
		attr, _ := e.flakeAttr()
		return e.Source.Flake + "#" + attr
	}
	return e.Source.String()
}

// runtime is the expression for the facts.
func (e *Evaluator) runtime() (string, error) {
	if e.Facts == "" {
		return "null", nil
	}
	file, err := fetched(e.Facts, "runtime.json")
	if err != nil {
		return "", fmt.Errorf("facts: %w", err)
	}
	return "(builtins.fromJSON (builtins.readFile " + file + "))", nil
}

// fetched is an expression for the content of a file, which pure mode allows since
// it names the hash. It has no limit of size, as an argument has.
func fetched(file, name string) (string, error) {
	data, err := durable.Read(file, durable.ConfigSize)
	if err != nil {
		return "", err
	}
	abs, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	// Nix remembers for an hour what it got from a URL. So other contents are another URL;
	// of files, the query means nothing.
	from, err := nixString((&url.URL{Scheme: "file", Path: abs, RawQuery: hex.EncodeToString(sum[:])}).String())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(`(builtins.fetchurl { name = %q; url = %s; sha256 = %q; })`, name, from, hex.EncodeToString(sum[:])), nil
}
