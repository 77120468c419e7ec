package sshconfig

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// checkSupported returns an error if this package cannot connect with the settings.
func (s settings) checkSupported() error {
	if s.isYes("proxyusefdpass") {
		return errors.New("ProxyUseFdpass is not supported: use ProxyJump, or a ProxyCommand that carries the connection itself")
	}
	if s.isNo("pubkeyauthentication") {
		return errors.New("PubkeyAuthentication is off, and keys are the only way nixbench logs in: turn it on for this host")
	}
	if methods := s.algorithms("preferredauthentications"); len(methods) > 0 && !slices.Contains(methods, "publickey") {
		return fmt.Errorf("PreferredAuthentications %s: only publickey is supported: add it for this host",
			strings.Join(methods, ","))
	}
	return nil
}

// listWarnings returns a warning for each unsupported setting that the user has changed from its
// default.
func (s settings) listWarnings() []string {
	var w []string
	for _, key := range []string{"localforward", "remoteforward", "dynamicforward", "bindaddress", "bindinterface", "pkcs11provider"} {
		if v := s.get(key); v != "" && v != "none" {
			w = append(w, fmt.Sprintf("%s %s is ignored", key, v))
		}
	}
	if s.isYes("forwardagent") {
		w = append(w, "forwardagent yes is ignored: no agent is forwarded")
	}
	if s.isNo("stricthostkeychecking") {
		w = append(w, "stricthostkeychecking no is read as accept-new: a changed host key is still refused")
	}
	return w
}
