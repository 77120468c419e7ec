package sshtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
)

// Hidden is text with control characters that a terminal would execute: it clears the screen, sets the title, and
// reverses the direction of text.
const Hidden = "\x1b[2J\x1b]0;title\x07\r\x9b31m \u009b2J \u202egnp.exe\u202c \u200b\x7f"

// Attacks are handlers that simulate a compromised node. The key describes the attack. A handler gives the same answer to every command.
var Attacks = map[string]Handler{
	"endless output": func(_ context.Context, e *Exec) int { return repeat(e.Stdout, "x") },
	"endless errors": func(_ context.Context, e *Exec) int { return repeat(e.Stderr, "x") },
	"endless beats":  func(_ context.Context, e *Exec) int { return repeat(e.Stdout, "beat=\n") },
	"endless log":    func(_ context.Context, e *Exec) int { return repeat(e.Stdout, "log="+Hidden+"\n") },
	"endless list":   func(_ context.Context, e *Exec) int { return repeat(e.Stdout, "generation=a 1 b\n") },
	"endless values": func(_ context.Context, e *Exec) int { return repeat(e.Stdout, "0,") },
	"deep JSON": func(_ context.Context, e *Exec) int {
		io.WriteString(e.Stdout, strings.Repeat("[", 20<<20))
		return 0
	},
	"escapes": func(_ context.Context, e *Exec) int {
		for _, name := range []string{"current", "booted", "profile", "engine", "deployed", "system", "boot-id", "log", "failed", "wanted"} {
			fmt.Fprintf(e.Stdout, "%s=%s\n", name, Hidden)
		}
		fmt.Fprintf(e.Stdout, "nixos=yes\nlink=system-1-link\ngeneration=/system-1-link 1 %[1]s %[1]s\nend=yes\n", strings.ReplaceAll(Hidden, " ", ""))
		fmt.Fprintln(e.Stderr, Hidden)
		return 0
	},
	"failing with escapes": func(_ context.Context, e *Exec) int {
		fmt.Fprintln(e.Stdout, Hidden)
		fmt.Fprintln(e.Stderr, Hidden)
		return 1
	},
	"binary": func(_ context.Context, e *Exec) int {
		e.Stdout.Write(bytes.Repeat([]byte{0, 0xff, '=', '\n', 0x80}, 1000))
		return 0
	},
}

// repeat writes text until the session ends.
func repeat(w io.Writer, text string) int {
	for chunk := []byte(strings.Repeat(text, 32<<10/len(text))); ; {
		if _, err := w.Write(chunk); err != nil {
			return 1
		}
	}
}
