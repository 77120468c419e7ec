// Package nixlog parses the stderr of a Nix process that runs with --log-format internal-json.
package nixlog
