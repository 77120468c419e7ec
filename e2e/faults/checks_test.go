package main

import (
	"crypto/ed25519"
	"encoding/json"
	"encoding/pem"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

func find(t *testing.T, name string) fault {
	t.Helper()
	i := slices.IndexFunc(faults, func(f fault) bool { return f.name == name })
	if i < 0 {
		t.Fatalf("there is no fault %q", name)
	}
	return faults[i]
}

// expect compares problems with what each should begin with; none are expected where want is empty.
func expect(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %q, want %q", what, got, want)
		return
	}
	for i, w := range want {
		if !strings.Contains(got[i], w) {
			t.Errorf("%s: %q, want %q", what, got[i], w)
		}
	}
}

func failing(code int, message string) outcome {
	problems, _ := json.Marshal([]map[string]string{{"message": message}})
	return outcome{code: code, events: []streamEvent{{Event: "error", Problems: problems}}}
}

// Each kind of problem of the operation is reported, and an operation without a problem is not.
func TestOperationIsJudged(t *testing.T) {
	cut, kill, full, term := find(t, "link cut for good"), find(t, "SIGKILL"), find(t, "operator's disk full"), find(t, "SIGTERM")
	judge := func(f fault, o outcome) []string { return checkOperation(f, "w-1", o, 0) }
	expect(t, "named", judge(cut, failing(6, "w-1: cannot reach 192.168.222.2:22")))
	expect(t, "another node named", judge(cut, failing(6, "w-2: cannot reach it")), "names none of")
	expect(t, "survived", judge(cut, outcome{}))
	expect(t, "internal", judge(cut, failing(1, "w-1: unexpected")), "exit code 1")
	expect(t, "usage", judge(cut, failing(2, "w-1: no such flag")), "exit code 2")
	expect(t, "undocumented", judge(cut, failing(77, "w-1: ?")), "exit code 77")
	expect(t, "panic", judge(cut, outcome{code: 2, stderr: "panic: w-1\n\ngoroutine 7 [running]:"}), "it crashed", "exit code 2")
	expect(t, "hung", judge(cut, outcome{code: -1, hung: true}), "still ran")
	expect(t, "killed", judge(kill, outcome{code: -1}))
	expect(t, "killed too late", judge(kill, outcome{}))
	expect(t, "failed by itself", judge(kill, failing(8, "w-1: ?")), "exit code 8")
	expect(t, "killed without a kill", judge(term, outcome{code: -1}), "exit code -1")
	expect(t, "ended soon", checkOperation(term, "w-1", outcome{}, time.Second))
	expect(t, "ended late", checkOperation(term, "w-1", outcome{}, 6*time.Second), "ended 6.0 s after SIGTERM")
	expect(t, "went on", checkOperation(cut, "w-1", outcome{}, time.Minute))
	expect(t, "full", judge(full, failing(1, "state folder /x: no space left on device")))
	expect(t, "full and silent", judge(full, failing(1, "oops")), "names none of")
}

// docs/failures.md has each exit code that a fault may cause.
func TestExitCodesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/failures.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []int
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(string(page), -1) {
		code, _ := strconv.Atoi(m[1])
		documented = append(documented, code)
	}
	for _, f := range faults {
		for _, code := range f.exits {
			if code >= 0 && !slices.Contains(documented, code) {
				t.Errorf("%s: exit code %d is not documented", f.name, code)
			}
		}
	}
}

func TestConvergenceIsJudged(t *testing.T) {
	expect(t, "converged", checkNextApply(outcome{took: time.Second}))
	expect(t, "failed", checkNextApply(failing(5, "no machine")), "exit code 5: no machine")
	expect(t, "slow", checkNextApply(outcome{took: converges + time.Second}), "more than")
	expect(t, "hung", checkNextApply(outcome{hung: true, code: -1}), "still ran")
	expect(t, "panic", checkNextApply(outcome{code: 2, stdout: "panic: nil\n"}), "it crashed", "exit code 2")
}

