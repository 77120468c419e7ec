// Package docs checks that docs/ agrees with the program: options.md is generated from the
// options' declarations, and the messages that failures.md explains occur in the sources.
// `go test ./e2e/docs -update` writes the generated documents.
package docs
