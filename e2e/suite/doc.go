// Package suite splits a suite of end-to-end tests into core tests, which always run, and deep tests. CI runs the deep
// tests only if the subject of the suite has changed since all tests of the suite passed: the subject is a list of paths,
// and the record, the file `verified` in the suite's folder, is a hash of their content. `make e2e-deep` runs all tests of
// a suite, and writes the record.
package suite
