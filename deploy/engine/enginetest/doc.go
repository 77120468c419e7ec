// Package enginetest contains [Run], the contract tests that every [engine.Engine] must pass, and [Fake], an engine for tests of other
// packages. The contract tests use members that have work, that block a drain, and whose programs do not work.
package enginetest
