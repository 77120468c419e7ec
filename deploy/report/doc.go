// Package report writes one self-contained HTML page about a run. The page contains its style and drawings, has no
// scripts and loads no other files, so it can be mailed, printed and archived.
//
// [Load] reads the record of a run. [Write] writes the page of one run, optionally with a comparison to
// another run. html/template escapes all texts of hives and machines; no such text is marked as safe.
package report
