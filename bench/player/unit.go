package player

import (
	"bytes"
	"context"
	"io"
	"strconv"
	"strings"
	"time"
)

// Unit is a program of a player, such as a watch, that runs in a transient systemd unit on a node, because a command over SSH
// ends with its connection. The program writes lines into a file.
type Unit struct {
	Name   string                                                                     // name of the systemd unit
	Folder string                                                                     // the folder with all files of the program
	File   string                                                                     // the file into which the program writes its lines
	Run    func(ctx context.Context, stdin io.Reader, argv ...string) ([]byte, error) // runs a command on the node
}

// StopScript returns the script that stops the program and removes its files. It succeeds if there is no program.
func (u Unit) StopScript() string {
	return `systemctl stop ` + u.Name + ` 2> /dev/null
if systemctl --quiet is-active ` + u.Name + `; then
	echo "` + u.Name + ` does not stop" >&2
	exit 1
fi
rm -rf ` + u.Folder + "\n"
}

// RunScript runs a script of sh on the node.
func (u Unit) RunScript(ctx context.Context, script string) ([]byte, error) {
	return u.Run(ctx, strings.NewReader(script), "sh", "-s")
}

// Stop stops the program, also if ctx has ended. It returns no error: [Player.Clean] reports a program that still runs.
func (u Unit) Stop(ctx context.Context) {
	ctx, cancel := lastContext(ctx)
	defer cancel()
	_, _ = u.RunScript(ctx, u.StopScript())
}

// ReadLines returns the lines of a program's file after the first offset bytes, as parse returns them, and the new offset.
func ReadLines[T any](ctx context.Context, u Unit, offset int, parse func(line []byte) (T, error)) (lines []T, next int, err error) {
	out, err := u.Run(ctx, nil, "tail", "--bytes=+"+strconv.Itoa(offset+1), u.File)
	whole := out[:bytes.LastIndexByte(out, '\n')+1] // the last line may be incomplete
	for text := range bytes.Lines(whole) {
		if err != nil {
			break
		}
		var l T
		l, err = parse(bytes.TrimSuffix(text, []byte("\n")))
		lines = append(lines, l)
	}
	return lines, offset + len(whole), err
}

// lastContext returns a context for commands that run after ctx has ended, such as those that read the end of a program's output.
func lastContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
}
