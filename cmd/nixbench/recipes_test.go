package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/fixture"
)

// TestRecipes parses the Nix and YAML code in docs/recipes.md; the script recipes.txtar evaluates and builds its hives. The workflow of GitHub Actions has the keys that GitHub
// requires, and its nixbench commands exist.
func TestRecipes(t *testing.T) {
	fixture.Require(t, "nix")
	data, err := os.ReadFile("../../docs/recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, m := range regexp.MustCompile("(?ms)^```(nix|yaml)\n(.*?)^```$").FindAllStringSubmatch(string(data), -1) {
		language, code := m[1], m[2]
		found[language]++
		if language == "nix" {
			cmd := exec.Command("nix-instantiate", "--parse", "-")
			cmd.Stdin = strings.NewReader(code)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s\n%s", err, out, code)
			}
			continue
		}
		value, err := parseYAML(code)
		if err != nil {
			t.Errorf("%v\n%s", err, code)
		}
		if strings.Contains(code, "jobs:") {
			checkWorkflow(t, value)
		}
	}
	if found["nix"] < 6 || found["yaml"] < 2 {
		t.Errorf("only %v", found)
	}
	// The flake uses the release of the templates.
	release := regexp.MustCompile(`nixpkgs/nixos-[0-9.]+`)
	template, err := os.ReadFile("../../templates/existing-machines/flake.nix")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := release.FindString(string(data)), release.FindString(string(template)); got != want || want == "" {
		t.Errorf("the recipes use %q, the templates %q", got, want)
	}
	for text, want := range map[string]string{
		"a: 1\n b: 2\n": "line 2", "a: 1\na: 2\n": "line 2: a is set twice", "a:\n\tb: 1\n": "line 2", "a: [1\n": "line 1", "a\n": "line 1", "a: b: c\n": "line 1",
	} {
		if _, err := parseYAML(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func checkWorkflow(t *testing.T, value any) {
	t.Helper()
	workflow, _ := value.(map[string]any)
	jobs, _ := workflow["jobs"].(map[string]any)
	if workflow["on"] == nil || len(jobs) < 2 {
		t.Fatalf("no workflow: %v", value)
	}
	commands := 0
	for name, job := range jobs {
		job := job.(map[string]any)
		steps, _ := job["steps"].([]any)
		if job["runs-on"] == nil || len(steps) == 0 {
			t.Errorf("job %s: %v", name, job)
		}
		if needs, ok := job["needs"].(string); ok && jobs[needs] == nil {
			t.Errorf("job %s needs %s, which does not exist", name, needs)
		}
		for _, step := range steps {
			step := step.(map[string]any)
			uses, _ := step["uses"].(string)
			script, _ := step["run"].(string)
			if (uses == "") == (script == "") || uses != "" && !regexp.MustCompile(`^[a-z-]+/[a-z-]+@v[0-9]+$`).MatchString(uses) {
				t.Errorf("job %s: a step has either uses or run: %v", name, step)
			}
			for _, m := range regexp.MustCompile(`(?m)^nix run \.#nixbench -- (.*)$`).FindAllStringSubmatch(script, -1) {
				commands++
				if err := checkCall(t, m[1]); err != nil {
					t.Errorf("job %s: nixbench %s: %v", name, m[1], err)
				}
			}
		}
	}
	if commands < 4 {
		t.Errorf("only %d commands", commands)
	}
}

// parseYAML parses the part of YAML that the documents use: block mappings and lists, plain scalars, and literal blocks
// (|). Anything that has another meaning in YAML is an error.
func parseYAML(text string) (any, error) {
	p := &yamlParser{lines: strings.Split(strings.TrimRight(text, "\n"), "\n")}
	value, err := p.block(0)
	if err == nil && p.at < len(p.lines) {
		err = p.fail("wrong indentation")
	}
	return value, err
}

type yamlParser struct {
	lines []string
	at    int
}

func (p *yamlParser) fail(format string, args ...any) error {
	return fmt.Errorf("line %d: %s: %q", p.at+1, fmt.Sprintf(format, args...), p.lines[min(p.at, len(p.lines)-1)])
}

// indent returns the indentation of the current line, or -1 at the end.
func (p *yamlParser) indent() int {
	if p.at >= len(p.lines) {
		return -1
	}
	return len(p.lines[p.at]) - len(strings.TrimLeft(p.lines[p.at], " "))
}

var yamlKeyRE = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_-]*):(?: (.*))?$`)

// block parses the mapping or list whose lines have the given indentation.
func (p *yamlParser) block(indent int) (any, error) {
	mapping, list := map[string]any{}, []any{}
	for p.indent() == indent {
		line := p.lines[p.at][indent:]
		if item, ok := strings.CutPrefix(line, "- "); ok && len(mapping) == 0 {
			var value any
			var err error
			if yamlKeyRE.MatchString(item) { // a mapping, whose first key is on the line of the dash
				p.lines[p.at] = strings.Repeat(" ", indent+2) + item
				value, err = p.block(indent + 2)
			} else {
				value, err = p.scalar(item)
				p.at++
			}
			if err != nil {
				return nil, err
			}
			list = append(list, value)
			continue
		}
		m := yamlKeyRE.FindStringSubmatch(line)
		if m == nil || len(list) > 0 {
			return nil, p.fail("neither a key nor an item")
		}
		if _, twice := mapping[m[1]]; twice {
			return nil, p.fail("%s is set twice", m[1])
		}
		value, err := p.value(indent, m[2])
		if err != nil {
			return nil, err
		}
		mapping[m[1]] = value
	}
	if len(list) > 0 {
		return list, nil
	}
	return mapping, nil
}

// value parses the value of a key. text is the rest of the line of the key.
func (p *yamlParser) value(indent int, text string) (any, error) {
	if text != "" && text != "|" {
		value, err := p.scalar(text)
		p.at++
		return value, err
	}
	p.at++
	deeper := p.indent()
	if text == "" {
		if deeper <= indent {
			return nil, nil // a key without a value
		}
		return p.block(deeper)
	}
	var lines []string
	for deeper > indent && p.indent() >= deeper {
		lines = append(lines, p.lines[p.at][deeper:])
		p.at++
	}
	return strings.Join(lines, "\n") + "\n", nil
}

func (p *yamlParser) scalar(text string) (string, error) {
	if strings.ContainsAny(text[:1], "[]{}&*!|>'\"%@`#?,-") || strings.Contains(text, ": ") || strings.Contains(text, " #") || strings.TrimSpace(text) != text {
		return "", p.fail("not a plain scalar")
	}
	return text, nil
}
