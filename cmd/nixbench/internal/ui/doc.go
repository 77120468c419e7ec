// Package ui shows the events, results and errors of nixbench in one of three forms: a live view on
// a terminal, plain lines elsewhere, and a stream of JSON objects with --json. Progress goes to
// stderr and results to stdout, so that output can be piped; with --json everything goes to stdout.
// No other package prints.
package ui
