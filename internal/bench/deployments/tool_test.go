package deployments

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/e2e/fixture"
)

func TestBuildArgv(t *testing.T) {
	program := &tool{program: "/bin/nixbench"}
	for _, c := range []struct {
		goal goal
		on   string
		want string
	}{
		{goalSwitch, "", "/bin/nixbench apply"}, {goalPush, "m1", "/bin/nixbench apply push --on m1"},
		{goalKeys, "", "/bin/nixbench upload-keys"}, {goalBuild, "", "/bin/nixbench build"},
	} {
		if got := strings.Join(program.buildArgv(c.goal, c.on), " "); got != c.want {
			t.Errorf("%s: %s", c.goal, got)
		}
	}
	line := &tool{command: "colmena apply $GOAL", dir: "/hive"}
	if got := line.buildArgv(goalPush, "m1"); !slices.Equal(got, []string{"sh", "-c", "colmena apply $GOAL"}) {
		t.Errorf("%q", got)
	}
	for on, want := range map[string]string{"m1": "ON=m1", "": "ON=*"} {
		env := line.buildEnv(goalPush, on, "/nixpkgs")
		for _, variable := range []string{want, "HIVE=/hive", "GOAL=push", "NIX_PATH=nixpkgs=/nixpkgs"} {
			if !slices.Contains(env, variable) {
				t.Errorf("the environment %q lacks %s", env, variable)
			}
		}
	}
}

// A scenario may begin with any values of the counters, but not with another nixpkgs or other keys.
func TestIsLike(t *testing.T) {
	applied := hive{line: 7, keys: 20, keyVersion: 8}
	for other, want := range map[hive]bool{{keys: 20}: true, {keys: 17}: false, {keys: 20, large: true}: false, {keys: 20, fresh: 3}: false} {
		if got := applied.isLike(other); got != want {
			t.Errorf("%+v: %v", other, got)
		}
	}
}

// What change does to the hive has an effect on every node, with each number.
func TestScenariosChangeTheHive(t *testing.T) {
	for _, s := range scenarios {
		before := hive{line: 1, keys: s.keys, keyVersion: 2}
		texts := map[string]bool{writeHiveText(t, before): true}
		if s.change == nil {
			continue
		}
		for n := range 2 {
			h := before
			s.change(&h, n+3)
			text := writeHiveText(t, h)
			if texts[text] && h.fresh == 0 && !(h.large && n == 1) {
				t.Errorf("%s: the hive is the same as before", s.name)
			}
			texts[text] = true
		}
	}
}

func writeHiveText(t *testing.T, h hive) string {
	t.Helper()
	fixture.Require(t, "nix-instantiate")
	dir := t.TempDir()
	if err := h.write(dir, "/lab/ssh_config", describeLarge(300, "salt"), []string{"m1", "m2"}); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"hive.nix", "large.nix"} {
		if out, err := exec.Command("nix-instantiate", "--parse", filepath.Join(dir, file)).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", file, err, out)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "hive.nix"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestValidate(t *testing.T) {
	if os.Geteuid() != 0 {
		if err := (&Options{}).validate(); err == nil || !strings.Contains(err.Error(), "root") {
			t.Errorf("%v", err)
		}
		t.Skip("needs root")
	}
	valid := Options{Machines: 1, Repeat: 1, Size: 1, Against: "tool_test.go"}
	ok := valid
	if err := ok.validate(); err != nil || !filepath.IsAbs(ok.Against) {
		t.Errorf("%v, %s", err, ok.Against)
	}
	for name, change := range map[string]func(*Options){
		"no machines":      func(o *Options) { o.Machines = 0 },
		"no runs":          func(o *Options) { o.Repeat = 0 },
		"negative load":    func(o *Options) { o.Load = -1 },
		"two tools":        func(o *Options) { o.AgainstCommand = "true" },
		"no such binary":   func(o *Options) { o.Against = "no-such-file" },
		"no such scenario": func(o *Options) { o.Scenarios = "lines" },
	} {
		o := valid
		change(&o)
		if err := o.validate(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// Each nixpkgs has a busybox of its own, which works.
func TestAssembleNixpkgs(t *testing.T) {
	fixture.Require(t, "busybox")
	dir := t.TempDir()
	found := map[string]bool{}
	for number := range 2 {
		nixpkgs, err := assembleNixpkgs(dir, "salt", number)
		if err != nil {
			t.Fatal(err)
		}
		busybox := filepath.Join(nixpkgs, "busybox/bin/busybox")
		if out, err := exec.Command(busybox, "true").CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		content, err := os.ReadFile(busybox)
		if err != nil {
			t.Fatal(err)
		}
		found[string(content)] = true
		again, err := assembleNixpkgs(dir, "salt", number)
		if content2, _ := os.ReadFile(busybox); err != nil || again != nixpkgs || string(content2) != string(content) {
			t.Errorf("the second call: %s, %v; the same content: %v", again, err, string(content2) == string(content))
		}
	}
	if len(found) != 2 {
		t.Error("two nixpkgs have the same busybox")
	}
}
