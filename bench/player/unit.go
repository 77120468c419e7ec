package player

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/engine"
)

// Unit is a program of a player, such as a watch, that runs in a transient systemd unit on a node, because a command over SSH
// ends with its connection. The program writes lines into a file.
type Unit struct {
	Name   string                                                                     // name of the systemd unit
	Folder string                                                                     // the folder with all files of the program
	Run    func(ctx context.Context, stdin io.Reader, argv ...string) ([]byte, error) // runs a command on the node
}

// File is the file into which the program writes its lines.
func (u Unit) File() string { return u.Folder + "/lines" }

// ErrorFile is the file into which the program writes errors. It need not exist.
func (u Unit) ErrorFile() string { return u.Folder + "/errors" }

// StopScript returns the script that stops the program and removes its files. It succeeds if there is no program.
func (u Unit) StopScript() string {
	return `systemctl stop ` + u.Name + ` 2> /dev/null
if systemctl --quiet is-active ` + u.Name + `; then
	echo "` + u.Name + ` does not stop" >&2
	exit 1
fi
rm -rf ` + u.Folder + "\n"
}

func (u Unit) RunScript(ctx context.Context, script string) ([]byte, error) {
	return u.Run(ctx, strings.NewReader(script), "sh", "-s")
}

// Stop stops the program, also if ctx has ended. It returns no error: [Player.Clean] reports a program that still runs.
func (u Unit) Stop(ctx context.Context) {
	ctx, cancel := lastContext(ctx)
	defer cancel()
	_, _ = u.RunScript(ctx, u.StopScript())
}

// Check returns an error if the program has ended. If the node cannot be reached, Check returns nil, because the next read of lines
// reports that.
func (u Unit) Check(ctx context.Context) error {
	out, err := u.RunScript(ctx, "systemctl --quiet is-active "+u.Name+" || { echo ended; tail --lines=1 "+u.ErrorFile()+" || :; }\n")
	_, problem, hasEnded := strings.Cut(string(out), "ended\n")
	if err != nil || !hasEnded {
		return nil
	}
	return fmt.Errorf("%s has ended: %s", u.Name, cmp.Or(strings.TrimSpace(problem), "it printed no error"))
}

// Tail reads the lines that a program writes.
type Tail[T any] struct {
	Unit
	What  string // for errors: the action that fails if the lines cannot be read
	Parse func(line []byte) (T, error)
	Poll  time.Duration // time between two reads
	Quiet time.Duration // time without new lines after which Tail checks that the program still runs
	Wait  bool          // a read first waits for a new line, at most for a second

	offset int
	active time.Time // when the program last wrote a line or was seen running
}

// waitScript waits until the file $1 has more than $2 bytes, at most for a second. tail wakes up when the file grows.
const waitScript = `exec 3< <(exec tail --follow --bytes=+$(($2 + 1)) "$1")
tail=$!
read -r -t 1 -u 3 _
kill "$tail"
`

// read returns the lines after the first offset bytes, and the new offset.
func (t *Tail[T]) read(ctx context.Context, offset int) (lines []T, next int, err error) {
	out, err := t.Run(ctx, nil, "tail", "--bytes=+"+strconv.Itoa(offset+1), t.File())
	whole := out[:bytes.LastIndexByte(out, '\n')+1] // the last line may be incomplete
	for text := range bytes.Lines(whole) {
		if err != nil {
			break
		}
		var l T
		l, err = t.Parse(bytes.TrimSuffix(text, []byte("\n")))
		lines = append(lines, l)
	}
	if err != nil {
		return nil, offset, fmt.Errorf("%s: %w", t.What, err)
	}
	return lines, offset + len(whole), nil
}

// Begin waits until the program has written a line for which isFirst returns true. The first line of the next reading is the first
// line of the file.
func (t *Tail[T]) Begin(ctx context.Context, isFirst func(T) bool) error {
	t.offset, t.active = 0, time.Now()
	return Poll(ctx, min(t.Poll, engine.PollInterval), func() (bool, error) {
		lines, _, err := t.read(ctx, 0)
		if err != nil || slices.ContainsFunc(lines, isFirst) {
			return err == nil, err
		}
		return false, t.Check(ctx)
	})
}

// Read returns [Loop.Read], which calls add with new lines.
func (t *Tail[T]) Read(add func([]T)) func(last bool) Reading {
	return func(last bool) Reading {
		from := t.offset
		return func(ctx context.Context) (func() error, error) {
			if t.Wait && !last { // the next read reports an error
				_, _ = t.Run(ctx, nil, "bash", "-c", waitScript, "bash", t.File(), strconv.Itoa(from))
			}
			lines, next, err := t.read(ctx, from)
			return func() error {
				t.offset = next
				add(lines)
				if len(lines) > 0 {
					t.active = time.Now()
				}
				if last || time.Since(t.active) <= t.Quiet {
					return nil
				}
				t.active = time.Now()
				return t.Check(ctx)
			}, err
		}
	}
}

// lastContext returns a context for commands that run after ctx has ended, such as those that read the end of a program's output.
func lastContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
}

// Poll calls probe again and again, with a pause, until probe returns true or an error. When ctx ends, Poll returns the cause of
// that end.
func Poll(ctx context.Context, pause time.Duration, probe func() (done bool, err error)) error {
	for {
		done, err := probe()
		switch {
		case ctx.Err() != nil && !done:
			return context.Cause(ctx)
		case done || err != nil:
			return err
		}
		engine.Sleep(ctx, pause)
	}
}
