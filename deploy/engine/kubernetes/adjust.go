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

	"github.com/nixbench/nixbench/deploy/failure"
)

// appliedAnnotation contains the labels and taints that nixbench applied last. nixbench removes only
// those of them that the hive no longer contains, and keeps labels and taints of other programs.
const appliedAnnotation = "nixbench.dev/applied"

const adjustTimeout = time.Minute

// labelsAndTaints are the desired labels and taints of a Node object.
type labelsAndTaints struct {
	Labels map[string]string `json:"labels,omitempty"`
	Taints []taint           `json:"taints"` // null: the taints that kubeadm sets
}

type taint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect"`
}

// hasSameKeyAndEffect reports whether two taints are the same taint, perhaps with another value.
func (t taint) hasSameKeyAndEffect(o taint) bool { return t.Key == o.Key && t.Effect == o.Effect }

func (t taint) String() string {
	if t.Value == "" {
		return t.Key + ":" + t.Effect
	}
	return t.Key + "=" + t.Value + ":" + t.Effect
}

// controlPlaneTaint is the taint that kubeadm sets on a control plane.
var controlPlaneTaint = taint{Key: "node-role.kubernetes.io/control-plane", Effect: "NoSchedule"}

// Adjust implements [engine.Adjuster]. It reconciles labels and taints. It writes all nodes that differ
// with one command, and retries if another client has changed a node since it was read.
func (e *Engine) Adjust(ctx context.Context, names []string, dry bool) (map[string][]string, error) {
	ctx, cancel := context.WithTimeout(ctx, adjustTimeout)
	defer cancel()
	for {
		words, changed, err := e.findDifferences(ctx, names)
		switch {
		case errors.Is(err, errNoControlPlane):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("labels and taints: %w", err)
		case dry || len(changed) == 0:
			return words, nil
		}
		list, err := json.Marshal(object{"apiVersion": "v1", "kind": "List", "items": changed})
		if err != nil {
			return nil, err
		}
		_, err = e.runKubectl(ctx, string(list), "replace", "-f", "-")
		if err == nil {
			return words, nil
		}
		if !strings.Contains(err.Error(), "(Conflict)") {
			return nil, fmt.Errorf("labels and taints: %w", err)
		}
		if !sleep(ctx, pollInterval) {
			return nil, fmt.Errorf("labels and taints: other clients keep changing the Node objects: %w", err)
		}
	}
}

// findDifferences returns the desired Node objects of the nodes that differ, and the differences in
// words, by node. A node for which only appliedAnnotation is missing is in the objects and not in the
// words. A node that registered with its labels is in that state.
func (e *Engine) findDifferences(ctx context.Context, names []string) (map[string][]string, []object, error) {
	nodes, err := e.listNodes(ctx)
	if err != nil {
		return nil, nil, err
	}
	all := map[string][]string{}
	var changed []object
	for _, m := range e.Cluster.Members {
		n, registered := nodes[m.Node]
		if !registered || !slices.Contains(names, m.Node) {
			continue
		}
		var want labelsAndTaints
		if err := decodeSettings(m, &want); err != nil {
			return nil, nil, err
		}
		words, as, err := reconcileNode(n, want, m.Role == ControlPlane)
		if err != nil {
			return nil, nil, failure.On(m.Node, err)
		}
		if as != nil {
			changed = append(changed, as)
		}
		if len(words) > 0 {
			all[m.Node] = words
		}
	}
	return all, changed, nil
}

