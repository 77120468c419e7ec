// Package daemon is a client of the Nix daemon's protocol (in Nix's manual: the worker protocol). It has the
// operations that a copy needs: which paths are valid, what a path is made of, and adding paths. The client requires
// version 1.32 (Nix 2.4) and speaks at most 1.35 (Nix 2.15), which every later version of Nix still speaks.
//
// All integers are 64 bits, little-endian. A string is its length, its bytes, and zeros up to a multiple of eight
// bytes. Before the result of an operation, the daemon sends log messages, and then a marker that the operation has
// succeeded, or an error.
package daemon
