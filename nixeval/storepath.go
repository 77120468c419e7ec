package nixeval

import "regexp"

var storePathRE = regexp.MustCompile(`^/nix/store/[0-9a-z]{32}-[0-9A-Za-z+._?=-]+$`)

// checkStorePaths returns an error if one of the paths is not the path of an object in the Nix store. The paths come from an
// evaluation or a file, and become arguments of Nix. They must be checked, because Nix accepts options anywhere in its command
// line.
func checkStorePaths(paths ...string) *NixError {
	for _, path := range paths {
		if !storePathRE.MatchString(path) {
			return newHiveError("%q is not a store path", path)
		}
	}
	return nil
}
