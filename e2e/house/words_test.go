package house

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A wordRule is one line of words.txt.
type wordRule struct {
	phrase  phrase
	instead string
	allowed []phrase // where one of these covers the phrase, it is not reported
}

// A phrase is a sequence of words; each has at least one alternative.
type phrase [][]string

// A wordUse is one place where a text breaks a rule.
type wordUse struct {
	line            int
	phrase, instead string
}

// parseWords reads the format that the head of words.txt describes.
func parseWords(text string) ([]wordRule, error) {
	var rules []wordRule
	for i, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		columns := strings.Split(line, "\t")
		if len(columns) < 2 || len(columns) > 3 || slices.Contains(columns, "") {
			return nil, fmt.Errorf("words.txt:%d: want phrase, TAB, replacement, and optionally TAB and allowed uses", i+1)
		}
		r := wordRule{phrase: parsePhrase(columns[0]), instead: columns[1]}
		if len(columns) == 3 {
			for use := range strings.SplitSeq(columns[2], ",") {
				r.allowed = append(r.allowed, parsePhrase(use))
			}
		}
		rules = append(rules, r)
	}
	return rules, nil
}

func parsePhrase(text string) (p phrase) {
	for _, word := range strings.Fields(text) {
		p = append(p, strings.Split(word, "|"))
	}
	return p
}

// matches reports whether the phrase stands at the words from index i on.
func (p phrase) matches(words []proseWord, i int) bool {
	if i < 0 || i+len(p) > len(words) {
		return false
	}
	for j, alternatives := range p {
		if !slices.Contains(alternatives, words[i+j].text) || j > 0 && !words[i+j].continues {
			return false
		}
	}
	return true
}

// A proseWord is a word of a text in lower case.
type proseWord struct {
	text      string
	line      int
	continues bool // only spaces and at most one line end separate it from the word before
}

// A hyphen joins words: well-known is one word.
var wordPattern = regexp.MustCompile(`[\pL\pN_-]+`)

func splitWords(prose string) (words []proseWord) {
	line, end := 1, 0
	for _, m := range wordPattern.FindAllStringIndex(prose, -1) {
		gap := prose[end:m[0]]
		newlines := strings.Count(gap, "\n")
		line += newlines
		words = append(words, proseWord{
			text:      strings.ToLower(prose[m[0]:m[1]]),
			line:      line,
			continues: newlines <= 1 && strings.Trim(gap, " \t\n") == "",
		})
		end = m[1]
	}
	return words
}

// findWords returns the uses of the rules' phrases in prose, with line numbers that start at 1.
func findWords(rules []wordRule, prose string) (uses []wordUse) {
	words := splitWords(prose)
	for i := range words {
		for _, r := range rules {
			if !r.phrase.matches(words, i) || r.isAllowed(words, i) {
				continue
			}
			var phrase []string
			for _, w := range words[i : i+len(r.phrase)] {
				phrase = append(phrase, w.text)
			}
			uses = append(uses, wordUse{line: words[i].line, phrase: strings.Join(phrase, " "), instead: r.instead})
		}
	}
	return uses
}

// isAllowed reports whether an allowed use covers the phrase at the words from index i on.
func (r wordRule) isAllowed(words []proseWord, i int) bool {
	for _, a := range r.allowed {
		for begin := i + len(r.phrase) - len(a); begin <= i; begin++ {
			if a.matches(words, begin) {
				return true
			}
		}
	}
	return false
}

// generatedProse lists documents that are written from string literals.
var generatedProse = []string{"docs/commands.md", "docs/options.md"}

// TestWords fails for each use of a phrase of words.txt in a comment, a name or a document.
func TestWords(t *testing.T) {
	rules, err := readWords()
	if err != nil {
		t.Fatal(err)
	}
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root(t)
	out, err := list.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	unclean := map[string][]wordUse{}
	checked := 0
	for path := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		source, err := os.ReadFile(filepath.Join(root(t), path))
		if os.IsNotExist(err) || slices.Contains(generatedProse, path) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		uses, err := wordsInFile(rules, path, source)
		if err != nil {
			t.Fatal(err)
		}
		checked++
		if len(uses) > 0 {
			unclean[path] = uses
		}
	}
	if checked < 500 {
		t.Errorf("only %d files were checked", checked)
	}

	for path, uses := range unclean {
		for _, u := range uses {
			t.Errorf("%s:%d: %s: write instead: %s", path, u.line, u.phrase, u.instead)
		}
	}
}

