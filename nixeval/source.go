package nixeval

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
)

// Source is where a hive comes from: a file or a flake.
type Source struct {
	File  string // absolute path of a hive.nix; empty for a flake
	Flake string // flake reference without fragment; empty for a file
	Attr  string // flake output that the user selected; empty to try flakeAttrs
	// Dir is the folder on this machine in which the state folder is created: the folder of the
	// hive, or for a remote flake the working directory.
	Dir string
	// Copied means that Nix copies Dir with all its files into the store, which all users can read. Nix does this for a flake
	// outside of git. If Copied is true, no secret may be stored in Dir.
	Copied bool
}

// hiveOutputs are the flake outputs that can contain a hive, in the order in which they are tried: the hive of nixbench, the
// raw hive of Colmena, which accepts --set, and a hive that Colmena's makeHive has evaluated.
var hiveOutputs = []string{"nixbenchHive", "colmena", "colmenaHive"}

// configurationsOutput is the flake output with NixOS systems. nixbench uses each system in it as a node, too.
const configurationsOutput = "nixosConfigurations"

// rootAttrs are two attribute paths for the set of all outputs of a flake. Nix 2.8 does not know the first one. For the second
// one, Nix 2.8 returns the flake's packages if the flake has packages for this machine.
var rootAttrs = []string{".", `""`}

// flakeAttrs are the attributes of a flake that are tried if the user selects no output, in this order: the set of all
// outputs, and if Nix cannot evaluate it, single outputs.
var flakeAttrs = slices.Concat(rootAttrs, hiveOutputs, []string{configurationsOutput})

// String returns the name of the source for messages: the path of the file, or the flake reference with the output.
func (s Source) String() string {
	switch {
	case s.File != "":
		return s.File
	case s.Attr != "":
		return s.Flake + "#" + s.Attr
	}
	return s.Flake
}

// IsFlake reports whether the hive is a flake output, which Nix evaluates in pure mode.
func (s Source) IsFlake() bool { return s.Flake != "" }

// ErrNoHive is the error of FindSource if there is no hive.
var ErrNoHive = errors.New("there is no hive.nix or flake.nix")

// FindSource returns the nearest hive in dir or a folder above it. It returns a usage error if
// no folder contains a hive, or if other users could have written the hive.
func FindSource(dir string) (Source, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Source{}, err
	}
	for _, d := range andAbove(dir) {
		if s, ok, err := findSourceIn(d); ok || err != nil {
			if err == nil {
				file := cmp.Or(s.File, filepath.Join(d, "flake.nix"))
				if err = CheckTrust(file); err != nil {
					err = failure.WithHint(err, "if you trust it, name it: -f "+file)
				}
			}
			return s, err
		}
	}
	return Source{}, failure.NewUsage("%w in %s or a folder above it; select one with -f FILE or --flake REF, or write one with nixbench init", ErrNoHive, dir)
}

// findSourceIn returns the hive in one folder, and whether the folder has one. If the folder has
// both hive.nix and flake.nix, the flake is used only if its text contains the name of a hive
// output, because many projects have a flake for other purposes.
func findSourceIn(dir string) (Source, bool, error) {
	hive, flake := filepath.Join(dir, "hive.nix"), filepath.Join(dir, "flake.nix")
	if isFile(flake) {
		text, err := durable.Read(flake, durable.ConfigSize)
		if err != nil {
			return Source{}, false, err
		}
		if !isFile(hive) || strings.Contains(string(text), hiveOutputs[0]) || strings.Contains(string(text), "colmena") {
			s, err := ParseFlakeSource(dir)
			return s, err == nil, err
		}
	}
	return Source{File: hive, Dir: dir}, isFile(hive), nil
}

// ParseFileSource parses the argument of -f: a hive file, a flake.nix, a folder with one of them, or a flake
// reference with a colon.
func ParseFileSource(path string) (Source, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return Source{}, err
	}
	info, err := os.Stat(abs)
	switch {
	case err != nil && strings.Contains(path, ":"): // a flake reference, as in Colmena
		return ParseFlakeSource(path)
	case err != nil && strings.Contains(path, "#"):
		return Source{}, failure.NewUsage("-f %s: no such file; for a flake reference use --flake %s", path, path)
	case err != nil:
		return Source{}, failure.NewUsage("-f %s: %v", path, errors.Unwrap(err))
	case info.IsDir():
		s, ok, err := findSourceIn(abs)
		if err == nil && !ok {
			err = failure.NewUsage("-f %s: the folder has neither hive.nix nor flake.nix", path)
		}
		return s, err
	case filepath.Base(abs) == "flake.nix":
		return ParseFlakeSource(filepath.Dir(abs))
	}
	if err := durable.CheckRegular(info); err != nil { // an error for a pipe, which Nix would read without end
		return Source{}, failure.NewUsage("-f %s: %v", path, err)
	}
	return Source{File: abs, Dir: filepath.Dir(abs)}, nil
}

