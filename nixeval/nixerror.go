package nixeval

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// ourPrefix marks what eval.nix says itself, as against Nix, nixpkgs and the user.
const ourPrefix = "nixbench: "

// NixError is one complaint of Nix about the hive.
type NixError struct {
	Text string // as Nix shows it: message, place with its source lines, trace
	Raw  string // the message alone
	File string // where, if Nix says so
	Line int
	Col  int
	Drv  string   // the derivation that failed to build, if it is about one
	Log  []string // the end of its build log
	full bool     // the user asked for the trace
}

// Error is the message as a person should see it: in full where it is Nix's own,
// without a trace through eval.nix where it is ours.
func (e *NixError) Error() string {
	text := e.Text
	if ours, ok := strings.CutPrefix(e.Raw, ourPrefix); ok {
		text = ours
	}
	// Nix sets all lines but the first seven columns in, to stand below "error: ".
	text = strings.ReplaceAll(strings.TrimSpace(text), "\n       ", "\n")
	if !e.full {
		text = messageFirst(text)
	}
	if len(e.Log) > 0 {
		text += "\nlast lines of its log:\n  " + strings.Join(e.Log, "\n  ")
	}
	return text
}

// A place in text that was handed to Nix on its command line, with source lines:
// eval.nix, which is no help to the user, or an expression that the user just typed.
var (
	ownPlace   = "at «string»:"
	ownPlaceRE = regexp.MustCompile(`\n+` + ownPlace + `\d+:\d+:(?:\n+ *(?:\d+)? ?\|[^\n]*)*`)
)

// messageFirst puts a short trace, which newer versions of Nix begin with, behind
// the message that it leads to, and leaves out what is not about the user's files.
func messageFirst(text string) string {
	var frames []string // each from its "…" on
	var message []string
	inFrame := false
	for line := range strings.SplitSeq(text, "\n") {
		switch {
		case strings.HasPrefix(line, "… "):
			frames, inFrame = append(frames, line), true
		case strings.HasPrefix(line, "error:"):
			message, inFrame = []string{strings.TrimSpace(strings.TrimPrefix(line, "error:"))}, false
		case strings.HasPrefix(line, "(stack trace truncated"):
			inFrame = false
		case inFrame:
			frames[len(frames)-1] += "\n" + line
		default:
			message = append(message, line)
		}
	}
	out := strings.TrimSpace(ownPlaceRE.ReplaceAllString("\n"+strings.Join(message, "\n"), ""))
	for _, f := range frames {
		if !strings.Contains(f, ownPlace) {
			out += "\n" + strings.TrimSpace(f)
		}
	}
	return out
}

// Hint says what to do about the error, where that is known.
func (e *NixError) Hint() string {
	for _, h := range hints {
		if h.re.MatchString(e.Raw) || h.re.MatchString(e.Text) {
			return h.hint
		}
	}
	return ""
}

var hints = []struct {
	re   *regexp.Regexp
	hint string
}{
	{
		regexp.MustCompile(`is not tracked by Git|getting status of '/nix/store/[^']*-source/[^']*'|path '/nix/store/[^']*-source/[^']*' does not exist|access to .*-source/.* is forbidden|/nix/store/[^' ]*-source/[^' ]*.*No such file`),
		"a flake in a git repository sees only files that git knows; run `git add` on the missing file",
	},
	{
		regexp.MustCompile(`'/[^']*%[0-9A-F]{2}[^']*': No such file|'git' failed[^%]*%[0-9A-F]{2}`),
		"this version of Nix cannot read a flake from a folder whose name has characters such as spaces; rename the folder, or use a newer Nix",
	},
	{
		regexp.MustCompile(`infinite recursion encountered`),
		"something needs its own value to be computed; often a module uses `config` or `nodes` to decide what it imports or which attributes it defines. --show-trace shows the circle",
	},
	{
		regexp.MustCompile(`file 'nixpkgs' was not found in the Nix search path|undefined variable '__nixPath'`),
		"set meta.nixpkgs in the hive, or NIX_PATH=nixpkgs=…",
	},
	{
		regexp.MustCompile(`in pure eval(?:uation)? mode|is forbidden in restricted mode|is not allowed in pure`),
		"a flake is evaluated in pure mode: use its inputs, or pass --impure",
	},
	{
		regexp.MustCompile(`stack overflow|possible infinite recursion`),
		"an expression calls itself without end; --show-trace shows the circle",
	},
	{
		regexp.MustCompile(`cannot connect to (?:daemon|socket)`),
		"start the Nix daemon, or run as the user who owns the store",
	},
	{
		regexp.MustCompile(`(?s)could not read (?:Username|Password)|Permission denied \(publickey|Host key verification failed|terminal prompts disabled`),
		"Nix cannot ask for a password here: use an SSH agent, a git credential helper, or access-tokens in nix.conf, and connect to the host once by hand",
	},
	{
		regexp.MustCompile(`does not exist\. Definition values`),
		"check the spelling of the option, and that the module which declares it is imported",
	},
}

// nixFailure makes one error of a Nix process that failed.
func nixFailure(argv []string, err error, log *nixLog) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrNoNix) {
		return err
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return fmt.Errorf("%s: %w", argv[0], err) // it did not even start
	}
	if n := len(log.errors); n > 0 {
		e := *log.errors[n-1]
		if len(log.plain) > 0 { // what a program that Nix ran, such as git, said about it
			e.Text += "\n" + strings.Join(log.plain, "\n")
		}
		return &e
	}
	text := fmt.Sprintf("%s: %v", argv[0], err)
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL {
		text += " (the kernel may have run out of memory; lower --eval-workers)"
	}
	if len(log.plain) > 0 {
		text += "\n" + strings.Join(log.plain, "\n")
	}
	return &NixError{Text: text, Raw: text}
}

// hiveError is a complaint of ours about the hive that Go found.
func hiveError(format string, args ...any) *NixError {
	text := ourPrefix + fmt.Sprintf(format, args...)
	return &NixError{Text: text, Raw: text}
}

// EvalError says which units could not be evaluated, each with its reason.
type EvalError struct {
	Units map[string]*NixError
}

func (e *EvalError) Error() string {
	names := slices.SortedFunc(maps.Keys(e.Units), compareNatural)
	return fmt.Sprintf("evaluation failed for %s", strings.Join(names, ", "))
}

// BuildError says which units could not be built, and the builds that are to blame.
type BuildError struct {
	Units    []string    // whose closures are missing
	Failures []*NixError // one for each derivation that failed itself
}

func (e *BuildError) Error() string {
	return fmt.Sprintf("build failed for %s", strings.Join(e.Units, ", "))
}

// SetError says that a --set does not fit the hive.
type SetError struct{ msg string }

func (e *SetError) Error() string { return e.msg }

// asSetError tells complaints about the command line from those about the hive.
func asSetError(err error) error {
	var ne *NixError
	if !errors.As(err, &ne) {
		return err
	}
	if msg, ok := strings.CutPrefix(ne.Raw, ourPrefix+"--set "); ok {
		return &SetError{"--set " + strings.TrimSpace(msg)}
	}
	if strings.Contains(ne.Raw, "`--set ") {
		return &SetError{strings.TrimSpace(ne.Raw)}
	}
	return err
}
