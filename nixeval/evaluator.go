package nixeval

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/modules"
	"github.com/nixbench/nixbench/nixeval/nixlog"
)

//go:embed nix/eval.nix
var evalNix string

// Options configure an Evaluator.
type Options struct {
	Source Source
	Sets   []Set
	Facts  string // path of runtime.json, or empty
	// ExtraModules are Nix functions `parts: role: [ modules ]`. Each returns modules that a node gets in addition. parts is the
	// argument of the function of [Evaluator.Query]; role is null for a named node.
	ExtraModules []string
	// Specialisation is the specialisation whose deployment options the survey reads, or empty.
	Specialisation string

	ShowTrace  bool        // pass --show-trace
	Impure     bool        // evaluate a flake with --impure; hives in files are always evaluated with --impure
	NixOptions [][2]string // name and value, passed as --option
	Workers    int         // maximum number of concurrent evaluations; 0: as many as cores and memory allow
	ChunkSize  int         // number of units of the evaluation for one process, or Unlimited; 0: the number that takes the least time with the cores and the free memory
	// CacheDir is the folder of the user that keeps the results of evaluations of flakes for later runs, or empty.
	CacheDir string
	// Evaluated replaces evaluations by their results; nil: the hive is evaluated.
	Evaluated *Evaluated
	Send      event.Sink
	Run       Runner // starts programs; nil: Exec
}

// Unlimited as [Options].ChunkSize means that one process evaluates all units of the hive.
const Unlimited = math.MaxInt

// Evaluator evaluates and builds one hive with Nix. It is safe for concurrent use.
type Evaluator struct {
	Options

	heap   int64         // number of bytes that Nix allocates before it collects garbage; 0: its own default
	output *atomic.Int32 // index of the attribute in flakeAttrs that is evaluated, if the user has selected no output
	locked *lockedFlake
}

// New returns an evaluator. It does not run Nix.
func New(o Options) *Evaluator {
	if o.Run == nil {
		o.Run = Exec
	}
	o.Send = sendMessagesOnce(o.Send)
	return &Evaluator{Options: o, output: &atomic.Int32{}, locked: &lockedFlake{}}
}

// sendMessagesOnce returns a sink that leaves out a message that it has sent before. Each evaluation of a hive prints the hive's
// warnings again.
func sendMessagesOnce(send event.Sink) event.Sink {
	var sent sync.Map // by level and text
	return func(e event.Event) {
		if e.Kind == event.Message {
			if _, seen := sent.LoadOrStore([2]string{e.Level, e.Text}, true); seen {
				return
			}
		}
		send.Send(e)
	}
}

// eval applies a Nix function to the evaluated hive and decodes the result into v.
func (e *Evaluator) eval(ctx context.Context, phase event.Phase, function string, v any) error {
	data, err := e.evalJSON(ctx, phase, function)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		// Do not include the JSON in the error: it may contain the texts of keys.
		return fmt.Errorf("nix eval printed JSON of an unexpected structure: %w", err)
	}
	return nil
}

// Query applies a Nix function to `parts` (see nix/eval.nix), and decodes the result into v. `parts` contains for example the hive
// as its author wrote it. No node is evaluated.
func (e *Evaluator) Query(ctx context.Context, function string, v any) error {
	return toSetError(e.eval(ctx, event.Survey, "h: ("+function+") h.parts", v))
}

// Module returns a Nix expression for a module with this text. Error messages of Nix call the module by name.
func Module(name, text string) string {
	return fmt.Sprintf("{ _file = %q; imports = [ (%s) ]; }", name, text)
}

// evalJSON applies a Nix function to the evaluated hive and returns the result as JSON. For a flake without an output that the
// user has selected, it tries flakeAttrs in order.
func (e *Evaluator) evalJSON(ctx context.Context, phase event.Phase, function string) ([]byte, error) {
	if e.Evaluated != nil && e.Evaluated.Survey != nil {
		return nil, errors.New("a plan contains no hive, which is needed here")
	}
	if !e.Source.IsFlake() {
		apply, err := e.wrapFunction(function)
		if err != nil {
			return nil, err
		}
		return e.nixEval(ctx, phase, "--impure", "--expr", "("+apply+") (import "+nixPath(e.Source.File)+")")
	}
	for {
		tried := e.output.Load()
		attr := e.outputAttr()
		apply, err := e.wrapFunction(function) // for each output another text, because its error messages contain the name of the output
		if err != nil {
			return nil, err
		}
		args := []string{"--apply", apply}
		if e.Impure {
			args = append(args, "--impure")
		}
		data, err := e.nixEval(ctx, phase, append([]string{e.Source.Flake + "#" + attr}, args...)...)
		if isMissingOutput(e.Source, err, attr) && e.Source.Attr == "" {
			if int(tried) == len(flakeAttrs)-1 {
				return nil, newHiveError("%s", noHiveMessage(e.Source))
			}
			e.output.CompareAndSwap(tried, tried+1) // unless another evaluation has done this already
			continue
		}
		return data, err
	}
}

