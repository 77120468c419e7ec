package durable

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestBuffer(t *testing.T) {
	b := &Buffer{Limit: 4}
	if _, err := io.Copy(b, strings.NewReader("1234")); err != nil {
		t.Error(err)
	}
	var size *SizeError
	if _, err := io.Copy(b, strings.NewReader("5")); !errors.As(err, &size) || size.Limit != 4 || string(b.Bytes()) != "1234" {
		t.Errorf("%q, %v", b.Bytes(), err)
	}
}
