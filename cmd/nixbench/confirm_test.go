package main

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/nixbench/nixbench/cmd/nixbench/internal/ui"
	"github.com/nixbench/nixbench/deploy/event"
)

// A question sends an event with the time that the user took to answer it.
func TestConfirmMeasuresTheAnswer(t *testing.T) {
	const takes = 150 * time.Millisecond
	for answer, want := range map[string]error{"y\n": nil, "yes\n": nil, "n\n": errDeclined, "\n": errDeclined} {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		stdin := os.Stdin
		os.Stdin = read
		asked := &answering{user: write, answer: answer, takes: takes}
		var events []event.Event
		a := &app{ctx: t.Context(), view: ui.New(ui.Options{Out: io.Discard, Err: asked}), sink: func(e event.Event) { events = append(events, e) }}
		err = a.confirm("remove it?", nil, false)
		os.Stdin = stdin
		read.Close()
		write.Close()
		a.view.Close()
		if !errors.Is(err, want) {
			t.Errorf("%q: got %v, want %v", answer, err, want)
		}
		if len(events) != 1 || events[0].Kind != event.Answer || events[0].Time.Sub(events[0].Since) < takes || events[0].Time.Sub(events[0].Since) > time.Minute {
			t.Errorf("%q: events %+v", answer, events)
		}
	}
}

// What the user typed before a question on a terminal is not its answer.
func TestConfirmDiscardsEarlierInput(t *testing.T) {
	user, terminal, err := openTerminal()
	if err != nil {
		t.Fatal(err)
	}
	defer user.Close()
	defer terminal.Close()
	stdin := os.Stdin
	os.Stdin = terminal
	defer func() { os.Stdin = stdin }()
	io.WriteString(user, "y\n")
	asked := &answering{user: user, answer: "n\n"}
	a := &app{ctx: t.Context(), view: ui.New(ui.Options{Out: io.Discard, Err: asked}), sink: func(event.Event) {}}
	defer a.view.Close()
	if err := a.confirm("remove it?", nil, false); !errors.Is(err, errDeclined) {
		t.Errorf("got %v, want %v", err, errDeclined)
	}
}

// answering types the answer some time after it sees the question.
type answering struct {
	user   io.Writer
	answer string
	takes  time.Duration
}

func (a *answering) Write(p []byte) (int, error) {
	time.Sleep(a.takes)
	_, err := io.WriteString(a.user, a.answer)
	return len(p), err
}
