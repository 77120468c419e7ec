// Package deploy is the pipeline: what the commands of nixbench do, without a word
// about terminals. Every stage takes the value of the stage before it:
//
//	hive ──Survey──▶ nodes ──plan.Select──▶ units ──Instantiate──▶ derivations ──Build──▶ closures
//
// One unit's failure never hides or stops another's.
package deploy
