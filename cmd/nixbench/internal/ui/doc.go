// Package ui shows the events, results and errors of nixbench in one of three forms: a stream of
// JSON objects with --json, otherwise live lines if stderr is a terminal, otherwise plain lines.
// Progress is written to stderr and results to stdout, so that results can be piped. With --json,
// progress and results are written to stdout. Other packages send events and do not print.
package ui
