// Package daemon is a client of the Nix daemon's protocol (in Nix's manual: the worker protocol). It has the operations
// that a copy needs. The client requires version 1.32 (Nix 2.4) and speaks at most 1.35 (Nix 2.15), which every later
// version of Nix still speaks. For each operation, the daemon first sends log messages. Then it sends an error, or a
// marker that the operation has succeeded and then the result.
package daemon
