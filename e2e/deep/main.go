// Deep runs all tests of suites that have deep tests, and records that they passed, so that CI skips the deep tests until
// the subject of the suite changes. With -list it runs nothing, and prints which deep tests CI runs and skips.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/e2e/suite"
)

func main() {
	list := flag.Bool("list", false, "print which deep tests are skipped in CI and why, and run nothing")
	parallel := flag.Int("parallel", 2, "how many tests run at the same time")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: deep [-parallel N] SUITE... | deep -list")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *list == (flag.NArg() > 0) {
		flag.Usage()
		os.Exit(2)
	}
	err := error(nil)
	if *list {
		err = printDecisions(os.Stdout, suite.Root())
	} else {
		err = verify(suite.Root(), flag.Args(), *parallel)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// printDecisions prints for each suite whether its deep tests run, and the names of those that are skipped.
func printDecisions(w io.Writer, root string) error {
	for _, s := range suite.All {
		unchanged, err := s.IsUnchanged(root)
		if err != nil {
			return err
		}
		if !unchanged {
			fmt.Fprintf(w, "%s: all tests run: its subject has changed since they passed, or they are not recorded as passed\n", s.Folder())
			continue
		}
		deep, _, err := s.ListTests(root)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s: skipped: %s\n  %s\n", s.Folder(), s.SkipReason(), strings.Join(deep, "\n  "))
	}
	return nil
}

// verify runs all tests of the suites, and writes the record of each suite that passed. It needs a clean tree, so that
// the record describes a commit.
func verify(root string, names []string, parallel int) error {
	var suites []suite.Suite
	for _, name := range names {
		s, err := suite.Find(name)
		if err != nil {
			return err
		}
		suites = append(suites, s)
	}
	status, err := exec.Command("git", "-C", root, "status", "--porcelain").Output()
	if err != nil {
		return fmt.Errorf("git status in %s: %w", root, err)
	}
	if len(status) > 0 {
		return fmt.Errorf("the tree is not clean: commit or remove these changes first:\n%s", status)
	}
	for _, s := range suites {
		if err := verifySuite(root, s, parallel); err != nil {
			return err
		}
	}
	return nil
}

// Only if so few tests failed, they run once more: more failures have a common cause.
const maxRepeated = 3

// verifySuite runs all tests of a suite, and those that failed once more, by themselves, as `make e2e` does. It writes the record
// if all have passed, none was skipped, and the subject did not change meanwhile.
func verifySuite(root string, s suite.Suite, parallel int) error {
	before, err := s.Hash(root)
	if err != nil {
		return err
	}
	r, err := runTests(root, s, parallel, "")
	if err != nil && len(r.failed) > 0 && len(r.failed) <= maxRepeated {
		fmt.Printf("these tests failed, and run once more: %s\n", strings.Join(r.failed, ", "))
		first := r
		r, err = runTests(root, s, 1, "^("+strings.Join(r.failed, "|")+")$")
		r.passed = append(r.passed, first.passed...)
		r.skipped = append(r.skipped, first.skipped...)
	}
	if err != nil {
		return fmt.Errorf("%s: go test: %w", s.Folder(), err)
	}
	if len(r.skipped) > 0 {
		return fmt.Errorf("%s: no record is written, because tests were skipped: %s", s.Folder(), strings.Join(r.skipped, ", "))
	}
	deep, core, err := s.ListTests(root)
	if err != nil {
		return err
	}
	for _, name := range append(deep, core...) { // go test runs no more tests after a panic or its time limit
		if !slices.Contains(r.passed, name) {
			return fmt.Errorf("%s: no record is written, because %s has not run", s.Folder(), name)
		}
	}
	after, err := s.Hash(root)
	if err != nil {
		return err
	}
	if after != before {
		return fmt.Errorf("%s: no record is written, because the subject has changed during the tests", s.Folder())
	}
	if err := s.WriteRecord(root, after); err != nil {
		return err
	}
	fmt.Printf("all tests of %s passed; commit %s\n", s.Folder(), s.RecordFile())
	return nil
}

// runTests runs the tests of a suite whose names match a pattern, or all.
func runTests(root string, s suite.Suite, parallel int, pattern string) (results, error) {
	cmd := exec.Command("go", "test", "-v", "-count=1", fmt.Sprintf("-parallel=%d", parallel), "-timeout=150m", "-run", pattern, "./"+s.Folder())
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "NIXBENCH_E2E=1", "NIXBENCH_REQUIRE=1", "NIXBENCH_DEEP=all")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return results{}, err
	}
	if err := cmd.Start(); err != nil {
		return results{}, err
	}
	r := copyAndReadResults(os.Stdout, out)
	return r, cmd.Wait()
}

// results are the names of tests, as in the output of go test -v.
type results struct {
	passed, failed []string // without subtests
	skipped        []string
}

// copyAndReadResults copies the output of go test -v.
func copyAndReadResults(w io.Writer, r io.Reader) results {
	var names results
	reader := bufio.NewReader(r)
	for {
		line, err := reader.ReadString('\n')
		_, _ = io.WriteString(w, line)
		if state, name, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			name, _, _ = strings.Cut(name, " ")
			isSubtest := strings.HasPrefix(line, " ")
			switch {
			case state == "--- SKIP":
				names.skipped = append(names.skipped, name)
			case state == "--- FAIL" && !isSubtest:
				names.failed = append(names.failed, name)
			case state == "--- PASS" && !isSubtest:
				names.passed = append(names.passed, name)
			}
		}
		if err != nil {
			return names
		}
	}
}
