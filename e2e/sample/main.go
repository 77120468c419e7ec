// Command sample prints comments and functions of the program, chosen at random, for a blind reading: a
// reader without context explains each from its text alone. What the reader cannot explain is rewritten.
//
//	go run ./e2e/sample -seed 1
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// text is one comment or function.
type text struct{ place, body string }

func main() {
	seed := flag.Uint64("seed", 1, "the same seed chooses the same texts")
	comments := flag.Int("comments", 40, "number of comments")
	functions := flag.Int("functions", 20, "number of functions")
	places := flag.Bool("places", false, "print only where the texts are")
	flag.Parse()
	log.SetFlags(0)
	var c, f []text
	for _, root := range []string{"cmd", "bench", "deploy", "nixeval", "modules", "internal"} {
		if err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			switch {
			case err != nil:
				return err
			case strings.HasSuffix(path, "_test.go"):
			case strings.HasSuffix(path, ".go"):
				err = readGo(path, data, &c, &f)
			case strings.HasSuffix(path, ".nix"), strings.HasSuffix(path, ".sh"):
				c = append(c, hashComments(path, string(data))...)
			}
			return err
		}); err != nil {
			log.Fatal(err)
		}
	}
	r := rand.New(rand.NewPCG(*seed, 0))
	for _, part := range []struct {
		name  string
		all   []text
		count int
	}{{"Comment", c, *comments}, {"Function", f, *functions}} {
		r.Shuffle(len(part.all), func(i, j int) { part.all[i], part.all[j] = part.all[j], part.all[i] })
		for i, t := range part.all[:min(part.count, len(part.all))] {
			if *places {
				fmt.Printf("%s %d: %s\n", part.name, i+1, t.place)
				continue
			}
			fmt.Printf("## %s %d\n\n%s\n\n", part.name, i+1, t.body)
		}
	}
}

// readGo adds the comments of at least eight words, each with its line of code and the declaration around it, and the functions of at
// least six lines.
func readGo(path string, data []byte, comments, functions *[]text) error {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, data, parser.ParseComments)
	if err != nil {
		return err
	}
	lines := strings.Split(string(data), "\n")
	for _, group := range file.Comments {
		body := strings.TrimSpace(group.Text())
		if len(strings.Fields(body)) < 8 {
			continue
		}
		begin, end := set.Position(group.Pos()), set.Position(group.End()).Line
		code := lines[begin.Line-1][:begin.Column-1] // of a comment after code
		if strings.TrimSpace(code) == "" && end < len(lines) {
			code = lines[end]
		}
		for _, d := range file.Decls {
			if d.Pos() <= group.Pos() && group.Pos() <= d.End() {
				code = "in " + strings.TrimSuffix(lines[set.Position(d.Pos()).Line-1], " {") + " …: " + strings.TrimSpace(code)
			}
		}
		*comments = append(*comments, text{place(begin), body + "\n    " + strings.TrimSpace(code)})
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || set.Position(f.End()).Line-set.Position(f.Pos()).Line < 6 {
			continue
		}
		begin := f.Pos()
		if f.Doc != nil {
			begin = f.Doc.Pos()
		}
		*functions = append(*functions, text{place(set.Position(f.Pos())), string(data[begin-file.FileStart : f.End()-file.FileStart])})
	}
	return nil
}

func place(p token.Position) string { return fmt.Sprintf("%s:%d", p.Filename, p.Line) }

// hashComments returns the comments of a shell script or a Nix file: consecutive lines that begin with #.
func hashComments(path, data string) []text {
	var out []text
	var group []string
	for i, line := range slices.Concat(strings.Split(data, "\n"), []string{""}) {
		if comment, ok := strings.CutPrefix(strings.TrimSpace(line), "# "); ok {
			group = append(group, comment)
			continue
		}
		if body := strings.Join(group, "\n"); len(strings.Fields(body)) >= 8 {
			out = append(out, text{fmt.Sprintf("%s:%d", path, i+1-len(group)), body + "\n    " + strings.TrimSpace(line)})
		}
		group = nil
	}
	return out
}
