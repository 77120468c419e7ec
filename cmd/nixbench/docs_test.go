package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Matches the lines of the documents that call nixbench, at the beginning of a line of code. The
// call ends at a comment or at a shell operator.
var (
	callRE = regexp.MustCompile(`(?m)^(?:    |  )(?:\$ )?(?:demo/)?nixbench ((?:[^\n#]|\S#)*)`)
	appRE  = regexp.MustCompile(`(?m)^(?:    |  )(?:\$ )?nix run \.#(deploy|nixbench)(?: -- ([^\n#]*))?`)
	restRE = regexp.MustCompile(`\s+(&&|\|\||\||>|;).*`)
)

// Every command and flag in the documents must exist.
func TestDocuments(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, "../../README.md", "../../demo/up", "../../hive.nix")
	examples, _ := filepath.Glob("../../templates/*/hive.nix")
	checked := 0
	for _, file := range append(files, examples...) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		// Treat commands in the comments of hives as code.
		text := strings.ReplaceAll("\n"+string(data), "\n#   nixbench ", "\n    nixbench ")
		var calls []string
		for _, m := range callRE.FindAllStringSubmatch(text, -1) {
			calls = append(calls, m[1])
		}
		for _, m := range appRE.FindAllStringSubmatch(text, -1) {
			calls = append(calls, strings.TrimPrefix(m[1], "nixbench")+" "+m[2])
		}
		for _, call := range calls {
			call = restRE.ReplaceAllString(strings.Replace(call, "deploy", "apply", 1), "")
			if strings.Contains(call, "  ") { // a description follows the call
				call, _, _ = strings.Cut(strings.TrimSpace(call), "  ")
			}
			checked++
			if err := checkCall(t, call); err != nil {
				t.Errorf("%s: nixbench %s: %v", filepath.Base(file), call, err)
			}
		}
	}
	if checked < 60 {
		t.Errorf("only %d calls were found", checked)
	}
}

// checkCall returns an error unless the command and the flags of a call of nixbench exist.
func checkCall(t *testing.T, call string) error {
	root := newRootCommand(newApp(t.Context(), nil))
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	cmd, args, err := root.Find(joinNixOptions(strings.Fields(strings.ReplaceAll(call, "'", ""))))
	if err == nil && cmd == root {
		err = os.ErrNotExist
	}
	if err == nil {
		err = cmd.ParseFlags(args)
	}
	return err
}

// Links between the documents must have a target.
func TestLinks(t *testing.T) {
	linkRE := regexp.MustCompile(`\]\(([^):#]*)(?:#([^)]*))?\)`)
	codeRE := regexp.MustCompile("(?s)```.*?```|``.*?``|(^|[^\\[`])`[^`\n]*`") // but not the text of a link
	anchorRE := regexp.MustCompile(`[^a-z0-9 _-]`)
	files, _ := filepath.Glob("../../docs/*.md")
	for _, file := range append(files, "../../README.md", "../../CONTRIBUTING.md", "../../SECURITY.md", "../../CHANGELOG.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range linkRE.FindAllStringSubmatch(codeRE.ReplaceAllString(string(text), "$1"), -1) {
			target := filepath.Join(filepath.Dir(file), m[1])
			if m[1] == "" {
				target = file
			}
			there, err := os.ReadFile(target)
			if err != nil && !isDir(target) {
				t.Errorf("%s links to %s, which is not there", filepath.Base(file), m[1])
			}
			if m[2] == "" {
				continue
			}
			found := false
			for line := range strings.Lines(string(there)) {
				if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
					anchor := strings.ReplaceAll(anchorRE.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), ""), " ", "-")
					found = found || anchor == m[2]
				}
			}
			if !found {
				t.Errorf("%s links to %s#%s, which is no title there", filepath.Base(file), m[1], m[2])
			}
		}
	}
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}
