package secrets

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/remote"
)

// The two files of the shell script that runs on the node. aside.sh comes first, because upload.sh uses its functions.
var (
	//go:embed aside.sh
	asideScript string
	//go:embed upload.sh
	uploadScript string

	script = asideScript + uploadScript
)

// loader is a shell command that reads upload.sh ($1 bytes) from stdin and runs it. If upload.sh were an argument instead, its
// text would be in the node's process list and in every message about this command.
const loader = `script=$(head -c "$1") && shift && eval "$script"`

// errEnded is the error of an exchange if the command on the node has ended already.
var errEnded = errors.New("the command on the node ended early")

// runExchange runs upload.sh on the node, in the mode apply or compare, and sends it the keys that it asks for.
func (u *Uploader) runExchange(ctx context.Context, h remote.Connector, set Set, mode Mode) (Result, error) {
	conn, err := h.Conn(ctx)
	if err != nil {
		return Result{}, err
	}
	command := conn.DialCommand(ctx, remote.Cmd{Argv: u.scriptCommand(mode, set.Aside, set.Restart), Name: steps[mode], Sudo: true})
	t := &keyExchange{set: set, to: bufio.NewWriter(command), from: bufio.NewScanner(command)}
	said := t.run(mode)
	command.CloseWrite()
	_, err = io.Copy(io.Discard, command) // a full pipe would block the command
	r := t.result
	for _, names := range [][]string{r.Uploaded, r.Adjusted, r.Unchanged, r.Deferred, r.Stale, r.Removed, r.Restarted} {
		slices.Sort(names)
	}
	switch {
	case errors.As(err, new(*remote.LostError)), errors.As(err, new(*remote.EscalationError)):
		err = fmt.Errorf("%s: %w", steps[mode], err) // other errors contain the step
	case err == nil && said != nil: // an error of the command on the node is the reason why the exchange has failed
		if errors.Is(said, io.ErrClosedPipe) {
			said = errEnded
		}
		err = failure.On(set.Node, fmt.Errorf("upload keys: %w", said))
	}
	return r, errors.Join(append(t.failed, err)...)
}

// scriptCommand returns the command line that runs upload.sh on the node.
func (u *Uploader) scriptCommand(mode Mode, aside Aside, restart bool) []string {
	list, folder, readers := listFile, asideFolder, readersFolder
	if u.root != "" {
		list, folder, readers = u.root+"/var/list", u.root+"/var/aside", u.root+"/var/readers"
	}
	if !restart {
		readers = ""
	}
	return []string{"sh", "-c", loader, "upload-keys", strconv.Itoa(len(script)), string(mode), list, folder, string(aside), readers}
}

// keyExchange is nixbench's side of the exchange of keys with one node. upload.sh is the node's side.
type keyExchange struct {
	set    Set
	to     *bufio.Writer
	from   *bufio.Scanner
	result Result
	failed []error // errors of single keys
	lines  int     // number of lines received from the node
}

// maxLines is the maximal number of lines that a node may send in one exchange. It suffices for thousands of keys.
const maxLines = 100_000

// run exchanges messages with upload.sh on the node. In the mode compare it sends no keys.
func (t *keyExchange) run(mode Mode) error {
	t.to.WriteString(script)
	t.to.WriteString(describeSet(t.set))
	if err := t.to.Flush(); err != nil {
		return err
	}
	// Skip lines that the login shell has printed.
	for word := ""; word != "nixbench-keys"; {
		var err error
		if word, _, err = t.readLine(); err != nil {
			return err
		}
	}
	send, err := t.readReport("next")
	if err != nil {
		return err
	}
	if mode == compare {
		for _, i := range send {
			t.result.Uploaded = append(t.result.Uploaded, t.set.Keys[i].Name)
		}
		return nil
	}
	return t.sendKeys(send)
}

// describeSet returns the first part of the input of upload.sh. It contains the size of the text, the descriptions of the desired
// keys, and the paths of all keys of the node in the hive.
func describeSet(set Set) string {
	var list strings.Builder
	for _, k := range set.Keys {
		when := map[bool]string{true: "early", false: "late"}[k.Early]
		list.WriteString(strings.Join([]string{k.Path, k.User, k.Group, k.Mode, when, k.hash(), ""}, "\n"))
	}
	for _, at := range set.hivePaths {
		list.WriteString(at + "\n")
	}
	list.WriteString("end\n")
	return fmt.Sprintf("%d %d\n%s", list.Len(), len(set.Keys), list.String())
}

