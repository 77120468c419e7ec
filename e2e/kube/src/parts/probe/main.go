// Probe checks that pods reach each other: it is both the server and the client.
//
//	probe serve [ADDRESS]     answer HTTP with the host's name (default: :8080)
//	probe get URL [TIMES]     print what URL answers, one line each time
//	probe sleep SECONDS [JOB] end after some seconds, such as 0.5; with JOB, print stamps of this job (docs/bench.md)
//
// get opens a connection for each request, so that a Service can choose a pod for each.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) >= 1 && args[0] == "serve":
		return serve(append(args[1:], ":8080")[0])
	case len(args) >= 2 && args[0] == "get":
		times, err := strconv.Atoi(append(args[2:], "1")[0])
		if err != nil {
			return err
		}
		return get(args[1], times)
	case len(args) >= 2 && args[0] == "sleep":
		if len(args) > 2 {
			stamp("first", args[2])
			defer stamp("last", args[2])
		}
		duration, err := time.ParseDuration(args[1] + "s")
		if err != nil {
			return err
		}
		select {
		case <-stop():
		case <-time.After(duration):
		}
		return nil
	}
	return fmt.Errorf("usage: probe serve [ADDRESS] | probe get URL [TIMES] | probe sleep SECONDS [JOB]")
}

// stamp prints that a task of a job of a benchmark has executed its first or last instruction.
func stamp(which, job string) {
	now, task := time.Now(), os.Getenv("JOB_COMPLETION_INDEX")
	if task == "" {
		task = "0"
	}
	fmt.Printf("nixbench %s %s %s %d.%06d\n", which, job, task, now.Unix(), now.Nanosecond()/1000)
}

// stop returns a channel that receives the signals that end a program. The first process of a container has no default action for them.
func stop() <-chan os.Signal {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	return signals
}

func serve(address string) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	end := stop()
	go func() { <-end; os.Exit(0) }()
	return http.ListenAndServe(address, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, name)
	}))
}

func get(url string, times int) error {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for range times {
		answer, err := client.Get(url)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<16))
		answer.Body.Close()
		if err != nil {
			return err
		}
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s: %s", url, answer.Status, text)
		}
		fmt.Println(strings.TrimSpace(string(text)))
	}
	return nil
}
