package nixeval

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nixbench/nixbench/deploy/failure"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestFindSource(t *testing.T) {
	top := t.TempDir()
	deep := filepath.Join(top, "a", "b")
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	hive, flake := filepath.Join(top, "hive.nix"), filepath.Join(top, "flake.nix")
	find := func() Source {
		t.Helper()
		s, err := FindSource(deep)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if _, err := FindSource(deep); err == nil || !strings.Contains(err.Error(), "no hive.nix") {
		t.Errorf("without a hive: %v", err)
	}
	write(t, flake, `{ outputs = _: { devShells = 1; }; }`)
	if s := find(); !s.IsFlake() || s.Flake != "path:"+top || !s.Copied || s.Dir != top {
		t.Errorf("a flake alone is the hive, got %+v", s)
	}
	write(t, hive, `{ }`)
	if s := find(); s.File != hive || s.Dir != top {
		t.Errorf("a flake for other things yields to hive.nix, got %+v", s)
	}
	for _, text := range []string{`{ nixbenchHive = 1; }`, `{ colmenaHive = 1; }`, `{ colmena = 1; }`} {
		write(t, flake, text)
		if s := find(); !s.IsFlake() {
			t.Errorf("%s speaks of a hive, got %+v", text, s)
		}
	}
	if err := os.Mkdir(filepath.Join(top, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	if s := find(); s.Flake != "git+file://"+top || s.Copied {
		t.Errorf("inside git it is git's view, got %+v", s)
	}
	write(t, filepath.Join(deep, "hive.nix"), `{ }`)
	if s := find(); s.File != filepath.Join(deep, "hive.nix") {
		t.Errorf("the nearest hive counts, got %+v", s)
	}
}

// A hive that another user could have written is not found. With its name, it is used.
func TestFindSourceOfOthers(t *testing.T) {
	for name, c := range map[string]struct {
		change func(top, folder, hive string) error
		want   string
	}{
		"own":                     {func(_, _, _ string) error { return nil }, ""},
		"file of another":         {func(_, _, hive string) error { return os.Lchown(hive, 4711, 4711) }, "hive.nix: it belongs to user 4711, and user 0 runs nixbench"},
		"folder of another":       {func(_, folder, _ string) error { return os.Lchown(folder, 4711, 0) }, "/shared: it belongs to user 4711"},
		"folder above of another": {func(top, _, _ string) error { return os.Lchown(top, 4711, 0) }, "it belongs to user 4711"},
		"of the caller of sudo": {func(_, _, hive string) error {
			return errors.Join(os.Setenv("SUDO_UID", "4711"), os.Lchown(hive, 4711, 0))
		}, ""},
		"others write to file":   {func(_, _, hive string) error { return os.Chmod(hive, 0o666) }, "others can write to it (mode 0666)"},
		"others write to folder": {func(_, folder, _ string) error { return os.Chmod(folder, 0o777) }, "/shared: it belongs to user "},
		"group writes to folder": {func(_, folder, _ string) error {
			return errors.Join(os.Lchown(folder, -1, 4711), os.Chmod(folder, 0o775))
		}, "others can write"},
		"own group writes": {func(_, folder, _ string) error {
			return errors.Join(os.Lchown(folder, -1, os.Getuid()), os.Chmod(folder, 0o775))
		}, ""},
		"sticky folder": {func(_, folder, _ string) error { return os.Chmod(folder, 0o777|os.ModeSticky) }, ""},
		"sticky, and another's": {func(_, folder, hive string) error {
			return errors.Join(os.Chmod(folder, 0o777|os.ModeSticky), os.Lchown(hive, 4711, 0))
		}, "belongs to user 4711"},
		"link of another": {func(top, _, hive string) error {
			return errors.Join(os.Rename(hive, filepath.Join(top, "x")), os.Symlink("../x", hive), os.Lchown(hive, 4711, 0))
		}, "belongs to user 4711"},
		"link to a file of another": {func(top, _, hive string) error {
			to := filepath.Join(top, "x")
			return errors.Join(os.Rename(hive, to), os.Symlink("../x", hive), os.Lchown(to, 4711, 0))
		}, "/x: it belongs to user 4711"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("SUDO_UID", "")
			top := t.TempDir()
			folder := filepath.Join(top, "shared")
			hive, deep := filepath.Join(folder, "hive.nix"), filepath.Join(folder, "a", "b")
			write(t, hive, "{ }")
			write(t, filepath.Join(deep, "x"), "")
			if err := c.change(top, folder, hive); errors.Is(err, os.ErrPermission) {
				t.Skip("this test needs root: ", err)
			} else if err != nil {
				t.Fatal(err)
			}
			if _, err := FindSource(deep); c.want == "" && err != nil || c.want != "" &&
				(err == nil || !strings.Contains(err.Error(), c.want) || failure.KindOf(err) != failure.Usage || failure.Hint(err) != "if you trust it, name it: -f "+hive) {
				t.Errorf("%v, %s, want %q", err, failure.Hint(err), c.want)
			}
			if _, err := ParseFileSource(hive); err != nil {
				t.Errorf("-f: %v", err)
			}
		})
	}
}

func TestFileAndFlakeArguments(t *testing.T) {
	top := filepath.Join(t.TempDir(), `a b'"c`)
	write(t, filepath.Join(top, "hive.nix"), `{ }`)
	write(t, filepath.Join(top, "f", "flake.nix"), `{ }`)
	write(t, filepath.Join(top, "g", ".git", "HEAD"), "")
	write(t, filepath.Join(top, "g", ".git", "shallow"), "")
	write(t, filepath.Join(top, "g", "sub dir", "flake.nix"), `{ }`)
	write(t, filepath.Join(top, "g", "a&b c", "flake.nix"), `{ }`)
	write(t, filepath.Join(top, "empty", "x"), "")
	enc := strings.NewReplacer(" ", "%20", `"`, "%22", "'", "%27").Replace(top)
	t.Chdir(top)
	file := func(s string) (Source, error) { return ParseFileSource(s) }
	for _, tc := range []struct {
		of        func(string) (Source, error)
		arg, want string
		err       string
	}{
		{of: file, arg: "hive.nix", want: filepath.Join(top, "hive.nix")},
		{of: file, arg: ".", want: filepath.Join(top, "hive.nix")},
		{of: file, arg: "f", want: "path:" + enc + "/f"},
		{of: file, arg: "f/flake.nix", want: "path:" + enc + "/f"},
		{of: file, arg: "empty", err: "neither hive.nix nor flake.nix"},
		{of: file, arg: "nope.nix", err: "no such file"},
		{of: file, arg: "github:a/b", want: "github:a/b"}, // a flake reference, as in Colmena
		{of: file, arg: "path:/a/b", want: "path:/a/b"},
		{of: file, arg: ".#x", err: "--flake .#x"},
		{of: ParseFlakeSource, arg: "f", want: "f"}, // a name from the registry, as in Nix
		{of: ParseFlakeSource, arg: "./f", want: "path:" + enc + "/f"},
		{of: ParseFlakeSource, arg: ".?dir=f#x", err: "use the folder of the flake"},
		{of: ParseFlakeSource, arg: "./g/a&b c", want: "git+file://" + enc + "/g?dir=a%26b%20c&shallow=1"},
		{of: ParseFlakeSource, arg: "./f#x.y", want: "path:" + enc + "/f#x.y"},
		{of: ParseFlakeSource, arg: "./g/sub dir", want: "git+file://" + enc + "/g?dir=sub%20dir&shallow=1"},
		{of: ParseFlakeSource, arg: "github:a/b#hive", want: "github:a/b#hive"},
		{of: ParseFlakeSource, arg: "nixpkgs", want: "nixpkgs"},
		{of: ParseFlakeSource, arg: "./nope", err: "no such file"},
		{of: ParseFlakeSource, arg: "./empty", err: "no flake.nix"},
		{of: ParseFlakeSource, arg: "./hive.nix", err: "use the folder"},
	} {
		got, err := tc.of(tc.arg)
		switch {
		case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
			t.Errorf("%s: error %v, want %q in it", tc.arg, err, tc.err)
		case tc.err == "" && err != nil:
			t.Errorf("%s: %v", tc.arg, err)
		case tc.err == "" && got.String() != tc.want:
			t.Errorf("%s: %s, want %s", tc.arg, got, tc.want)
		}
	}
	// The state must not be in a folder that Nix copies into the store.
	if s, err := ParseFlakeSource("path:" + top + "?x=1"); err != nil || !s.Copied || s.Dir != top {
		t.Errorf("path: gave %+v, %v", s, err)
	}
}
