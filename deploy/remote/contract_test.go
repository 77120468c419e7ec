package remote_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"testing"
)

func generateKey() (ed25519.PublicKey, ed25519.PrivateKey, error) {
	return ed25519.GenerateKey(rand.Reader)
}

// TestContract runs the same suite against the in-process server and against
// OpenSSH's: what holds for one must hold for the other.
func TestContract(t *testing.T) {
	for name, k := range map[string]kind{"sshtest": inProcess, "sshd": realSSHD} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "sshd" {
				findSSHD(t)
			}
			for name, test := range map[string]func(*testing.T, kind){
				"exit status":        testExitStatus,
				"signal":             testSignal,
				"streams":            testStreams,
				"empty stdin":        testEmptyStdin,
				"quoting":            testQuoting,
				"environment":        testEnvironment,
				"stderr tail":        testStderrTail,
				"failing writer":     testFailingWriter,
				"limits":             testLimits,
				"cancel":             testCancel,
				"cancel stubborn":    testCancelStubborn,
				"deadline":           testDeadline,
				"concurrent":         testConcurrent,
				"few sessions":       testFewSessions,
				"forward":            testForward,
				"forward many":       testForwardMany,
				"forward forbidden":  testForwardForbidden,
				"forward missing":    testForwardMissing,
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
				"fresh":              testFresh,
				"jump":               testJump,
				"proxy command":      testProxyCommand,
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, k)
				})
			}
		})
	}
}
