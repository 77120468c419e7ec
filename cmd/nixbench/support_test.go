package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nixbench/nixbench/nixeval"
)

// A program prints a password without the name of its variable, or its whole line.
func TestSecretsOfKeys(t *testing.T) {
	for key, secrets := range map[string][]string{
		"RESTIC_PASSWORD=correct-horse-battery-staple\n":                          {"correct-horse-battery-staple"},
		"export TOKEN=\"quoted-value\"":                                           {"quoted-value"},
		"password: hunter2hunter2h":                                               {"hunter2hunter2h"},
		"  - apiKey:   'hunter2'":                                                 {"hunter2"},
		"postgres://app:Sup3rSecretPassw0rd@db/app":                               {"Sup3rSecretPassw0rd"},
		"URL=https://app:with%20space@db":                                         {"with%20space", "with space"},
		"https://ghp_token@git.example/repo":                                      {"ghp_token"},
		"host=db password=hunter22 user=app":                                      {"hunter22"},
		"Server=db;Password=hunter2;User=app":                                     {"hunter2"},
		"amqp://mq?ttl=3&password=hunter2&x=1":                                    {"hunter2"},
		"db:5432:app:app:pgpass1":                                                 {"pgpass1"},
		"app:s3cret!@tcp(db)/app":                                                 {"s3cret!"},
		"machine db login app password netrc1":                                    {"netrc1"},
		`{"a": {"password": "hun\"ter2"}, "list": ["second"]}`:                    {`hun"ter2`, `hun\"ter2`, "second"},
		"{\n  \"password\": \"hunter2\",\n  \"other\": \"x\"\n}\n":                {"hunter2"},
		"one line with several words\n":                                           {"one line with several words"},
		"-----BEGIN KEY-----\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n-----END KEY-----\n": {"AAAAAAAAAAAAAAAAAAAAAAAAAAAAA"},
	} {
		var s secretTexts
		s = s.addKey(key)
		for _, secret := range secrets {
			if got := s.hide("it says <" + secret + ">"); got != "it says <(secret)>" {
				t.Errorf("%q: %q", key, got)
			}
		}
		if got := s.hide("an app on db:5432, of x, ttl 3"); got != "an app on db:5432, of x, ttl 3" {
			t.Errorf("%q: no secret is in %q", key, got)
		}
	}
}

// A secret at the place where a log is cut is hidden as a whole.
func TestCutOfLogHasNoSecret(t *testing.T) {
	const secret = "correct-horse-battery-staple"
	for before := range len(secret) + 1 {
		b := supportBundle{secrets: secretTexts{secret}}
		b.addText("log", secret+strings.Repeat("x", supportLogSize-before))
		if text := string(b.files[0].data); len(text) > supportLogSize || strings.ContainsAny(text, "-") {
			t.Fatalf("%d bytes of the secret are in the end: %q …", before, text[:40])
		}
	}
}

// The journals of many nodes, and of many units of a node that hangs, are read within a common time limit.
func TestJournalsAreReadAtOnce(t *testing.T) {
	var nodes []nixeval.Node
	failed := map[string][]string{}
	for i := range 10 {
		n := nixeval.Node{Name: fmt.Sprintf("w-%d", i)}
		nodes = append(nodes, n)
		for j := range 10 {
			failed[n.Name] = append(failed[n.Name], fmt.Sprintf("u-%d.service", j))
		}
	}
	nodes = append(nodes, nixeval.Node{Name: "healthy"})
	b := supportBundle{}
	var mu sync.Mutex
	reading, most := 0, 0
	count := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		reading += n
		most = max(most, reading)
	}
	began := time.Now()
	b.addJournals(t.Context(), nodes, failed, 5, 200*time.Millisecond, func(ctx context.Context, node, unit string) ([]byte, error) {
		count(1)
		defer count(-1)
		if node != "w-3" {
			<-ctx.Done()
			return []byte("part"), errors.New("no answer")
		}
		return []byte(node + " " + unit), nil
	})
	if took := time.Since(began); took > 2*time.Second || most != 5 {
		t.Errorf("it took %s, for at most %d nodes at once", took, most)
	}
	if len(b.files) != 100 {
		t.Fatalf("%d files", len(b.files))
	}
	if f := b.files[35]; f.name != "journals/w-3/u-5.service.txt" || string(f.data) != "w-3 u-5.service" {
		t.Errorf("%s: %s", f.name, f.data)
	}
	if f := b.files[0]; string(f.data) != "part\nno answer\n" {
		t.Errorf("%s: %s", f.name, f.data)
	}
}