// reconcileNode returns the differences of a node in words and the desired Node object, or a nil object
// if there is nothing to write.
func reconcileNode(n gjson.Result, want labelsAndTaints, controlPlane bool) ([]string, object, error) {
	var node struct {
		Metadata struct{ Labels, Annotations map[string]string }
		Spec     struct{ Taints []map[string]any } // maps, because taints of other programs may have more fields
	}
	if err := json.Unmarshal([]byte(n.Raw), &node); err != nil {
		return nil, nil, err
	}
	var last labelsAndTaints
	note, noted := node.Metadata.Annotations[appliedAnnotation]
	if noted {
		// If another client has written something else there, no label or taint counts as ours.
		_ = json.Unmarshal([]byte(note), &last)
	}
	words := reconcileLabels(&node.Metadata.Labels, want.Labels, last.Labels)
	taints, more := reconcileTaints(node.Spec.Taints, want.Taints, last.Taints, controlPlane)
	words = append(words, more...)

	desired, err := json.Marshal(want)
	if err != nil {
		return nil, nil, err
	}
	none := len(want.Labels) == 0 && want.Taints == nil
	if len(words) == 0 && (none && !noted || string(desired) == note) {
		return nil, nil, nil
	}
	var as object
	if err := json.Unmarshal([]byte(n.Raw), &as); err != nil {
		return nil, nil, err
	}
	if node.Metadata.Annotations == nil {
		node.Metadata.Annotations = map[string]string{}
	}
	if none {
		delete(node.Metadata.Annotations, appliedAnnotation)
	} else {
		node.Metadata.Annotations[appliedAnnotation] = string(desired)
	}
	metadata, spec := childObject(as, "metadata"), childObject(as, "spec")
	metadata["labels"], metadata["annotations"] = node.Metadata.Labels, node.Metadata.Annotations
	delete(spec, "taints")
	if len(taints) > 0 {
		spec["taints"] = taints
	}
	delete(as, "status") // nixbench does not change it, and it is large
	return words, as, nil
}

func childObject(of object, name string) object {
	if p, ok := of[name].(object); ok {
		return p
	}
	p := object{}
	of[name] = p
	return p
}

// reconcileLabels sets the desired labels, deletes the last applied ones that are no longer desired, and
// returns the changes in words.
func reconcileLabels(are *map[string]string, want, last map[string]string) []string {
	var words []string
	if *are == nil {
		*are = map[string]string{}
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if value, has := (*are)[key]; !has || value != want[key] {
			words = append(words, "label "+key+"="+want[key])
			(*are)[key] = want[key]
		}
	}
	for _, key := range slices.Sorted(maps.Keys(last)) {
		if _, stays := want[key]; stays {
			continue
		}
		if _, has := (*are)[key]; has {
			words = append(words, "no label "+key)
			delete(*are, key)
		}
	}
	return words
}

// reconcileTaints returns the reconciled taints and the changes in words. If the hive has a list of taints
// for a control plane, the taint of kubeadm is removed unless the list contains it. If the hive has no
// list any more, the taint of kubeadm is restored.
func reconcileTaints(are []map[string]any, want, last []taint, controlPlane bool) ([]map[string]any, []string) {
	ours := slices.Clone(last)
	switch {
	case want == nil && last == nil:
		return are, nil
	case want != nil && controlPlane:
		ours = append(ours, controlPlaneTaint)
	case controlPlane:
		want = []taint{controlPlaneTaint}
	}
	var words []string
	var stay []map[string]any
	for _, raw := range are {
		is := parseTaint(raw)
		switch {
		case slices.Contains(want, is):
			stay = append(stay, raw)
		case slices.ContainsFunc(want, is.hasSameKeyAndEffect): // with another value
		case slices.ContainsFunc(ours, is.hasSameKeyAndEffect):
			words = append(words, "no taint "+is.String())
		default:
			stay = append(stay, raw)
		}
	}
	for _, t := range want {
		if slices.ContainsFunc(stay, func(raw map[string]any) bool { return parseTaint(raw) == t }) {
			continue
		}
		words = append(words, "taint "+t.String())
		stay = append(stay, map[string]any{"key": t.Key, "value": t.Value, "effect": t.Effect})
	}
	return stay, words
}

func parseTaint(raw map[string]any) taint {
	text := func(name string) string {
		s, _ := raw[name].(string)
		return s
	}
	return taint{Key: text("key"), Value: text("value"), Effect: text("effect")}
}
