package main

import (
	"io"
	"testing"
)

func TestReadUntilDetached(t *testing.T) {
	r, w := io.Pipe()
	go func() {
		_, _ = w.Write([]byte("ls\r"))
		_, _ = w.Write([]byte("exit\x1dnot sent"))
	}()
	got := ""
	for data := range readUntilDetached(r) {
		got += string(data)
	}
	if got != "ls\rexit" {
		t.Errorf("%q", got)
	}
}
