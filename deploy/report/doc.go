// Package report writes a run as one HTML page that stands by itself: style and drawings are
// in it, it runs no program and asks for nothing, so it can be mailed, printed and kept.
//
// [Load] reads all that a record has on a run, [Write] makes the page of one, or of one beside another.
// Everything that a hive or a machine may have said goes through html/template, which escapes it;
// nothing here is declared to be safe.
package report
