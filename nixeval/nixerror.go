package nixeval

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/nixeval/nixlog"
)

// ourPrefix is the prefix of error messages of eval.nix. It distinguishes them from errors of Nix,
// nixpkgs and the user's hive.
const ourPrefix = "nixbench: "

// NixError is one error of Nix about the hive.
type NixError struct {
	nixlog.Message
	Log       []string // last lines of the derivation's build log
	fullTrace bool     // the message contains the full trace, because --show-trace is set
	killed    bool     // Nix was killed, probably by the kernel because the memory was full
}

// Error returns the message for users, with the last lines of the derivation's build log. A message of Nix contains its
// position and trace; a message of eval.nix contains neither.
func (e *NixError) Error() string {
	text := e.Text
	if message, ok := strings.CutPrefix(e.Raw, ourPrefix); ok {
		text = message
	}
	// Remove the indentation of 7 columns with which Nix aligns lines after "error: ".
	text = strings.ReplaceAll(strings.TrimSpace(text), "\n       ", "\n")
	if !e.fullTrace {
		text = moveMessageFirst(text)
	}
	if len(e.Log) > 0 {
		text += "\nlast lines of its log:\n  " + strings.Join(e.Log, "\n  ")
	}
	return text
}

// isSame reports whether both errors have the same text at the same place.
func (e *NixError) isSame(o *NixError) bool {
	return e.Raw == o.Raw && e.File == o.File && e.Line == o.Line && e.Col == o.Col
}

// Kind implements [failure.Classified].
func (e *NixError) Kind() failure.Kind { return failure.Nix }

// stringPlaceRE matches a position, with its source lines, in a Nix expression that nixbench passes on the command line. Such a
// position does not help the user: it is in nixbench's eval.nix, or in the expression that the user has passed with -E.
var (
	stringPlace   = "at «string»:"
	stringPlaceRE = regexp.MustCompile(`\n+` + stringPlace + `\d+:\d+:(?:\n+ *(?:\d+)? ?\|[^\n]*)*`)
)

// moveMessageFirst returns the text of an error with the message first, and the frames of the trace after the message. Newer
// versions of Nix print the frames first. It removes frames that are not in the user's files.
func moveMessageFirst(text string) string {
	var frames []string // each begins with "…"
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
	out := strings.TrimSpace(stringPlaceRE.ReplaceAllString("\n"+strings.Join(message, "\n"), ""))
	for _, f := range frames {
		if !strings.Contains(f, stringPlace) {
			out += "\n" + strings.TrimSpace(f)
		}
	}
	return out
}

// Hint returns how to fix the error, or an empty string if no hint matches.
func (e *NixError) Hint() string {
	if len(e.Log) > 0 { // a derivation that no builder can build has no log
		return "the full log: nix log " + e.Drv
	}
	for _, h := range hints {
		if re := regexp.MustCompile(h[0]); re.MatchString(e.Raw) || re.MatchString(e.Text) {
			return h[1]
		}
	}
	return ""
}

