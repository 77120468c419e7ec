package ui

import "os"

// style colours text and marks results, such as with ✗. The zero value leaves text unchanged.
type style struct{ colour, marks bool }

// terminalStyle returns the style for a terminal. when is the value of --color.
func terminalStyle(when string) style {
	return style{colour: when == "always" || when != "never" && os.Getenv("NO_COLOR") == "", marks: true}
}

// mark returns the mark of a result on a terminal. A log has words such as "failed" in its place, because users search a log for
// words.
func (s style) mark(failed bool) string {
	switch {
	case !s.marks:
		return ""
	case failed:
		return s.bad("✗") + " "
	}
	return s.good("✓") + " "
}

func (s style) colourText(code, text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s style) bold(text string) string  { return s.colourText("1", text) }
func (s style) faint(text string) string { return s.colourText("2", text) }
func (s style) good(text string) string  { return s.colourText("32", text) }
func (s style) warn(text string) string  { return s.colourText("33", text) }
func (s style) bad(text string) string   { return s.colourText("1;31", text) }
