package docs

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// CONTRIBUTING.md lists the commands that CI runs. They must be the steps of .ci/run.
func TestContributingListsStepsOfCI(t *testing.T) {
	matches := func(file, pattern string) (out []string) {
		text, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
			out = append(out, strings.TrimSpace(m[1]))
		}
		return out
	}
	steps := matches(".ci/run", `(?m)^step (.*)$`)
	listed := matches("CONTRIBUTING.md", `(?m)^    ([^#\n]*)`)
	if len(steps) == 0 {
		t.Error(".ci/run has no steps")
	}
	if diff := cmp.Diff(steps, listed); diff != "" {
		t.Errorf("commands of .ci/run (-) and of CONTRIBUTING.md (+) differ:\n%s", diff)
	}
}
