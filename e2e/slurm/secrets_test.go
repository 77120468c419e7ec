package slurm

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nixbench/nixbench/e2e/fixture"
)

const mungeKey = "/var/lib/nixbench/secrets/munge.key"

// The key of MUNGE is only in the vault and in its file on each node: in no store path, argument or environment of a process, log,
// output or other file. Each search also finds a text that is known to be there.
func TestKeyIsNotLeaked(t *testing.T) {
	c := newCluster(t)
	before := fixture.StorePaths()
	c.accounting, c.login = 1, 1
	control := rand.Text()
	c.writeHive(1, fmt.Sprintf(`environment.etc.control.text = "%s";`, control))
	stop := watchProcesses()
	c.Run("apply")
	c.Run("check")
	processes := stop()

	nodes := []string{"accounting-1", "compute-1", "controller-1", "login-1"}
	encoded := c.RunOn(nodes[0], "base64 -w0 "+mungeKey)
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(key) != 1024 {
		t.Fatalf("the key has %d bytes: %v", len(key), err)
	}
	forms := formsOf(key)
	for where, s := range map[string]struct{ text, control string }{
		"processes": {processes, "scontrol\x00--oneliner"},
		"output":    {c.Output.String(), "controller-1"},
		"journals":  {c.journals(nodes), "Starting slurmctld.service"},
	} {
		if !strings.Contains(s.text, s.control) {
			t.Errorf("the search of %s does not find %q", where, s.control)
		}
		for form, text := range forms {
			if strings.Contains(s.text, text) {
				t.Errorf("%s contain the key as %s", where, form)
			}
		}
	}

	// Files here: the vault, and in the store a text of the hive as the control.
	added := slices.DeleteFunc(fixture.StorePaths(), func(p string) bool { return slices.Contains(before, p) })
	if found := fixture.FilesWith(t, []string{control}, added...); len(found) == 0 {
		t.Error("the search of the store does not find a text of the hive")
	}
	if found := fixture.FilesWith(t, slices.Collect(maps.Values(forms)), added...); len(found) > 0 {
		t.Errorf("the store has the key: %q", found)
	}
	found := fixture.FilesWith(t, slices.Collect(maps.Values(forms)), c.Dir)
	if len(found) != 1 || !strings.Contains(found[0], "/secrets/") {
		t.Errorf("the state folder has the key in %q, want the vault alone", found)
	}

	// Files of the nodes.
	for _, node := range nodes {
		c.CheckOutput(node, "stat -c '%U %a' "+mungeKey+"; base64 -w0 "+mungeKey, "munge 400\n"+encoded)
		c.CheckOutput(node, searchScript(key), mungeKey+"\n/var/tmp/base64\n/var/tmp/hex")
	}
}

// partOf returns 24 bytes of the key without a NUL, because NULs end the lines that searchScript searches. It begins at a
// multiple of three, as a group of characters of base64 does.
func partOf(key []byte) []byte {
	i := 300
	for bytes.IndexByte(key[i:i+24], 0) >= 0 {
		i += 3
	}
	return key[i : i+24]
}

// formsOf returns a part of the key in several encodings.
func formsOf(key []byte) map[string]string {
	part := partOf(key)
	return map[string]string{
		"bytes":  string(part),
		"base64": base64.StdEncoding.EncodeToString(part),
		"hex":    hex.EncodeToString(part),
	}
}

// searchScript prints the files that contain a part of the key in one of its encodings. It first writes two such files as controls.
func searchScript(key []byte) string {
	forms := formsOf(key)
	raw := ""
	for _, b := range partOf(key) {
		raw += fmt.Sprintf("\\x%02x", b)
	}
	pattern := strings.Join([]string{raw, strings.NewReplacer("+", "\\+").Replace(forms["base64"]), forms["hex"]}, "|")
	return fmt.Sprintf(`base64 -w0 %[1]s > /var/tmp/base64; echo %[2]s > /var/tmp/hex
LC_ALL=C grep -rlazP --devices=skip '%[3]s' /nix/store /nix/var /etc /root /run /tmp /var 2> /dev/null | sort
rm /var/tmp/base64 /var/tmp/hex`, mungeKey, forms["hex"], pattern)
}

// journals returns the journals of nodes.
func (c *cluster) journals(nodes []string) string {
	c.Helper()
	var all []string
	for _, node := range nodes {
		all = append(all, c.RunOn(node, "journalctl --no-pager --quiet --boot"))
	}
	return strings.Join(all, "\n")
}

// watchProcesses records the arguments and environments of all processes, also of those on the nodes, which are containers. The returned
// function ends this and returns all of them.
func watchProcesses() func() string {
	seen := map[string]bool{}
	quit := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		for {
			select {
			case <-quit:
				return
			case <-time.After(20 * time.Millisecond):
			}
			for _, pattern := range []string{"/proc/[0-9]*/cmdline", "/proc/[0-9]*/environ"} {
				files, _ := filepath.Glob(pattern)
				for _, file := range files {
					if text, _ := os.ReadFile(file); len(text) > 0 {
						seen[string(text)] = true
					}
				}
			}
		}
	})
	return func() string {
		close(quit)
		done.Wait()
		return strings.Join(slices.Collect(maps.Keys(seen)), "\n")
	}
}
