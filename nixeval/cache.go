package nixeval

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/event"
	"github.com/nixbench/nixbench/nixeval/nixlog"
)

// cacheAge is how long the result of an evaluation is kept after its last use.
const cacheAge = 30 * 24 * time.Hour

// lockedFlake is what Nix knew about the flake before the first evaluation of a run.
type lockedFlake struct {
	sync.Once
	description string // see describeFlake
}

// cacheEntry is the file with the result of a function of nix/eval.nix. In pure mode, the result depends only on the flake with its
// locked inputs, on the expression and on Nix. The name of the file is a hash of them. Nothing is stored in an entry without a file.
type cacheEntry struct {
	evaluator *Evaluator
	file      string
}

// openCache returns the entry for a function. The entry has no file if the hive is not evaluated in pure mode.
func openCache(ctx context.Context, e *Evaluator, function string) cacheEntry {
	entry := cacheEntry{evaluator: e}
	if e.CacheDir == "" || !e.isHermetic() {
		return entry
	}
	e.locked.Do(func() { e.locked.description = describeFlake(ctx, e) })
	expression, err := New(e.Options).wrapFunction(function) // a new evaluator has not searched for the flake's output yet
	program := identifyNix()
	if e.locked.description == "" || err != nil || program == "" {
		return entry
	}
	key := EncodeJSON([]any{program, e.nixFlags(), e.Source.Flake, e.Source.Attr, e.locked.description, expression})
	entry.file = filepath.Join(e.CacheDir, fmt.Sprintf("%x.json", sha256.Sum256([]byte(key))))
	return entry
}

// describeFlake returns what Nix knows about the flake: the store path of its files, which is a hash of them, its revision, and its
// locked inputs. It returns an empty string if Nix does not copy the flake into the store, or reports an error, which the
// evaluation will report again.
func describeFlake(ctx context.Context, e *Evaluator) string {
	argv := slices.Concat([]string{"nix", "flake", "metadata", "--json"}, e.nixFlags(), []string{e.Source.Flake})
	out, err := runNix(ctx, e.Run, &nixlog.Log{Phase: event.Survey}, Command{Argv: argv, Disposable: true})
	var flake struct{ Path string }
	if err != nil || json.Unmarshal(out, &flake) != nil || checkStorePaths(flake.Path) != nil || !durable.Exists(flake.Path) {
		return ""
	}
	return string(out)
}

// identifyNix returns a text that differs for another version of Nix, or "" if Nix is not found.
func identifyNix() string {
	path, err := exec.LookPath("nix")
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	info, statErr := os.Stat(path)
	if err != nil || statErr != nil {
		return ""
	}
	return fmt.Sprint(path, info.Size(), info.ModTime().UnixNano())
}

// load decodes the result into v, and reports whether there is one.
func (c cacheEntry) load(v any) bool {
	data, err := durable.Read(c.file, durable.ConfigSize)
	if err != nil || json.Unmarshal(data, v) != nil {
		return false
	}
	now := time.Now()
	_ = os.Chtimes(c.file, now, now) // only for cacheAge
	return true
}

// store keeps v, the result of an evaluation without errors. It keeps nothing if the flake has changed since the entry was opened, because then it
// is unknown which files the evaluation has read. It also removes results that no run has used for cacheAge. It returns no error,
// because without the result the next run evaluates again.
func (c cacheEntry) store(ctx context.Context, v any) {
	dir := filepath.Dir(c.file)
	data, err := json.Marshal(v)
	if c.file == "" || err != nil || describeFlake(ctx, c.evaluator) != c.evaluator.locked.description || os.MkdirAll(dir, 0o700) != nil {
		return
	}
	_ = durable.Write(c.file, data)
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && strings.HasSuffix(entry.Name(), ".json") && time.Since(info.ModTime()) > cacheAge {
			_ = os.Remove(filepath.Join(dir, entry.Name()))
		}
	}
}

// closures returns the systems in the entry, by unit. It leaves out those whose derivations the garbage collector has deleted.
func (c cacheEntry) closures() map[string]Closure {
	all := map[string]Closure{}
	if !c.load(&all) || checkClosures(all) != nil {
		return map[string]Closure{}
	}
	maps.DeleteFunc(all, func(_ string, c Closure) bool { return !durable.Exists(c.Drv) })
	return all
}
