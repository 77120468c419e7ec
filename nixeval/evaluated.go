package nixeval

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Evaluated is what evaluations of a hive have returned. An [Evaluator] with it evaluates nothing.
type Evaluated struct {
	Survey  *surveyResult      `json:"survey"`  // nil: Survey evaluates the hive
	Systems map[string]Closure `json:"systems"` // by unit; the local store may lack them
}

// NewEvaluated returns what another computer needs to deploy nodes without the hive. systems contains the systems of their units. With
// noKeys, the result contains no keys. It fails if a node can be deployed only with the hive, see [Evaluated.Check].
func NewEvaluated(h *Hive, nodes []Node, systems map[string]Closure, noKeys bool) (*Evaluated, error) {
	out := &Evaluated{&surveyResult{Meta: Meta{Name: h.ClusterName(), AllowApplyAll: true}, Deployments: map[string]Deployment{}}, map[string]Closure{}}
	for _, n := range nodes {
		if n.Role != "" {
			return nil, fmt.Errorf("%s: nixbench boots its machine, and the keys of the machine are in the state folder of the hive", n.Name)
		}
		d := h.Unit(n.Unit).Deployment
		d.Modules, d.SSHOptions, d.BuildOnTarget = nil, nil, false
		if noKeys {
			d.Keys = nil
		}
		out.Survey.Named, out.Survey.Deployments[n.Name], out.Systems[n.Name] = append(out.Survey.Named, n.Name), d, systems[n.Unit]
	}
	return out, out.Check()
}

// Check returns an error unless everything is there to deploy the nodes without the hive. It may come from somebody else, who must
// not choose programs that run on this computer. Options of SSH could do so, or write files. So could a derivation, which Nix would build.
func (e *Evaluated) Check() error {
	if e.Survey == nil || len(e.Survey.Named) == 0 || len(e.Survey.Roles) > 0 || e.Survey.Cluster != nil || e.Survey.Meta.MachinesFile != "" {
		return errors.New("it must contain named nodes, and nothing else of a hive")
	}
	hive, err := newHive(*e.Survey, nil)
	if err != nil {
		return err
	}
	for _, u := range hive.Units {
		err := u.Deployment.checkPortable()
		if broken := hive.Broken[u.Name]; broken != nil {
			err = broken
		} else if s := e.Systems[u.Name]; checkStorePaths(s.Drv) != nil || !IsSystem(s.Out) {
			err = fmt.Errorf("its system %q is not the path of a built system in the store", s.Out)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", u.Name, err)
		}
	}
	return nil
}

// IsSystem reports whether path may be a system in the store, and not a derivation, which Nix would build.
func IsSystem(path string) bool { return IsStorePath(path) && !strings.HasSuffix(path, ".drv") }

// checkPortable returns an error if the options are not enough to deploy a node: if they name secrets of a cluster or of the hive, or
// programs that run on the computer that deploys.
func (d Deployment) checkPortable() error {
	switch {
	case d.Engine != nil || d.Client != nil:
		return errors.New("it belongs to a cluster, whose secrets are in the state folder of the hive")
	case len(d.SSHOptions) > 0:
		return errors.New("deployment.sshOptions: a plan must not choose the options of SSH")
	}
	for _, name := range SortedNames(d.Keys) {
		why := ""
		switch k := d.Keys[name]; {
		case k.hasText():
			why = "its text is in the hive, and a plan contains no secrets"
		case k.Generated != nil:
			why = "it is generated, and its content is in the state folder of the hive"
		case len(k.KeyCommand) > 0:
			why = "a plan must not choose a program that runs on another computer"
		}
		if why != "" {
			return fmt.Errorf("deployment.keys.%s: %s; use keyFile, or nixbench plan --no-keys", displayName(name), why)
		}
	}
	for _, name := range SortedNames(d.HealthChecks) {
		c := d.HealthChecks[name]
		if len(c.Command) > 0 && c.From == FromHere {
			return fmt.Errorf("deployment.healthChecks.%s: a plan must not choose a program that runs on another computer; use from = \"node\"", displayName(name))
		}
		if c.HTTP != nil {
			if u, err := url.Parse(*c.HTTP); err != nil || u.User != nil || u.RawQuery != "" {
				return fmt.Errorf("deployment.healthChecks.%s: the URL in a plan must have neither a user nor parameters, which may be secrets", displayName(name))
			}
		}
	}
	return nil
}
