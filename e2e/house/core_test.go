package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCoreTestsExist fails if e2e/core.txt lists a test that does not exist: go test would run nothing, and pass.
func TestCoreTestsExist(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "e2e/core.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range regexp.MustCompile(`(?m)^[^#\n].*$`).FindAllString(string(text), -1) {
		words := strings.Fields(line)
		if len(words) < 4 || !definesTest(t, words[0], words[1]) {
			t.Errorf("e2e/core.txt: %q: want a package, a test of this package, seconds and a text", line)
		}
	}
}

func definesTest(t *testing.T, pkg, name string) bool {
	files, err := filepath.Glob(filepath.Join(root(t), pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+name+"(") {
			return true
		}
	}
	return false
}
