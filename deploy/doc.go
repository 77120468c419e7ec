// Package deploy implements what the commands of nixbench do. It does not print: it sends
// events. Every stage takes the value of the stage before it:
//
//	hive ──Survey──▶ nodes ──plan.Select──▶ units ──Instantiate──▶ derivations ──Build──▶ closures
//
// A failure of one unit does not hide the failures of others, and does not stop them.
package deploy