func readWords() ([]wordRule, error) {
	text, err := os.ReadFile("words.txt")
	if err != nil {
		return nil, err
	}
	return parseWords(string(text))
}

func TestFindWords(t *testing.T) {
	rules, err := readWords()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, path, source string
		want               []string // line: phrase
	}{
		{"else for otherwise", "a.go", "package a\n\n// A server would else keep it.\nvar b int", []string{"3: else"}},
		{"else after a pronoun", "a.go", "package a\n\n// Nothing else changes, or else this fails; anything\n// else is refused.\nvar b int", nil},
		{"over a line end", "a.go", "package a\n\n// B tells\n// whether c.\nvar b int", []string{"3: tells whether"}},
		{"not over code", "a.go", "package a\n\nvar b int // B tells\nvar c int // whether\n", nil},
		{"a comment at the end of a line", "a.go", "package a\n\nvar b int // made anew\n", []string{"3: anew"}},
		{"names", "a.go", "package a\n\nfunc nobodyElse(living int) { for amid := range living { _ = amid } }\n", []string{"3: nobody in the name nobodyElse", "3: living in the name living", "3: amid in the name amid"}},
		{"names of others", "a.go", "package a\n\nvar b = other.Settle()\n", nil},
		{"part of a word", "a.go", "package a\n\n// Renewed, the pyramid is well-known elsewhere.\nvar dislivingB int\n", nil},
		{"string literals", "deploy/a.go", "package a\n\nvar b = f(\"made anew\",\n`two\nlines: in vain`)\n", []string{"3: anew in a string", "5: in vain in a string"}},
		{"literals that are no sentences", "deploy/a.go", "package a\n\nvar b, c = \"living\", `if a; then b; else c d; fi`\n", nil},
		{"literals of tests", "deploy/a_test.go", "package a\n\nvar b = \"made anew\"\n", nil},
		{"literals of other packages", "e2e/a.go", "package a\n\nvar b = \"nobody // anew\"\n", nil},
		{"quotes", "a.go", "package a\n\n// B prints \"nobody\" and `else`.\nvar b int\n", nil},
		{"code in a doc comment", "a.go", "package a\n\n// B is used as in\n//\n//\tif a { } else { }\nvar b int\n", nil},
		{"the settle time", "a.go", "package a\n\n// The settle time passes; then B settles.\nvar b, settleTime int\n", []string{"3: settles"}},
		{"healthy", "a.go", "package a\n\n// A node that is well. It is well below.\nvar b int\n", []string{"3: is well"}},
		{"beyond ASCII", "a.go", "package a\n\nvar b = \"äöü…\" // anew …\n", []string{"3: anew"}},
		{"shell", "a.sh", "#!/bin/sh\n# made anew\necho \"# nobody\" '# nobody' # living\nif a; then b; else c; fi\nx=${y#else}\n", []string{"2: anew", "3: living"}},
		{"a here-document", "b", "#!/bin/bash\ncat <<'EOF' # anew\n# nobody isn't\nEOF\n# living\ncat <<<x\n# amid\n", []string{"2: anew", "5: living", "7: amid"}},
		{"not shell", "b", "# made anew\n", nil},
		{"Nix", "a.nix", "# anew\n{\n  a = \"# nobody ${b /* amid */ { } \"# nobody\"} # nobody\"; # living\n  c = ''\n    # nobody ''${d} '''\n  '';\n  /* in\n     vain */\n  e = if f then g else h;\n}\n", []string{"1: anew", "3: amid", "3: living", "7: in vain"}},
		{"Markdown", "a.md", "Made anew.\n\n    nobody\n\n- a list with\n    nobody\n\n```\nnobody\n```\n`nobody` [a](nobody.md)\n`living\namid` calm\n", []string{"1: anew", "6: nobody", "13: calm"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			uses, err := wordsInFile(rules, tt.path, []byte(tt.source))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, u := range uses {
				got = append(got, fmt.Sprintf("%d: %s", u.line, u.phrase))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseWords(t *testing.T) {
	for _, text := range []string{"anew", "anew\t", "\tagain", "anew\tagain\tb\tc"} {
		if _, err := parseWords(text); err == nil {
			t.Errorf("parseWords(%q) reports no error", text)
		}
	}
}
