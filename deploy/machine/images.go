package machine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/nixeval"
)

// loadImages returns the image for each key. If a role has no option image, it builds the role's image.
func (m *Manager) loadImages(ctx context.Context, keys []changes.ImageKey) (map[changes.ImageKey]provider.Image, error) {
	out := map[changes.ImageKey]provider.Image{}
	var errs []error
	unset := map[provider.Kind][]string{} // roles without the option image
	for _, key := range keys {
		path := m.Hive.Roles[key.Role].Image
		if path == nil {
			unset[key.Kind] = append(unset[key.Kind], key.Role)
			continue
		}
		if isUnbuilt(*path) {
			if err := m.Eval.WithoutFacts().RealiseImage(ctx, key.Role); err != nil {
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
		errs = append(errs, m.buildImages(ctx, kind, unset[kind], out))
	}
	return out, errors.Join(errs...)
}

func (m *Manager) buildImages(ctx context.Context, kind provider.Kind, roles []string, out map[changes.ImageKey]provider.Image) error {
	e := m.Eval.WithoutFacts()
	closures, err := e.Images(ctx, string(kind), roles)
	if err != nil {
		var bad *nixeval.NixError
		if errors.As(err, &bad) {
			err = &nixeval.EvalError{Units: map[string]*nixeval.NixError{"image of " + strings.Join(roles, ", "): bad}}
		}
		return err
	}
	built, buildErr := e.Build(ctx, closures, m.Hive.Meta.MachinesFile)
	errs := []error{buildErr}
	roots := map[string]nixeval.Closure{}
	for _, role := range built {
		i, err := readImage(role, closures[role].Out)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out[changes.ImageKey{Role: role, Kind: kind}] = i
		roots["image-"+role+"-"+string(kind)] = closures[role]
	}
	if m.Keep != nil && len(roots) > 0 {
		errs = append(errs, m.Keep(roots))
	}
	return errors.Join(errs...)
}

// findImage returns the image that the option image of a role names. The result is empty if the image has to be built.
func (m *Manager) findImage(role string) (provider.Image, error) {
	path := m.Hive.Roles[role].Image
	if path == nil || isUnbuilt(*path) {
		return provider.Image{}, nil
	}
	return readImage(role, *path)
}

func isUnbuilt(path string) bool {
	return strings.HasPrefix(path, "/nix/store/") && !durable.Exists(path)
}
