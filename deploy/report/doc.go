// Package report writes one self-contained HTML page about a run. The page contains its style and drawings, has no
// scripts and loads no other files, so it can be mailed, printed and archived.
//
// html/template escapes all texts of hives and machines; no such text is marked as safe.
package report
