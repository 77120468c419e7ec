package stages

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/deploy/durable"
	"github.com/nixbench/nixbench/deploy/failure"
	"github.com/nixbench/nixbench/deploy/machine/changes"
	"github.com/nixbench/nixbench/deploy/plan"
	"github.com/nixbench/nixbench/nixeval"
)

// SavedPlan is the content of a plan file: what `nixbench plan --out` has shown, and the command's arguments. It has names, store
// paths and hashes, but no contents of keys.
type SavedPlan struct {
	Version   int       `json:"version"`
	Nixbench  string    `json:"nixbench"` // version of nixbench
	Made      time.Time `json:"made"`
	Cluster   string    `json:"cluster"`
	Hive      string    `json:"hive"`               // file or flake reference
	Revision  string    `json:"revision,omitempty"` // git revision of the hive
	Scheduler string    `json:"scheduler,omitempty"`

	Arguments PlanArguments `json:"arguments"`

	// Deployments contains for each node a hash of the options of its deployment and its machine.
	Deployments map[string]string `json:"deployments"`
	Nodes       []Preview         `json:"nodes"` // empty in a file of `nixbench build --out`, for which no node was asked

	// Evaluated is what another computer needs to execute the plan without the hive. If it is nil, OnlyHere says why the plan
	// needs the hive.
	Evaluated    *nixeval.Evaluated `json:"evaluated,omitempty"`
	OnlyHere     string             `json:"onlyHere,omitempty"`
	Substituters []string           `json:"substituters,omitempty"` // URLs from which the other computer may fetch systems

	// MAC is the HMAC-SHA256 of the other fields. Its key is the plan key in the cluster's state.
	MAC string `json:"mac,omitempty"`
}

// PlanArguments are the flags of `plan` that determine the plan.
type PlanArguments struct {
	On             []string `json:"on"`
	Sets           []string `json:"sets"`
	NoKeys         bool     `json:"noKeys"`
	Recreate       bool     `json:"recreate"`
	NoDrain        bool     `json:"noDrain"`
	DrainAllowed   []string `json:"drainAllowed"` // the work that drains may delete
	MaxUnavailable string   `json:"maxUnavailable"`

	SkipUnreachable bool `json:"skipUnreachable"`
}

const planVersion = 1

// CheckPortable returns an error if a computer without the hive cannot deploy the nodes. options are the user's options of Nix.
func CheckPortable(hive *nixeval.Hive, nodes []nixeval.Node, options [][2]string) error {
	const anySystem = "/nix/store/00000000000000000000000000000000-system" // the systems are not built yet
	systems := map[string]nixeval.Closure{}
	for _, n := range nodes {
		systems[n.Unit] = nixeval.Closure{Drv: anySystem, Out: anySystem}
	}
	return (&SavedPlan{}).AddSystems(hive, nodes, systems, options)
}

// AddSystems adds what another computer needs to execute the plan without the hive, or the reason why the plan needs the hive, which
// it also returns. options are the options of Nix that the user has set.
func (s *SavedPlan) AddSystems(hive *nixeval.Hive, nodes []nixeval.Node, systems map[string]nixeval.Closure, options [][2]string) error {
	for _, o := range options {
		if o[0] == "substituters" || o[0] == "extra-substituters" {
			s.Substituters = append(s.Substituters, strings.Fields(o[1])...)
		}
	}
	evaluated, err := nixeval.NewEvaluated(hive, nodes, systems, s.Arguments.NoKeys)
	if err = errors.Join(err, s.checkSubstituters()); err != nil {
		s.OnlyHere, s.Substituters = err.Error(), nil
		return err
	}
	s.Evaluated = evaluated
	return nil
}

// substituterRE matches the URLs of substituters for which Nix neither runs a program, such as ssh, nor writes files, and which contain no
// password or token: printable ASCII without ? @ #.
var substituterRE = regexp.MustCompile(`^https?://[!"$->A-~]+$`)

func (s SavedPlan) checkSubstituters() error {
	if slices.ContainsFunc(s.Substituters, func(url string) bool { return !substituterRE.MatchString(url) }) {
		return errors.New("a substituter in a plan must be a URL that begins with http:// or https:// and has neither a user nor parameters")
	}
	return nil
}

// CheckSystems returns an error if a computer without the hive cannot execute the plan.
func (s SavedPlan) CheckSystems() error {
	if s.Evaluated == nil {
		return fmt.Errorf("it can be applied only with its hive: %s", cmp.Or(s.OnlyHere, "it contains no systems"))
	}
	return errors.Join(s.Evaluated.Check(), s.checkSubstituters())
}

