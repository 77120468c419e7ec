// Package stages carries out what a session is asked for: it builds, previews, deploys, rolls back, reboots and destroys the nodes of a hive.
// It does not print: it sends events. Every stage takes the value of the stage before it:
//
//	hive ──Survey──▶ nodes ──Selector.Select──▶ units ──Instantiate──▶ derivations ──Build──▶ closures
//
// A stage processes every unit, also after the failure of another unit, and its error contains all failures.
package stages
