package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A page with more than 150 lines begins with links to its sections. TestLinks of cmd/nixbench checks that links have a target.
func TestLongPagesHaveContents(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) < 10 {
		t.Fatal(pages, err)
	}
	section := regexp.MustCompile("(?m)^## (.*)$")
	code := regexp.MustCompile("(?ms)^ *```.*?^ *```")
	for _, page := range pages {
		if filepath.Base(page) == "commands.md" { // generated: it lists the commands
			continue
		}
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		text := code.ReplaceAllString(string(data), "")
		begin, _, _ := strings.Cut(text, "\n## ")
		for _, m := range section.FindAllStringSubmatch(text, -1) {
			if strings.Count(string(data), "\n") > 150 && !strings.Contains(begin, "["+m[1]+"](#") && !strings.Contains(begin, "[`"+m[1]+"`](#") {
				t.Errorf("%s: no link to the section %q at its beginning", filepath.Base(page), m[1])
			}
		}
	}
}