// OnlyBuilds reports whether the plan contains systems, and nothing about the nodes: whether `nixbench build` has written it.
func (s SavedPlan) OnlyBuilds() bool { return s.Evaluated != nil && len(s.Nodes) == 0 }

// NodeNames returns the names of the nodes that a computer without the hive can deploy.
func (s SavedPlan) NodeNames() []string { return s.Evaluated.Survey.Named }

// NixOptions returns the options of Nix with which the systems are fetched.
func (s SavedPlan) NixOptions() [][2]string {
	if len(s.Substituters) == 0 {
		return nil
	}
	return [][2]string{{"extra-substituters", strings.Join(s.Substituters, " ")}}
}

// Write authenticates the plan with the key, and writes it to a file that only the current user can read.
func (s SavedPlan) Write(file string, key []byte) error {
	s.Version = planVersion
	mac, err := s.authenticate(key)
	s.MAC = mac
	data, encodeErr := json.MarshalIndent(s, "", "  ")
	if err = errors.Join(err, encodeErr); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	return durable.Write(file, append(data, '\n'))
}

// authenticate returns the MAC of all other fields of the decoded plan, which is also what apply uses.
func (s SavedPlan) authenticate(key []byte) (string, error) {
	s.MAC = ""
	data, err := json.Marshal(s)
	h := hmac.New(sha256.New, key)
	h.Write(data)
	return hex.EncodeToString(h.Sum(nil)), err
}

// IsPlan reports whether a file is a plan file of this version.
func IsPlan(file string) bool {
	data, err := durable.Read(file, durable.ConfigSize)
	if err == nil {
		_, err = ReadPlan(file, data)
	}
	return err == nil
}

// ReadPlan decodes the content of a plan file with this name. The caller checks who has made the plan.
func ReadPlan(file string, data []byte) (s SavedPlan, err error) {
	switch found, err := durable.DecodeJSON(data, planVersion, &s); {
	case found == 0:
		return s, NewPlanError(file, "the file is not a plan")
	case found != planVersion:
		return s, NewPlanError(file, "the plan has version %d, and this nixbench reads version %d", found, planVersion)
	case err != nil:
		return s, NewPlanError(file, "the file is damaged: %w", err)
	}
	if s.Hive == "" || slices.ContainsFunc(s.Nodes, func(p Preview) bool { return p.Node == "" || p.Action == "" }) {
		return s, NewPlanError(file, "the file is damaged: the hive, or the name or the action of a node is missing")
	}
	return s, nil
}

func NewPlanError(file, format string, args ...any) error {
	return failure.WithHint(failure.NewUsage("plan %s: "+format, append([]any{file}, args...)...), "nixbench plan --out FILE writes a plan")
}

// IsMadeWith reports whether the plan was authenticated with the key. An empty key has made no plan.
func (s SavedPlan) IsMadeWith(key []byte) bool {
	mac, err := s.authenticate(key)
	return err == nil && len(key) > 0 && hmac.Equal([]byte(mac), []byte(s.MAC))
}

// CompareWith returns why a saved plan is outdated: a new plan (now) makes changes that the saved plan does not make, or has other nodes.
// A part of the saved plan may have been executed, so that an interrupted apply can be repeated.
func (s SavedPlan) CompareWith(now SavedPlan) []string {
	if s.Cluster != now.Cluster {
		return []string{fmt.Sprintf("the plan is for the cluster %s, and the hive is that of %s", s.Cluster, now.Cluster)}
	}
	var out []string
	indexOf := func(name string, nodes []Preview) int {
		return slices.IndexFunc(nodes, func(p Preview) bool { return p.Node == name })
	}
	for _, p := range now.Nodes {
		var changes []string
		switch i := indexOf(p.Node, s.Nodes); {
		case i < 0 && p.Action == plan.WouldRemove:
			changes = []string{"its machine would be removed now"}
		case i < 0:
			changes = []string{"the plan does not contain the node"}
		default:
			changes = s.Nodes[i].comparePreview(p)
			if s.Deployments[p.Node] != now.Deployments[p.Node] {
				changes = append(changes, "its options in the hive have changed: deployment, its role, or cluster")
			}
		}
		out = append(out, addPrefix(p.Node+": ", changes)...)
	}
	for _, p := range s.Nodes {
		if indexOf(p.Node, now.Nodes) < 0 && p.Action != plan.WouldRemove {
			out = append(out, p.Node+": the hive, or the selection of the plan, does not contain the node any more")
		}
	}
	return out
}

