package remote

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// check refuses configurations that this package cannot support.
func (s settings) check() error {
	if s.yes("proxyusefdpass") {
		return errors.New("ProxyUseFdpass is not supported: use ProxyJump, or a ProxyCommand that carries the connection itself")
	}
	if s.no("pubkeyauthentication") {
		return errors.New("PubkeyAuthentication is off, and keys are the only way nixbench logs in: turn it on for this host")
	}
	if methods := s.algorithms("preferredauthentications"); len(methods) > 0 && !slices.Contains(methods, "publickey") {
		return fmt.Errorf("PreferredAuthentications %s: only publickey is supported: add it for this host",
			strings.Join(methods, ","))
	}
	return nil
}

// warnings lists unsupported settings, except those with default values, which ssh -G prints too.
func (s settings) warnings() []string {
	var w []string
	for _, key := range []string{"localforward", "remoteforward", "dynamicforward", "bindaddress", "bindinterface", "pkcs11provider"} {
		if v := s.get(key); v != "" && v != "none" {
			w = append(w, fmt.Sprintf("%s %s is ignored", key, v))
		}
	}
	if s.yes("forwardagent") {
		w = append(w, "forwardagent yes is ignored: no agent is forwarded")
	}
	if s.no("stricthostkeychecking") {
		w = append(w, "stricthostkeychecking no is read as accept-new: a changed host key is still refused")
	}
	return w
}
