package house

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// wordsInFile returns the uses of the rules' phrases in one file of the repository.
//
// Of Go it reads comments, the names that the file declares, and the string literals of the program (see [readsLiterals]);
// of shell and Nix the comments, of Markdown the prose.
func wordsInFile(rules []wordRule, path string, source []byte) ([]wordUse, error) {
	switch {
	case strings.HasSuffix(path, ".go"):
		return wordsInGo(rules, path, source)
	case strings.HasSuffix(path, ".nix"):
		return findWords(rules, maskQuotes(nixComments(source))), nil
	case strings.HasSuffix(path, ".md"):
		return findWords(rules, maskQuotes(markdownProse(source))), nil
	case isShell(path, source):
		return findWords(rules, maskQuotes(shellComments(source))), nil
	}
	return nil, nil
}

func isShell(path string, source []byte) bool {
	first, _, _ := bytes.Cut(source, []byte("\n"))
	return strings.HasSuffix(path, ".sh") || regexp.MustCompile(`^#!.*\b(ba|da)?sh\b`).Match(first)
}

func wordsInGo(rules []wordRule, path string, source []byte) ([]wordUse, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, source, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	prose := hidden(source)
	for _, group := range file.Comments {
		for _, c := range group.List {
			at := set.PositionFor(c.Pos(), false).Offset
			if strings.HasPrefix(c.Text, "//\t") || strings.HasPrefix(c.Text, "//go:") { // code in a doc comment, a directive
				continue
			}
			show(prose, source, at+2, at+len(c.Text))
			leader(prose, at, at+2)
		}
	}
	uses := findWords(rules, maskQuotes(prose))
	if readsLiterals(path) {
		uses = append(uses, wordsInLiterals(rules, set, file)...)
	}
	for _, name := range declaredNames(file) {
		for _, u := range findWords(rules, strings.Join(camelWords(name.Name), " ")) {
			u.line = set.PositionFor(name.Pos(), false).Line
			u.phrase = fmt.Sprintf("%s in the name %s", u.phrase, name.Name)
			uses = append(uses, u)
		}
	}
	slices.SortStableFunc(uses, func(a, b wordUse) int { return cmp.Compare(a.line, b.line) })
	return uses, nil
}

// readsLiterals reports whether the string literals of a Go file are texts for users: those of the program and of deploy.
// The rest are tests and what they compare with.
func readsLiterals(path string) bool {
	return !strings.HasSuffix(path, "_test.go") && (strings.HasPrefix(path, "cmd/nixbench/") || strings.HasPrefix(path, "deploy/"))
}

// literalSentence matches a literal that may be a text for users: it has several words. Other literals are names of other
// programs, fields of their output, and code.
var literalSentence = regexp.MustCompile(`\pL+ \pL+`)

// shellCode matches a script in a literal.
var shellCode = regexp.MustCompile(`; then\b`)

// wordsInLiterals returns the uses of the rules' phrases in string literals.
func wordsInLiterals(rules []wordRule, set *token.FileSet, file *ast.File) (uses []wordUse) {
	ast.Inspect(file, func(n ast.Node) bool {
		l, ok := n.(*ast.BasicLit)
		if !ok || l.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(l.Value)
		if err != nil || !literalSentence.MatchString(text) || shellCode.MatchString(text) {
			return true
		}
		for _, u := range findWords(rules, maskQuotes([]byte(text))) {
			u.line += set.PositionFor(l.Pos(), false).Line - 1
			u.phrase += " in a string"
			uses = append(uses, u)
		}
		return true
	})
	return uses
}

// declaredNames returns the names that a file declares. The names that it only uses may be of other packages.
func declaredNames(file *ast.File) (names []*ast.Ident) {
	declare := func(e ast.Expr) {
		if id, ok := e.(*ast.Ident); ok {
			names = append(names, id)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			names = append(names, n.Name)
		case *ast.TypeSpec:
			names = append(names, n.Name)
		case *ast.ValueSpec:
			names = append(names, n.Names...)
		case *ast.Field:
			names = append(names, n.Names...)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				for _, e := range n.Lhs {
					declare(e)
				}
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				declare(n.Key)
				declare(n.Value)
			}
		}
		return true
	})
	return names
}

// camelWords splits a Go name: TestHTTPIsUp is Test, HTTP, Is, Up.
func camelWords(name string) (words []string) {
	runes := []rune(name)
	begin := 0
	for i := 1; i < len(runes); i++ {
		upper := unicode.IsUpper(runes[i]) && (!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]))
		if upper || runes[i] == '_' {
			words = append(words, strings.Trim(string(runes[begin:i]), "_"))
			begin = i
		}
	}
	return append(words, strings.Trim(string(runes[begin:]), "_"))
}

// hidden returns a copy of source in which every byte but white space is NUL, which no phrase matches.
func hidden(source []byte) []byte {
	out := bytes.Clone(source)
	for i, b := range out {
		if b != '\n' && b != ' ' && b != '\t' {
			out[i] = 0
		}
	}
	return out
}

func show(mask, source []byte, from, to int) { copy(mask[from:to], source[from:to]) }

// leader replaces a comment's sign by white space, so that a phrase may continue in the comment of the next line.
func leader(mask []byte, from, to int) {
	for i := from; i < to; i++ {
		mask[i] = ' '
	}
}

