package image

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/nixeval"
)

// Key identifies the image that a role boots from on hypervisors of a kind.
type Key struct {
	Role string
	Kind provider.Kind
}

type Loader struct {
	Hive *nixeval.Hive
	Eval *nixeval.Evaluator                           // builds the images of roles without the option image
	Keep func(built map[string]nixeval.Closure) error // creates garbage collector roots for built images, under the given names; nil: no roots
}

// Load returns the image for each key. If a role has no option image, Load builds the role's image.
func (l Loader) Load(ctx context.Context, keys []Key) (map[Key]provider.Image, error) {
	out := map[Key]provider.Image{}
	var errs []error
	unset := map[provider.Kind][]string{} // roles without the option image
	for _, key := range keys {
		path := l.Hive.Roles[key.Role].Image
		if path == nil {
			unset[key.Kind] = append(unset[key.Kind], key.Role)
			continue
		}
		if isUnbuilt(*path) {
			if err := l.Eval.WithoutFacts().RealiseImage(ctx, key.Role); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		i, err := readImage(key.Role, *path)
		if errs = append(errs, err); err == nil {
			out[key] = i
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(unset)) {
		errs = append(errs, l.build(ctx, kind, unset[kind], out))
	}
	return out, errors.Join(errs...)
}

func (l Loader) build(ctx context.Context, kind provider.Kind, roles []string, out map[Key]provider.Image) error {
	e := l.Eval.WithoutFacts()
	closures, err := e.Images(ctx, string(kind), roles)
	if err != nil {
		var bad *nixeval.NixError
		if errors.As(err, &bad) {
			err = &nixeval.EvalError{Units: map[string]*nixeval.NixError{"image of " + strings.Join(roles, ", "): bad}}
		}
		return err
	}
	built, buildErr := e.Build(ctx, closures, l.Hive.Meta.MachinesFile)
	errs := []error{buildErr}
	roots := map[string]nixeval.Closure{}
	for _, role := range built {
		i, err := readImage(role, closures[role].Out)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out[Key{Role: role, Kind: kind}] = i
		roots["image-"+role+"-"+string(kind)] = closures[role]
	}
	if l.Keep != nil && len(roots) > 0 {
		errs = append(errs, l.Keep(roots))
	}
	return errors.Join(errs...)
}

// Find returns the image that the option image of a role names. The result is empty if the image has to be built.
func (l Loader) Find(role string) (provider.Image, error) {
	path := l.Hive.Roles[role].Image
	if path == nil || isUnbuilt(*path) {
		return provider.Image{}, nil
	}
	return readImage(role, *path)
}

// Examine returns a finding for the image of each role. An image that is not built yet is no error.
func (l Loader) Examine() []provider.Finding {
	var out []provider.Finding
	for _, role := range slices.Sorted(maps.Keys(l.Hive.Roles)) {
		path := l.Hive.Roles[role].Image
		f := provider.Finding{What: "image", State: provider.FindingOK, Where: "role " + role, Text: "it will be built when it is needed"}
		switch {
		case path == nil:
		case isUnbuilt(*path):
			f.Text = *path + " will be built when it is needed"
		default:
			if i, err := readImage(role, *path); err == nil {
				f.Text = fmt.Sprintf("%s, %s", *path, i.Format)
			} else {
				f.State, f.Text, f.Fix, f.Err = provider.FindingError, err.Error(), failure.Hint(err), err
			}
		}
		out = append(out, f)
	}
	return out
}

func isUnbuilt(path string) bool {
	return strings.HasPrefix(path, "/nix/store/") && !durable.Exists(path)
}
