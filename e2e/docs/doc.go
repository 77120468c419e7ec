// Package docs keeps what docs/ says true: options.md is written from the options' own
// declarations, and the messages that failures.md explains are those of the program.
// `go test ./e2e/docs -update` writes anew what can be written.
package docs