func TestIdleIsJudged(t *testing.T) {
	result := func(list string) streamEvent { return streamEvent{Event: "result", Result: json.RawMessage(list)} }
	quiet := result(`[{"node":"w-1","outcome":"unchanged"},{"node":"w-2","outcome":"unchanged"}]`)
	judge := func(events ...streamEvent) []string { return checkNoOp(one, outcome{events: events}) }
	expect(t, "idle", judge(streamEvent{Event: "node-start", Phase: "connect", Node: "w-1"}, quiet))
	expect(t, "failed", checkNoOp(one, failing(8, "w-1: failed")), "exit code 8")
	expect(t, "boots", judge(streamEvent{Event: "node-start", Phase: "boot", Node: "w-1"}, quiet), "begins boot on w-1")
	expect(t, "switches", judge(streamEvent{Event: "node-start", Phase: "activate", Node: "w-1"}, quiet), "begins activate")
	expect(t, "removes", judge(streamEvent{Event: "node-start", Phase: "remove", Node: "w-3"}, quiet), "begins remove")
	expect(t, "copies", judge(streamEvent{Event: "node-end", Phase: "copy", Node: "w-1", Done: 5}, quiet), "copies to w-1")
	expect(t, "uploads", judge(streamEvent{Event: "node-end", Phase: "keys", Node: "w-1", Text: "uploaded token"}, quiet), "uploaded token")
	expect(t, "switched", judge(result(`[{"node":"w-1","outcome":"unchanged"},{"node":"w-2","outcome":"switched"}]`)), `"w-2 switched"`)
	expect(t, "one is missing", judge(result(`[{"node":"w-1","outcome":"unchanged"}]`)), `["w-1 unchanged"]`)
	expect(t, "no result", judge(), "its result is []")
}

func TestNodesAreJudged(t *testing.T) {
	answer := func(node, version, token string) string {
		return node + " | " + node + "\n" + node + " | " + version + "\n" + node + " | " + digest(token+"-"+version) + "\n"
	}
	judge := func(c cluster, out string) []string { return checkNodes(c, "token", out) }
	expect(t, "well", judge(two, answer("w-1", "two", "token")+answer("w-2", "two", "token")))
	expect(t, "old version", judge(two, answer("w-1", "two", "token")+answer("w-2", "one", "token")), "w-2 answers")
	expect(t, "old key", judge(two, answer("w-1", "two", "token")+answer("w-2", "two", "other")), "w-2 answers")
	expect(t, "silent", judge(two, answer("w-1", "two", "token")), "w-2 answers")
	expect(t, "too many", judge(half, answer("w-1", "one", "token")+answer("w-2", "one", "token")), "2 answer")
}

func TestStateIsJudged(t *testing.T) {
	decode := func(text string) recordedState {
		var m recordedState
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	expect(t, "forgotten", checkStateEmpty(decode(`{"version":2,"nodes":{},"intents":[]}`)))
	left := decode(`{"nodes":{"w-1":{}},"intents":[{"node":"w-1","step":"activate"}],"machines":{"w-1":{"mac":"m"}},"cluster":{"id":"x"}}`)
	expect(t, "an intent", checkIntents(left), "an intent is left")
	expect(t, "all left", checkStateEmpty(left), "the cluster", "the machine w-1", "the node w-1", "an intent is left")
}

func TestSecretsAreFound(t *testing.T) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	text := string(pem.EncodeToMemory(block))
	_, other, _ := ed25519.GenerateKey(nil)
	block, _ = ssh.MarshalPrivateKey(other, "")
	all := map[string]string{"key": privatePart(text), "token": "0123456789abcdef"}
	expect(t, "nothing", leaks(all, map[string]string{"log": "all is well", "another key": string(pem.EncodeToMemory(block))}))
	expect(t, "key", leaks(all, map[string]string{"log": "x\n" + text}), "key is in log")
	expect(t, "token", leaks(all, map[string]string{"log": `{"text":"0123456789abcdef"}`}), "token is in log")
}

// The line of a failed seed is followed by its problems.
func TestLine(t *testing.T) {
	r := result{choice: choose(3), exit: 130, problems: []string{"next apply: exit code 5: no machine"}}
	text := r.line()
	for _, want := range []string{"seed   3  ", "exit 130", "FAILED\n    next apply: exit code 5: no machine"} {
		if !strings.Contains(text, want) {
			t.Errorf("the line lacks %q:\n%s", want, text)
		}
	}
}
