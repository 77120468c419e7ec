package stats

import "slices"

// Keep returns a new list of those values for which f returns true.
func Keep[T any](all []T, f func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(v T) bool { return !f(v) })
}

// Map returns what f returns for each value.
func Map[T, U any](all []T, f func(T) U) (out []U) {
	for _, v := range all {
		out = append(out, f(v))
	}
	return out
}
