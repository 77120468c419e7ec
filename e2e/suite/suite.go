package suite

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// Suite is a package of end-to-end tests with deep tests.
type Suite struct {
	Name    string   // the folder in e2e
	Subject []string // pathspecs of git; a change of their content requires the deep tests
}

// All lists the suites. A path belongs to the subject of a suite if a mistake in it could go unnoticed in the core tests.
var All = []Suite{
	{"kubernetes", []string{
		"e2e/kubernetes", "e2e/kube", "modules/kubernetes", "modules/before-switch.nix",
		"deploy/engine", ":!deploy/engine/batch", ":!deploy/engine/flux", ":!deploy/engine/slurm", "deploy/rollout", ":(glob)deploy/*drain*", ":(glob)deploy/*member*", ":(glob)deploy/*roll*",
	}},
	{"provision", []string{
		"e2e/provision", "modules/guest.nix", "modules/image.nix",
		"deploy/provision", "deploy/machines", ":(glob)deploy/*machine*", "deploy/destroy.go",
	}},
}

// Find returns the suite with this name.
func Find(name string) (Suite, error) {
	var names []string
	for _, s := range All {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return Suite{}, fmt.Errorf("there is no suite %q with deep tests; there are %s", name, strings.Join(names, ", "))
}

// Root returns the folder of the repository.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "../..")
}

// Folder returns the path of the suite's tests, relative to the repository.
func (s Suite) Folder() string { return "e2e/" + s.Name }

// RecordFile returns the path of the record, relative to the repository.
func (s Suite) RecordFile() string { return s.Folder() + "/verified" }

var recordForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}\n$`)

// ReadRecord returns the hash of the subject with which all tests of the suite passed, or "" if there is no record.
func (s Suite) ReadRecord(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, s.RecordFile()))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if !recordForm.Match(text) {
		return "", fmt.Errorf("%s is not a line sha256:HASH; remove it, or run: make e2e-deep SUITES=%s", s.RecordFile(), s.Name)
	}
	return strings.TrimSpace(string(text)), nil
}

// WriteRecord writes the record.
func (s Suite) WriteRecord(root, hash string) error {
	return os.WriteFile(filepath.Join(root, s.RecordFile()), []byte(hash+"\n"), 0o644)
}

// IsUnchanged reports whether all tests of the suite have passed with the present subject.
func (s Suite) IsUnchanged(root string) (bool, error) {
	record, err := s.ReadRecord(root)
	if err != nil || record == "" {
		return false, err
	}
	hash, err := s.Hash(root)
	return hash == record, err
}

// ListTests returns the names of the suite's tests that call Deep, and of the others.
func (s Suite) ListTests(root string) (deep, core []string, err error) {
	files, err := filepath.Glob(filepath.Join(root, s.Folder(), "*_test.go"))
	if err != nil {
		return nil, nil, err
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			return nil, nil, err
		}
		for _, declaration := range parsed.Decls {
			f, ok := declaration.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") || f.Name.Name == "TestMain" {
				continue
			}
			if callsDeep(f) {
				deep = append(deep, f.Name.Name)
			} else {
				core = append(core, f.Name.Name)
			}
		}
	}
	slices.Sort(deep)
	slices.Sort(core)
	return deep, core, nil
}

// callsDeep reports whether the function calls suite.Deep.
func callsDeep(f *ast.FuncDecl) bool {
	calls := false
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Deep" {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == "suite" {
				calls = true
			}
		}
		return true
	})
	return calls
}
