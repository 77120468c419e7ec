package machine

import (
	"context"
	"errors"
	"maps"
	"strings"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/machine/imagehash"
	"github.com/nixbench/nixbench/deploy/machine/provider"
	"github.com/nixbench/nixbench/nixeval"
)

// loadImages returns the image for each key. If a role has no option image, loadImages builds the role's image.
// It stores the hashes of the images in the state folder, and creates the folder if it is missing.
func (m *Manager) loadImages(ctx context.Context, keys []ImageKey) (map[ImageKey]provider.Image, error) {
	out := map[ImageKey]provider.Image{}
	hashes := imagehash.Read(m.Dir)
	var errs []error
	for _, key := range keys {
		given := m.Hive.Roles[key.Role].Image
		if given == nil {
			continue
		}
		i, err := m.loadGivenImage(ctx, key.Role, *given, hashes)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out[key] = i
	}
	for _, kind := range []provider.Kind{provider.VM, provider.Container} {
		var roles []string
		for _, key := range keys {
			if key.Kind == kind && m.Hive.Roles[key.Role].Image == nil {
				roles = append(roles, key.Role)
			}
		}
		built, err := m.buildImages(ctx, kind, roles, hashes)
		maps.Copy(out, built)
		errs = append(errs, err)
	}
	return out, errors.Join(append(errs, m.Dir.Create(), hashes.Save())...)
}

// loadGivenImage loads the image that a role's option image names. It builds the image if it is a missing store path.
func (m *Manager) loadGivenImage(ctx context.Context, role, path string, hashes *imagehash.Cache) (provider.Image, error) {
	if !durable.Exists(path) && isStorePath(path) {
		if err := m.Eval.WithoutFacts(m.Send).RealiseImage(ctx, role); err != nil {
			return provider.Image{}, err
		}
	}
	i, err := loadImage(ctx, path, hashes)
	return i, setImageErrorRole(err, role)
}

// setImageErrorRole adds the role to an [ImageError]; other errors are returned unchanged.
func setImageErrorRole(err error, role string) error {
	var bad *ImageError
	if errors.As(err, &bad) {
		bad.Role = role
	}
	return err
}

// buildImages builds and loads the images of roles for a kind of hypervisor.
func (m *Manager) buildImages(ctx context.Context, kind provider.Kind, roles []string, hashes *imagehash.Cache) (map[ImageKey]provider.Image, error) {
	if len(roles) == 0 {
		return nil, nil
	}
	e := m.Eval.WithoutFacts(m.Send)
	closures, err := e.Images(ctx, string(kind), roles)
	if err != nil {
		var bad *nixeval.NixError
		if errors.As(err, &bad) {
			err = &nixeval.EvalError{Units: map[string]*nixeval.NixError{"image of " + strings.Join(roles, ", "): bad}}
		}
		return nil, err
	}
	built, buildErr := e.Build(ctx, closures, m.Hive.BuildersFile())
	out := map[ImageKey]provider.Image{}
	errs := []error{buildErr}
	roots := map[string]nixeval.Closure{}
	for _, role := range built {
		i, err := loadImage(ctx, closures[role].Out, hashes)
		if err != nil {
			errs = append(errs, setImageErrorRole(err, role))
			continue
		}
		out[ImageKey{Role: role, Kind: kind}] = i
		roots["image-"+role+"-"+string(kind)] = closures[role]
	}
	if m.Keep != nil && len(roots) > 0 {
		errs = append(errs, m.Keep(roots))
	}
	return out, errors.Join(errs...)
}

func isStorePath(path string) bool {
	return len(path) > len("/nix/store/") && path[:len("/nix/store/")] == "/nix/store/"
}
