package remote_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"maps"
	"testing"
)

func generateKey() (ed25519.PublicKey, ed25519.PrivateKey, error) {
	return ed25519.GenerateKey(rand.Reader)
}

// TestContract runs the same suite against the in-process server, OpenSSH's, and this machine without a server:
// what holds for one must hold for the others.
func TestContract(t *testing.T) {
	commands := map[string]func(*testing.T, kind){
		"exit status":     testExitStatus,
		"signal":          testSignal,
		"streams":         testStreams,
		"empty stdin":     testEmptyStdin,
		"quoting":         testQuoting,
		"stderr tail":     testStderrTail,
		"failing writer":  testFailingWriter,
		"limits":          testLimits,
		"cancel":          testCancel,
		"cancel stubborn": testCancelStubborn,
		"deadline":        testDeadline,
		"concurrent":      testConcurrent,
		"forward":         testForward,
		"forward many":    testForwardMany,
		"forward missing": testForwardMissing,
		"dial command":    testDialCommand,
		"left behind":     testLeftBehind,
		"fresh":           testFresh,
	}
	connections := map[string]func(*testing.T, kind){
		"few sessions":       testFewSessions,
		"forward forbidden":  testForwardForbidden,
		"pinned":             testPinned,
		"unknown":            testUnknown,
		"changed":            testChanged,
		"accept new":         testAcceptNew,
		"accept new at once": testAcceptNewAtOnce,
		"known hosts forms":  testKnownHostsForms,
		"wrong key":          testWrongKey,
		"encrypted key":      testEncryptedKey,
		"agent":              testAgent,
		"frozen":             testFrozen,
		"frozen at login":    testFrozenAtLogin,
		"dropped":            testDropped,
		"restart":            testRestart,
		"proxy command":      testProxyCommand,
	}
	for name, k := range map[string]kind{"sshtest": inProcess, "sshd": realSSHD, "local": thisMachine} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			suite := maps.Clone(commands)
			switch name {
			case "sshd":
				findSSHD(t)
				fallthrough
			case "sshtest":
				maps.Copy(suite, connections)
			}
			for name, test := range suite {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, k)
				})
			}
		})
	}
}