// outputAttr returns the attribute of the flake that is evaluated: the output that the user has selected, or the first in flakeAttrs
// that is not known to be missing.
func (e *Evaluator) outputAttr() string { return cmp.Or(e.Source.Attr, flakeAttrs[e.output.Load()]) }

// heapVariable is the environment variable of Nix for the number of bytes that it allocates before it collects garbage.
const heapVariable = "GC_INITIAL_HEAP_SIZE"

// nixEval runs `nix eval --json` once and returns its output.
func (e *Evaluator) nixEval(ctx context.Context, phase event.Phase, target ...string) ([]byte, error) {
	argv := append([]string{"nix", "eval", "--json", "--log-format", "internal-json"}, e.nixFlags()...)
	argv = append(argv, target...)
	c := Command{Argv: argv, Disposable: true}
	if e.heap > 0 && os.Getenv(heapVariable) == "" {
		c.Env = []string{fmt.Sprintf("%s=%d", heapVariable, e.heap)}
	}
	return runNix(ctx, e.Run, &nixlog.Log{Send: e.Send, Phase: phase}, c)
}

// runNix runs a program of Nix and returns its stdout. If the program fails, it returns no stdout, because old versions of Nix may
// have printed incomplete JSON.
func runNix(ctx context.Context, run Runner, log *nixlog.Log, c Command) ([]byte, error) {
	c.Stderr = log.HandleLine
	out, err := run(ctx, c)
	if err != nil {
		return nil, newProcessError(c.Argv, err, log)
	}
	return out, nil
}

// nixFlags returns the flags for all commands of Nix that evaluate, build, or start a REPL.
func (e *Evaluator) nixFlags() []string {
	flags := Flags(e.NixOptions)
	if e.ShowTrace {
		flags = append(flags, "--show-trace")
	}
	return flags
}

// Flags returns the flags for all commands of Nix that allow its new commands and set options.
func Flags(options [][2]string) []string {
	flags := []string{"--extra-experimental-features", "nix-command flakes"}
	for _, o := range options {
		flags = append(flags, "--option", o[0], o[1])
	}
	return flags
}

// wrapFunction returns the text of a Nix function that evaluates a hive, as the user wrote it, and applies the given function to
// the result. The text contains eval.nix and the modules. It fetches the facts by the hash of their file, so that Nix can evaluate
// it in pure mode.
func (e *Evaluator) wrapFunction(function string) (string, error) {
	argument := "raw"
	arguments := map[string]any{
		"source": e.Source.String(), "hiveOutputs": nil, "noHive": noHiveMessage(e.Source), "hermetic": e.isHermetic(),
		"specialisation": nil, "sets": append([]Set{}, e.Sets...),
	}
	if e.Specialisation != "" {
		arguments["specialisation"] = e.Specialisation
	}
	if e.Source.IsFlake() {
		switch attr := e.outputAttr(); {
		case slices.Contains(rootAttrs, attr):
			arguments["hiveOutputs"] = hiveOutputs
		case attr == configurationsOutput:
			argument = "{ " + configurationsOutput + " = raw; }"
			arguments["source"], arguments["hiveOutputs"] = e.Source.Flake, []string{}
		default:
			arguments["source"] = e.Source.Flake + "#" + attr
		}
	}
	runtime, err := factsExpression(e.Facts)
	if err != nil {
		return "", err
	}
	module := func(name, text string) string { return Module("nixbench/modules/"+name, text) }
	var extra strings.Builder
	for _, f := range e.ExtraModules {
		extra.WriteString("(" + f + ") ")
	}
	return fmt.Sprintf(`raw: (%s) ((%s) (%s // {
  hiveOptions = %s;
  deploymentModules = [ %s %s %s ];
  sharedRoleModule = %s;
  runtime = %s;
  extraModules = [ %s];
}) (%s))`,
		function, evalNix, EncodeJSON(arguments),
		module("hive.nix", modules.Hive),
		module("deployment.nix", modules.Deployment),
		module("engine.nix", modules.Engine),
		module("keys.nix", modules.Keys),
		module("shared-role.nix", modules.SharedRole),
		runtime, extra.String(), argument), nil
}

// isHermetic reports whether Nix evaluates the hive in pure mode.
func (e *Evaluator) isHermetic() bool { return e.Source.IsFlake() && !e.Impure }

// factsExpression returns a Nix expression for the file of facts, or the expression null if there is no file.
func factsExpression(facts string) (string, error) {
	if facts == "" {
		return "null", nil
	}
	file, err := fetchExpression(facts, "runtime.json")
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
	hash := hex.EncodeToString(sum[:])
	from := url.URL{Scheme: "file", Path: abs, RawQuery: hash}
	return fmt.Sprintf(`(builtins.fetchurl { name = %q; url = %s; sha256 = %q; })`, name, nixString(from.String()), hash), nil
}