// addPrefix returns the texts, each with the prefix.
func addPrefix(prefix string, texts []string) []string {
	out := slices.Clone(texts)
	for i := range out {
		out[i] = prefix + out[i]
	}
	return out
}

// comparePreview returns the differences between p, the saved preview of a node, and now, the node's present preview.
func (p Preview) comparePreview(now Preview) []string {
	var out []string
	if was, is := p.machineAction(), now.machineAction(); !continuesMachine(was, is) {
		out = append(out, fmt.Sprintf("its machine: planned %s, now %s", was, is))
	}
	if p.To != now.To || p.Drv != now.Drv {
		out = append(out, fmt.Sprintf("the hive has another system now: %s, planned %s", cmp.Or(now.To, "none"), cmp.Or(p.To, "none")))
	}
	switch {
	case now.From != "" && now.From == p.To: // the plan was executed
	case p.From == "" && p.machineAction() != changes.Keep: // the machine did not run, so its system was unknown
	case now.From != p.From:
		out = append(out, fmt.Sprintf("it runs another system now: %s, when the plan was made %s", cmp.Or(now.From, "none"), cmp.Or(p.From, "none")))
	case now.Generation != p.Generation && now.Profile != p.To: // an interrupted apply may have made the new generation the system profile, without activating it
		out = append(out, fmt.Sprintf("its profile has generation %d now, when the plan was made %d", now.Generation, p.Generation))
	}
	planned := p.otherEffects()
	if p.Keys != nil { // an interrupted apply may have uploaded a key
		planned = append(planned, addPrefix("owner or mode of key ", p.Keys.Upload)...)
	}
	for _, effect := range now.otherEffects() {
		if p.From != "" && !slices.Contains(planned, effect) { // the effects are unknown if From is empty
			out = append(out, "it would also change now: "+effect)
		}
	}
	return out
}

// otherEffects returns what apply changes besides the system and the machine of a node.
func (p Preview) otherEffects() []string {
	var out []string
	if k := p.Keys; k != nil {
		out = slices.Concat(addPrefix("key ", k.Upload), addPrefix("owner or mode of key ", k.Adjust), addPrefix("key ", k.Remove))
	}
	if v := p.Version; v != nil {
		out = append(out, "version "+v.From+" to "+v.To)
	}
	return append(out, p.Adjust...)
}

func (p Preview) machineAction() changes.Action {
	if p.Machine == nil {
		return changes.Keep
	}
	return p.Machine.Action
}

// continuesMachine reports whether an interrupted apply of the saved plan can be the reason why the action on a machine has
// changed. was is the action in the saved plan, and is is the action that the machine needs now.
func continuesMachine(was, is changes.Action) bool {
	creates := was == changes.Create || was == changes.Recreate
	switch is {
	case was:
		return true
	case changes.Keep, changes.Start, changes.Resume:
		return was != changes.Keep && was != changes.Remove
	}
	return creates && (is == changes.Finish || is == changes.Create)
}

// sourceHashRE matches the store path of a flake's source. The hash in this path changes with each commit of the flake.
var sourceHashRE = regexp.MustCompile(`/nix/store/[0-9a-z]{32}-source([^0-9A-Za-z+._?=-])`)

// HashDeployment returns a hash of a node's deployment and machine options, without the contents of keys. If an option is a path in the
// source of a flake, the store path of the source is left out of the hash, so that a change of another file of the flake does not
// matter. Only the path of an image is hashed in full, because nothing else shows that the image of a new machine has changed.
func HashDeployment(hive *nixeval.Hive, n nixeval.Node) string {
	u := hive.Unit(n.Unit)
	if u == nil {
		return ""
	}
	role := hive.Roles[n.Role]
	image := role.Image
	role.Count, role.Image = 0, nil // leave out the count of the role, because another number of nodes does not change this node
	deployment := u.Deployment
	deployment.Modules = nil                                            // the system shows their changes
	data, err := json.Marshal([]any{n, deployment, role, hive.Cluster}) // a Secret is encoded as (secret)
	if err != nil {
		return err.Error()
	}
	sum := sha256.New()
	sum.Write(sourceHashRE.ReplaceAll(data, []byte("source$1")))
	if image != nil {
		sum.Write([]byte("\x00" + *image))
	}
	return hex.EncodeToString(sum.Sum(nil))
}