var quoted = regexp.MustCompile("(?s)``.+?``|`[^`\n]*(?:\n[^`\n]+)?`|\"[^\"\n]*(?:\n[^\"\n]+)?\"")

// maskQuotes hides `code` and "messages" in prose: they show what is written elsewhere.
func maskQuotes(prose []byte) string {
	for _, q := range quoted.FindAllIndex(prose, -1) {
		for i := q[0]; i < q[1]; i++ {
			if prose[i] != '\n' {
				prose[i] = 0
			}
		}
	}
	return string(prose)
}

// nixComments shows the comments of a Nix file, outside of its strings.
func nixComments(source []byte) []byte {
	prose := hidden(source)
	const code, text, indented = 0, 1, 2
	type level struct{ kind, braces int }
	stack := []level{{kind: code}}
	has := func(i int, s string) bool { return bytes.HasPrefix(source[i:], []byte(s)) }
	for i := 0; i < len(source); i++ {
		top := &stack[len(stack)-1]
		switch {
		case top.kind != code && has(i, "''${"), top.kind == indented && has(i, `''\`):
			i += 3
		case top.kind == indented && has(i, "'''"):
			i += 2
		case top.kind != code && has(i, "$${"), top.kind == text && has(i, `\`):
			i++
		case top.kind != code && has(i, "${"):
			stack, i = append(stack, level{kind: code}), i+1
		case top.kind == text && has(i, `"`):
			stack = stack[:len(stack)-1]
		case top.kind == indented && has(i, "''"):
			stack, i = stack[:len(stack)-1], i+1
		case top.kind != code:
		case has(i, `"`):
			stack = append(stack, level{kind: text})
		case has(i, "''"):
			stack, i = append(stack, level{kind: indented}), i+1
		case has(i, "{"):
			top.braces++
		case has(i, "}"):
			if top.braces == 0 && len(stack) > 1 {
				stack = stack[:len(stack)-1]
			} else {
				top.braces--
			}
		case has(i, "#"):
			end := i + len(firstLine(source[i:]))
			show(prose, source, i+1, end)
			leader(prose, i, i+1)
			i = end
		case has(i, "/*"):
			end := bytes.Index(source[i:], []byte("*/"))
			if end < 0 {
				return prose
			}
			show(prose, source, i+2, i+end)
			i += end + 1
		}
	}
	return prose
}

func firstLine(b []byte) []byte {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	return line
}

var hereDocument = regexp.MustCompile(`<<-?\s*(?:'(\w+)'|"(\w+)"|\\?(\w+))`)

// shellComments shows the comments of a shell script, outside of quotes and here-documents.
func shellComments(source []byte) []byte {
	prose := hidden(source)
	var quote byte
	var heredocs []string
	for at := 0; at < len(source); {
		line := firstLine(source[at:])
		if quote == 0 && len(heredocs) > 0 {
			if strings.TrimLeft(string(line), "\t") == heredocs[0] {
				heredocs = heredocs[1:]
			}
			at += len(line) + 1
			continue
		}
		for i := 0; i < len(line); i++ {
			c := line[i]
			switch {
			case c == '\\' && quote != '\'':
				i++
			case quote != 0:
				if c == quote {
					quote = 0
				}
			case c == '\'' || c == '"':
				quote = c
			case c == '<' && i > 0 && line[i-1] == '<' && (i < 2 || line[i-2] != '<') && (i+1 == len(line) || line[i+1] != '<'):
				if m := hereDocument.FindSubmatch(line[i-1:]); m != nil {
					heredocs = append(heredocs, string(m[1])+string(m[2])+string(m[3]))
					if m[3] == nil { // step over the quoted word
						i += bytes.IndexAny(line[i+1:], `'"`) + 2 + len(m[1]) + len(m[2])
					}
				}
			case c == '#' && (i == 0 || bytes.IndexByte([]byte(" \t;("), line[i-1]) >= 0):
				if at > 0 || !bytes.HasPrefix(line, []byte("#!")) {
					show(prose, source, at+i+1, at+len(line))
					leader(prose, at+i, at+i+1)
				}
				i = len(line)
			}
		}
		at += len(line) + 1
	}
	return prose
}

var linkTarget = regexp.MustCompile(`\]\([^)\n]*\)|<[^>\n]+>`)

// markdownProse shows a Markdown file without code blocks and the targets of links.
func markdownProse(source []byte) []byte {
	prose := bytes.Clone(source)
	fenced, previous := "", ""
	for at := 0; at < len(source); {
		line := firstLine(source[at:])
		trimmed := strings.TrimLeft(string(line), " ")
		hide := fenced != ""
		switch {
		case fenced != "":
			if strings.HasPrefix(trimmed, fenced) {
				fenced = ""
			}
		case strings.HasPrefix(trimmed, "```"), strings.HasPrefix(trimmed, "~~~"):
			fenced, hide = trimmed[:3], true
		case strings.HasPrefix(string(line), "    ") && (previous == "" || previous == "code"):
			hide = true
		}
		if hide {
			copy(prose[at:], hidden(line))
		}
		previous = trimmed
		if hide {
			previous = "code"
		}
		at += len(line) + 1
	}
	for _, m := range linkTarget.FindAllIndex(prose, -1) {
		copy(prose[m[0]:m[1]], bytes.Repeat([]byte{0}, m[1]-m[0]))
	}
	return prose
}
