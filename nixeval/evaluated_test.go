package nixeval

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/fixture"
)

const emptyPath = "/nix/store/00000000000000000000000000000000-system"

func TestEvaluatedCheck(t *testing.T) {
	t.Parallel()
	for deployment, want := range map[string]string{
		`{"targetHost":"a","keys":{"k":{"name":"k","keyFile":"/k","destDir":"/run/keys","user":"root","group":"root","permissions":"0600"}}}`: "",
		`{"keys":{"k":{"name":"k","keyCommand":["sh"],"destDir":"/run/keys","user":"root","group":"root","permissions":"0600"}}}`:             "a: deployment.keys.k: a plan must not choose a program that runs on another computer",
		`{"keys":{"k":{"name":"k","text":"t","destDir":"/run/keys","user":"root","group":"root","permissions":"0600"}}}`:                      "a: deployment.keys.k: its text is in the hive",
		`{"keys":{"k":{"name":"k","generated":{"secret":"s"},"destDir":"/run/keys","user":"root","group":"root","permissions":"0600"}}}`:      "a: deployment.keys.k: it is generated",
		`{"engine":{"kind":"slurm"}}`:         "a: it belongs to a cluster",
		`{"sshOptions":["-oHostKeyAlias=x"]}`: "a: deployment.sshOptions: a plan must not",
		`{"client":"slurm"}`:                  "a: it belongs to a cluster",
		`{"targetHost":"-oProxy=sh"}`:         "a: deployment.targetHost",
		`{"healthChecks":{"c":{"command":["sh"],"from":"here","timeout":9,"interval":1}}}`:           "a: deployment.healthChecks.c: a plan must not choose a program",
		`{"healthChecks":{"c":{"command":["sh"],"from":"node","timeout":9,"interval":1}}}`:           "",
		`{"healthChecks":{"c":{"http":"http://u:p@x/","from":"node","timeout":9,"interval":1}}}`:     "a: deployment.healthChecks.c: the URL in a plan must have neither a user nor parameters",
		`{"healthChecks":{"c":{"http":"http://x/?token=t","from":"here","timeout":9,"interval":1}}}`: "a: deployment.healthChecks.c: the URL in a plan must have neither a user nor parameters",
	} {
		checkEvaluated(t, `{"survey":{"named":["a"],"deployments":{"a":`+deployment+`}},"systems":{"a":{"drv":"`+emptyPath+`","out":"`+emptyPath+`"}}}`, want)
	}
	for text, want := range map[string]string{
		`{}`:                      "it must contain named nodes",
		`{"survey":{"named":[]}}`: "it must contain named nodes",
		`{"survey":{"named":["a"],"roles":{"w":{"count":1}}}}`:                                                                            "nothing else of a hive",
		`{"survey":{"named":["a"],"cluster":{}}}`:                                                                                         "nothing else of a hive",
		`{"survey":{"named":["a"],"meta":{"machinesFile":"/etc/machines"}}}`:                                                              "nothing else of a hive",
		`{"survey":{"named":["../a"]}}`:                                                                                                   "a node's name",
		`{"survey":{"named":["a"],"deployments":{"a":{}}}}`:                                                                               `a: its system "" is not the path of a built system in the store`,
		`{"survey":{"named":["a"],"deployments":{"a":{}}},"systems":{"a":{"out":"--help"}}}`:                                              `a: its system "--help" is not the path of a built system in the store`,
		`{"survey":{"named":["a"],"deployments":{"a":{}}},"systems":{"a":{"drv":"` + emptyPath + `.drv","out":"` + emptyPath + `.drv"}}}`: `is not the path of a built system in the store`,
		`{"survey":{"named":["a"],"deployments":{"a":{}}},"systems":{"b":{"out":"` + emptyPath + `"}}}`:                                   `a: its system "" is not the path of a built system in the store`,
	} {
		checkEvaluated(t, text, want)
	}
}

func checkEvaluated(t *testing.T, text, want string) {
	t.Helper()
	var e Evaluated
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		t.Fatal(err)
	}
	switch err := e.Check(); {
	case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("%s: %v, want %q", text, err, want)
	}
}

// With the results of evaluations, Nix only fetches systems, and evaluates nothing.
func TestEvaluatedFetches(t *testing.T) {
	fixture.Require(t, "nix", "nix-store")
	t.Setenv("NIX_CONFIG", fixture.NixConfig)
	dir := t.TempDir()
	file, cache := filepath.Join(dir, "system"), "file://"+filepath.Join(dir, "cache")
	if err := os.WriteFile(file, []byte(dir), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(argv ...string) string {
		t.Helper()
		out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	path := run("nix-store", "--add", file)
	run("nix", "--extra-experimental-features", "nix-command", "copy", "--to", cache, path)
	run("nix-store", "--delete", path)
	e := New(Options{
		Source:     Source{File: "/missing"},
		Evaluated:  &Evaluated{Survey: &surveyResult{Named: []string{"a"}}, Systems: map[string]Closure{"a": {Drv: emptyPath, Out: path}}},
		NixOptions: [][2]string{{"extra-substituters", cache}, {"require-sigs", "false"}},
	})
	hive, err := e.Survey(t.Context())
	if err != nil || len(hive.Nodes) != 1 {
		t.Fatalf("%+v, %v", hive, err)
	}
	systems, err := e.Instantiate(t.Context(), []string{"a"}, nil)
	if err != nil || systems["a"].Out != path {
		t.Fatalf("%v, %v", systems, err)
	}
	built, err := e.Build(t.Context(), systems, "")
	if err != nil || len(built) != 1 || run("nix-store", "--check-validity", path) != "" {
		t.Errorf("%v, %v", built, err)
	}
	systems["a"] = Closure{Drv: emptyPath, Out: emptyPath}
	e.Evaluated.Systems["a"] = systems["a"]
	var failed *BuildError
	if _, err := e.Build(t.Context(), systems, ""); !errors.As(err, &failed) || len(failed.Failures) != 1 || !strings.Contains(failed.Failures[0].Error(), emptyPath+" is neither in the local store nor in a substituter") {
		t.Errorf("%v", err)
	}
	if _, err := e.Introspect(t.Context(), Expression{Text: "{ ... }: 1"}); err == nil || !strings.Contains(err.Error(), "contains no hive") {
		t.Errorf("%v", err)
	}
}
