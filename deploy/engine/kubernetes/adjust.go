package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/deploy/engine"
	"github.com/nixbench/nixbench/deploy/failure"
)

// appliedAnnotation is the annotation with the labels and taints that nixbench applied to the node last. nixbench removes a label or
// taint only if the annotation contains it and the hive does not contain it any more. Labels and taints of other programs stay.
const appliedAnnotation = "nixbench.dev/applied"

const adjustTimeout = time.Minute

type Desired struct {
	Labels map[string]string `json:"labels,omitempty"`
	Taints []Taint           `json:"taints"` // null means the taints of DefaultTaints
	// DefaultTaints are the taints that Kubernetes software, such as kubeadm, sets on a node of this role. A list of taints in
	// the hive replaces DefaultTaints. If a later hive has no such list, nixbench restores DefaultTaints.
	DefaultTaints []Taint `json:"-"`
}

type Taint struct {
	Key       string `json:"key"`
	Value     string `json:"value,omitempty"`
	Effect    string `json:"effect"`
	TimeAdded string `json:"timeAdded,omitempty"` // is set by Kubernetes
}

// hasSameKeyAndEffect reports whether two taints differ at most in their values. A node has at most one
// taint with the same key and effect.
func (t Taint) hasSameKeyAndEffect(o Taint) bool { return t.Key == o.Key && t.Effect == o.Effect }

func (t Taint) String() string {
	if t.Value == "" {
		return t.Key + ":" + t.Effect
	}
	return t.Key + "=" + t.Value + ":" + t.Effect
}

// Adjust implements [engine.Adjuster] for labels and taints. One kubectl command updates all nodes that differ. If another client has
// changed a Node object after Adjust has read it, Adjust reads all nodes again and retries.
func (e *Engine) Adjust(ctx context.Context, nodes []string, dry bool) (words map[string][]string, _ error) {
	ctx, cancel := context.WithTimeout(ctx, adjustTimeout)
	defer cancel()
	isConflict := func(err error) bool { return strings.Contains(err.Error(), "(Conflict)") }
	err := engine.Retry(ctx, Timeout, isConflict, func() error {
		registered, err := e.Nodes(ctx)
		words = map[string][]string{}
		var changed []Object
		for _, m := range e.Cluster.Members {
			n, isMember := registered[m.Node]
			if !isMember || !slices.Contains(nodes, m.Node) {
				continue
			}
			lines, as, err := reconcileNode(n, m)
			if err != nil {
				return failure.On(m.Node, err)
			}
			if as != nil { // without words: the node has registered with its labels, and only appliedAnnotation is missing
				changed = append(changed, as)
			}
			if len(lines) > 0 {
				words[m.Node] = lines
			}
		}
		if err != nil || dry || len(changed) == 0 {
			return err
		}
		list, err := json.Marshal(Object{"apiVersion": "v1", "kind": "List", "items": changed})
		if err == nil {
			_, err = e.Kubectl(ctx, string(list), "replace", "-f", "-")
		}
		return err
	})
	switch {
	case errors.Is(err, ErrNoControlPlane):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("labels and taints: %w", err)
	}
	return words, nil
}

// reconcileNode returns the differences between a node and the hive in words, and the desired Node object.
// The object is nil if the node needs no update.
func reconcileNode(n gjson.Result, m engine.Member) ([]string, Object, error) {
	var want Desired
	if err := m.ReadSettings(&want); err != nil {
		return nil, nil, err
	}
	if m.Role == ControlPlane {
		want.DefaultTaints = []Taint{controlPlaneTaint}
	}
	var as Object
	var node struct {
		Metadata struct{ Labels, Annotations map[string]string }
		Spec     struct{ Taints []Taint }
	}
	if err := errors.Join(json.Unmarshal([]byte(n.Raw), &as), json.Unmarshal([]byte(n.Raw), &node)); err != nil {
		return nil, nil, err
	}
	var last Desired
	note, noted := node.Metadata.Annotations[appliedAnnotation]
	if noted {
		// Another client may have overwritten the annotation with an invalid value. Then no label or taint counts as applied by nixbench.
		_ = json.Unmarshal([]byte(note), &last)
	}
	if node.Metadata.Labels == nil {
		node.Metadata.Labels = map[string]string{}
	}
	words := reconcileLabels(node.Metadata.Labels, want.Labels, last.Labels)
	taints, more := reconcileTaints(node.Spec.Taints, want, last.Taints)
	words = append(words, more...)

	desired, err := json.Marshal(want)
	none := len(want.Labels) == 0 && want.Taints == nil
	if err != nil || len(words) == 0 && (none && !noted || string(desired) == note) {
		return nil, nil, err
	}
	if node.Metadata.Annotations == nil {
		node.Metadata.Annotations = map[string]string{}
	}
	node.Metadata.Annotations[appliedAnnotation] = string(desired)
	if none {
		delete(node.Metadata.Annotations, appliedAnnotation)
	}
	metadata, spec := childObject(as, "metadata"), childObject(as, "spec")
	metadata["labels"], metadata["annotations"] = node.Metadata.Labels, node.Metadata.Annotations
	delete(spec, "taints")
	if len(taints) > 0 {
		spec["taints"] = taints
	}
	delete(as, "status") // large, and kubectl replace does not need it
	return words, as, nil
}

func childObject(of Object, name string) Object {
	p, ok := of[name].(Object)
	if !ok {
		p = Object{}
		of[name] = p
	}
	return p
}

// reconcileLabels changes the labels of a node to the desired ones, and returns the changes in words. It deletes a label only if
// nixbench has set the label in an earlier run (last), and the hive does not have the label any more.
func reconcileLabels(labels, want, last map[string]string) []string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if value, has := labels[key]; !has || value != want[key] {
			words = append(words, "label "+key+"="+want[key])
			labels[key] = want[key]
		}
	}
	for _, key := range slices.Sorted(maps.Keys(last)) {
		_, stays := want[key]
		if _, has := labels[key]; has && !stays {
			words = append(words, "no label "+key)
			delete(labels, key)
		}
	}
	return words
}

// reconcileTaints returns the taints that a node must have, including those of other programs, and the changes in words.
func reconcileTaints(are []Taint, desired Desired, last []Taint) ([]Taint, []string) {
	want, ours := desired.Taints, slices.Clone(last)
	switch {
	case want == nil && last == nil:
		return are, nil
	case want == nil:
		want = desired.DefaultTaints
	default:
		ours = append(ours, desired.DefaultTaints...)
	}
	var words []string
	var stay, plain []Taint // plain: stay without the times
	for _, t := range are {
		is := t
		is.TimeAdded = ""
		switch {
		case !slices.Contains(want, is) && slices.ContainsFunc(want, is.hasSameKeyAndEffect): // replaced below by the taint with the new value
		case !slices.Contains(want, is) && slices.ContainsFunc(ours, is.hasSameKeyAndEffect):
			words = append(words, "no taint "+is.String())
		default:
			stay, plain = append(stay, t), append(plain, is)
		}
	}
	for _, t := range want {
		if !slices.Contains(plain, t) {
			words = append(words, "taint "+t.String())
			stay, plain = append(stay, t), append(plain, t)
		}
	}
	return stay, words
}