// newArchive returns a tar archive with the keys to send. upload.sh creates the temporary files of all these keys with it by one
// program, with their owners and modes. deferred are the names of the keys whose owner does not exist on the node yet.
func newArchive(set Set, send []int, deferred []string) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, i := range send {
		k := set.Keys[i]
		dir, name := path.Split(k.Path)
		content := k.content()
		header := &tar.Header{Name: dir + "." + name + ".nixbench-new", Mode: 0o600, Size: int64(len(content))}
		if !slices.Contains(deferred, k.Name) {
			header.Mode, _ = strconv.ParseInt(k.Mode, 8, 64) // newKey has written the mode
			header.Uname, header.Gname = k.User, k.Group
			header.Uid, _ = strconv.Atoi(k.User) // tar uses the number if no user has this name
			header.Gid, _ = strconv.Atoi(k.Group)
		}
		// Errors are ignored, because they cannot occur: the header is valid, and a buffer accepts every write.
		_ = w.WriteHeader(header)
		_, _ = w.Write(content)
	}
	_ = w.Close()
	return out.Bytes()
}

// readLine reads a line from the node and splits it at the first blank. An error does not contain the line, because the line may
// be any output of the node.
func (t *keyExchange) readLine() (word, rest string, err error) {
	if t.lines++; t.lines > maxLines {
		return "", "", errUnexpected
	}
	if !t.from.Scan() {
		return "", "", cmp.Or(t.from.Err(), errEnded)
	}
	word, rest, _ = strings.Cut(t.from.Text(), " ")
	return word, rest, nil
}

var errUnexpected = errors.New("the node sent unexpected output")

// readReport reads what the node reports about keys until the line `last`, and stores it in the result. It returns the indexes of the
// keys that the node asks for.
func (t *keyExchange) readReport(last string) (send []int, err error) {
	paths := map[string]*[]string{"stale": &t.result.Stale, "removed": &t.result.Removed, "restart": &t.result.Restarted, "restarted": &t.result.Restarted}
	keys := map[string]*[]string{"same": &t.result.Unchanged, "adjusted": &t.result.Adjusted, "done": &t.result.Uploaded}
	for {
		word, rest, err := t.readLine()
		if err != nil || word == last {
			return send, err
		}
		if list := paths[word]; list != nil {
			*list = append(*list, rest)
			continue
		}
		number, more, _ := strings.Cut(rest, " ")
		i, err := strconv.Atoi(number)
		if err != nil || i < 0 || i >= len(t.set.Keys) {
			return nil, errUnexpected
		}
		key := t.set.Keys[i]
		switch list := keys[word]; {
		case word == "failed":
			t.failed = append(t.failed, t.set.newKeyError(key, more))
			continue
		case word == "send" && !slices.Contains(send, i):
			send = append(send, i)
		case list != nil:
			*list = append(*list, key.Name)
		default:
			return nil, errUnexpected
		}
		if more == "deferred" {
			t.result.Deferred = append(t.result.Deferred, key.Name)
		}
	}
}

// sendKeys sends the contents of the keys with these indexes, and then reads the result of each key. It sends all keys before it
// reads any result: the results are so short that the connection buffers them.
func (t *keyExchange) sendKeys(send []int) error {
	if len(send) > 0 {
		archive := newArchive(t.set, send, t.result.Deferred)
		fmt.Fprintln(t.to, len(archive))
		t.to.Write(archive)
	}
	// If one of the keys has failed, the node keeps the keys that the hive no longer has.
	last := "keep"
	if t.set.When != Pre && !t.set.KeepOld && len(t.failed) == 0 {
		last = "prune"
	}
	fmt.Fprintln(t.to, last)
	if err := t.to.Flush(); err != nil {
		return err
	}
	failed := len(t.failed)
	_, err := t.readReport("end")
	if err == nil && len(t.result.Uploaded)+len(t.failed)-failed != len(send) {
		return errUnexpected
	}
	return err
}
