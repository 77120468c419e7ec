package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func document(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// readMessages returns the texts of each source file by its path: the string literals of a Go file,
// and the whole content of a script or a module.
func readMessages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, dir := range []string{"nixeval", "deploy", "bench", "cmd", "modules"} {
		err := filepath.WalkDir(filepath.Join("..", "..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") {
				return err
			}
			switch filepath.Ext(path) {
			case ".nix", ".sh":
				data, err := os.ReadFile(path)
				out[path] = string(data)
				return err
			case ".go":
				f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
				if err != nil {
					return err
				}
				var texts []string
				ast.Inspect(f, func(n ast.Node) bool {
					if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
						if s, err := strconv.Unquote(l.Value); err == nil {
							texts = append(texts, s)
						}
					}
					return true
				})
				out[path] = strings.Join(texts, "\n")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// occurs reports whether one source file contains all parts of a message, which … separates.
func occurs(sources map[string]string, message string) bool {
	parts := strings.Split(message, "…")
	for _, text := range sources {
		all := true
		for _, p := range parts {
			all = all && strings.Contains(text, strings.TrimSpace(p))
		}
		if all {
			return true
		}
	}
	return false
}

func TestFailures(t *testing.T) {
	text, sources := document(t, "failures.md"), readMessages(t)
	entries := regexp.MustCompile("(?m)^### ").Split(text, -1)[1:]
	if len(entries) < 50 {
		t.Errorf("failures.md explains only %d messages, want at least 50", len(entries))
	}
	heading := regexp.MustCompile("^`([^`]+)`\n")
	seen := map[string]bool{}
	for _, e := range entries {
		m := heading.FindStringSubmatch(e)
		if m == nil {
			t.Errorf("this heading is not a message in backquotes: %.60q", e)
			continue
		}
		if seen[m[1]] {
			t.Errorf("%q is explained twice", m[1])
		}
		seen[m[1]] = true
		letters := regexp.MustCompile(`[a-z]`).FindAllString(m[1], -1)
		if len(letters) < 4 || !occurs(sources, m[1]) {
			t.Errorf("no source file has the message %q", m[1])
		}
		if !strings.Contains(e, "\n**Fix:** ") {
			t.Errorf("%q has no **Fix:**", m[1])
		}
	}
	if occurs(sources, "the moon is made of … cheese") {
		t.Error("occurs finds a message that does not exist")
	}
}

// The program, the table of failures.md and its sections have the same exit codes.
func TestExitCodes(t *testing.T) {
	codes := func(text, pattern string) []string {
		var out []string
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			if m[1] != "0" {
				out = append(out, m[1])
			}
		}
		slices.Sort(out)
		return out
	}
	program, err := os.ReadFile("../../cmd/nixbench/exit.go")
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Compact(codes(string(program), `(?m)^\t(?:failure\.[A-Za-z]+:|exitInterrupted =) +([0-9]+),?$`))
	if len(want) < 10 {
		t.Fatal(want)
	}
	if got := codes(document(t, "failures.md"), `(?m)^\| ([0-9]+) \|`); !slices.Equal(got, want) {
		t.Errorf("the table of failures.md has %v, the program %v", got, want)
	}
	if got := codes(document(t, "failures.md"), `(?m)^## ([0-9]+): `); !slices.Equal(got, want) {
		t.Errorf("the sections of failures.md are %v, those of the program %v", got, want)
	}
}

// Every flag in failures.md is a flag of a command.
func TestFlagsInFailures(t *testing.T) {
	known := map[string]bool{}
	for _, m := range regexp.MustCompile("(--[a-z][a-z-]+)").FindAllStringSubmatch(document(t, "commands.md"), -1) {
		known[m[1]] = true
	}
	used := map[string]bool{}
	for _, m := range regexp.MustCompile("(--[a-z][a-z-]+)").FindAllStringSubmatch(document(t, "failures.md"), -1) {
		used[m[1]] = true
	}
	for _, flag := range slices.Sorted(maps.Keys(used)) {
		if !known[flag] {
			t.Errorf("failures.md has the flag %s, which no command has", flag)
		}
	}
}