// hints lists regular expressions for error messages, each with a hint for the user. The first that matches is used.
var hints = [][2]string{
	{`is not tracked by Git|getting status of '/nix/store/[^']*-source/[^']*'|path '/nix/store/[^']*-source/[^']*' does not exist|access to .*-source/.* is forbidden|/nix/store/[^' ]*-source/[^' ]*.*No such file`,
		"a flake in a git repository sees only files that git knows; run `git add` on the missing file"},
	{`'/[^']*%[0-9A-F]{2}[^']*': No such file|'git' failed[^%]*%[0-9A-F]{2}`,
		"this version of Nix cannot read a flake from a folder whose name has characters such as spaces; rename the folder, or use a newer Nix"},
	{`infinite recursion encountered`,
		"a value depends on itself; often a module uses `config` or `nodes` to decide what it imports or which attributes it defines. --show-trace shows the cycle"},
	{`file 'nixpkgs' was not found in the Nix search path|undefined variable '__nixPath'`,
		"set meta.nixpkgs in the hive, or NIX_PATH=nixpkgs=…"},
	{`in pure (?:eval(?:uation)? )?mode|is forbidden in restricted mode`,
		"a flake is evaluated in pure mode: use its inputs, or pass --impure"},
	{`is required to build '|Reason: platform mismatch`,
		"this computer cannot build it: use a remote builder (meta.machinesFile), deployment.buildOnTarget, or boot.binfmt.emulatedSystems of this computer's NixOS"},
	{`stack overflow|possible infinite recursion`,
		"a function calls itself without end; --show-trace shows the cycle"},
	{`cannot connect to (?:daemon|socket)`,
		"start the Nix daemon, or run as the user who owns the store"},
	{`(?s)could not read (?:Username|Password)|Permission denied \(publickey|Host key verification failed|terminal prompts disabled`,
		"Nix cannot ask for a password here: use an SSH agent, a git credential helper, or access-tokens in nix.conf, and connect to the host once manually"},
	{`does not exist\. Definition values`,
		"check the spelling of the option, and that the module which declares it is imported"},
}

// newProcessError returns the error for a failed Nix process. This is a [*NixError] with the last error in the log, or with the
// other output of the process. If the process was cancelled or did not start, it returns err.
func newProcessError(argv []string, err error, log *nixlog.Log) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrNoNix) {
		return err
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return fmt.Errorf("%s: %w", argv[0], err) // the program did not start
	}
	plain := strings.Join(append([]string{""}, log.Plain...), "\n") // such as the output of git, which Nix has run
	if n := len(log.Errors); n > 0 {
		e := &NixError{Message: log.Errors[n-1], fullTrace: slices.Contains(argv, "--show-trace")}
		e.Text += plain
		return e
	}
	text := fmt.Sprintf("%s: %v", argv[0], err)
	ws, ok := exit.Sys().(syscall.WaitStatus)
	killed := ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL
	if killed {
		text += " (the kernel may have run out of memory; lower --eval-workers)"
	}
	text += plain
	return &NixError{Message: nixlog.Message{Text: text, Raw: text}, killed: killed}
}

// newHiveError returns a [*NixError] for an error in the hive that the Go code has detected.
func newHiveError(format string, args ...any) *NixError {
	text := ourPrefix + fmt.Sprintf(format, args...)
	return &NixError{Message: nixlog.Message{Text: text, Raw: text}}
}

// EvalError means that units of the hive (nodes, or roles) could not be evaluated. Units maps each of these units to its error.
type EvalError struct {
	Units map[string]*NixError
}

func (e *EvalError) Error() string {
	return "evaluation failed for " + strings.Join(SortedNames(e.Units), ", ")
}

// Kind implements [failure.Classified].
func (e *EvalError) Kind() failure.Kind { return failure.Evaluation }

// BuildError means that the systems of one or more units of the hive could not be built.
type BuildError struct {
	Units    []string    // units whose closures are missing
	Failures []*NixError // errors of failed derivations, without derivations that only depend on a failed one
}

func (e *BuildError) Error() string {
	return fmt.Sprintf("build failed for %s", strings.Join(e.Units, ", "))
}

// Kind implements [failure.Classified].
func (e *BuildError) Kind() failure.Kind { return failure.Build }

// toSetError converts an error of Nix about an argument of --set to a usage error. It returns any other error unchanged.
func toSetError(err error) error {
	var ne *NixError
	if !errors.As(err, &ne) {
		return err
	}
	if msg, ok := strings.CutPrefix(ne.Raw, ourPrefix+"--set "); ok {
		return failure.NewUsage("--set %s", strings.TrimSpace(msg))
	}
	if strings.Contains(ne.Raw, "`--set ") {
		return failure.NewUsage("%s", strings.TrimSpace(ne.Raw))
	}
	return err
}