// ParseFlakeSource parses the argument of --flake. If the argument is a folder, ParseFlakeSource
// converts it to an absolute URL, because Nix's short form for folders allows neither spaces nor
// quotes. The URL of a folder in a git repository begins with git+file:, so that Nix reads only the
// files that git tracks. Otherwise it begins with path:, and Copied is true.
func ParseFlakeSource(ref string) (Source, error) {
	ref, attr, _ := strings.Cut(ref, "#")
	s := Source{Flake: ref, Attr: attr}
	var err error
	if s.Dir, err = os.Getwd(); err != nil {
		return Source{}, err
	}
	ref = cmp.Or(ref, ".")
	// As in Nix, a reference that begins with a dot or a slash names a folder. Any other reference is a URL or a name in the
	// registry.
	if !strings.HasPrefix(ref, ".") && !strings.HasPrefix(ref, "/") {
		if dir, ok := strings.CutPrefix(ref, "path:"); ok && filepath.IsAbs(dir) {
			dir, _, _ = strings.Cut(dir, "?")
			s.Dir, s.Copied = dir, true
		}
		return s, nil
	}
	info, err := os.Stat(ref)
	switch {
	case err != nil && strings.Contains(ref, "?"):
		return Source{}, failure.NewUsage("--flake %s: parameters need path:… or git+file:…; for ?dir= use the folder of the flake", ref)
	case err != nil:
		return Source{}, failure.NewUsage("--flake %s: %v", ref, errors.Unwrap(err)) // without the path
	case !info.IsDir():
		return Source{}, failure.NewUsage("--flake %s: use the folder of the flake, not a file in it", ref)
	case !isFile(filepath.Join(ref, "flake.nix")):
		return Source{}, failure.NewUsage("--flake %s: the folder has no flake.nix", ref)
	}
	s.Dir, err = filepath.Abs(ref)
	s.Flake, s.Copied = flakeRefOfFolder(s.Dir)
	return s, err
}

// flakeRefOfFolder returns the flake reference for a folder. copied means that Nix copies the folder with all its files into the
// store, which Nix does outside of a git repository.
func flakeRefOfFolder(dir string) (ref string, copied bool) {
	for _, top := range andAbove(dir) {
		if _, err := os.Lstat(filepath.Join(top, ".git")); err == nil {
			u := url.URL{Scheme: "git+file", Path: top}
			var query []string
			if rel, _ := filepath.Rel(top, dir); rel != "." {
				query = append(query, "dir="+strings.ReplaceAll(url.QueryEscape(rel), "+", "%20"))
			}
			if isFile(filepath.Join(top, ".git", "shallow")) {
				query = append(query, "shallow=1") // old versions of Nix reject a shallow clone without this parameter
			}
			u.RawQuery = strings.Join(query, "&")
			return u.String(), false
		}
	}
	return "path:" + (&url.URL{Path: dir}).EscapedPath(), true
}

// andAbove returns a file or folder, and all folders above it.
func andAbove(path string) []string {
	if top := filepath.Dir(path); top != path {
		return append([]string{path}, andAbove(top)...)
	}
	return []string{path}
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// noHiveMessage returns the error message for a flake that has neither a hive nor nixosConfigurations.
func noHiveMessage(source Source) string {
	also := ""
	if file := filepath.Join(source.Dir, "hive.nix"); isFile(file) {
		also = "; to use the hive.nix beside it: -f " + file
	}
	return fmt.Sprintf("%s has no output with a hive (%s), and no %s%s", source, strings.Join(hiveOutputs, ", "), configurationsOutput, also)
}

// isMissingOutput reports whether Nix's error says that the flake has no output attr, or that attr is not the set of all outputs
// of the flake.
func isMissingOutput(source Source, err error, attr string) bool {
	var ne *NixError
	if !errors.As(err, &ne) {
		return false
	}
	if attr == rootAttrs[1] && ne.Raw == ourPrefix+noHiveMessage(source) {
		return true
	}
	return strings.Contains(ne.Raw, "does not provide attribute") && (strings.Contains(ne.Raw, "'"+attr+"'") || slices.Contains(rootAttrs, attr))
}
