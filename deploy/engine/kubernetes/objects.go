package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nixbench/nixbench/deploy/check"
)

// objectCheck is one of the checks that the option nixbench.kubernetes.checks adds.
type objectCheck struct {
	Resource  string `json:"resource"`  // kind and name, such as deployment.apps/gang
	Namespace string `json:"namespace"` // empty for kinds without namespaces
	Condition string `json:"condition"` // the condition that must be true; if it is empty, the object must exist
}

// String returns what the check requires, such as "deployment.apps/gang is Available".
func (c objectCheck) String() string {
	if c.Condition == "" {
		return c.Resource + " exists"
	}
	return c.Resource + " is " + c.Condition
}

// objectConditions returns a condition for each of the checks that the hive adds, by name.
func (e *Engine) objectConditions() []check.Condition {
	s, err := e.clusterSettings()
	if err != nil {
		return nil // every probe of the other conditions returns this error
	}
	var conditions []check.Condition
	for _, name := range slices.Sorted(maps.Keys(s.Checks)) {
		c := s.Checks[name]
		conditions = append(conditions, check.Condition{
			Name:  c.String(),
			Probe: func(ctx context.Context) error { return e.checkObject(ctx, c) },
		})
	}
	return conditions
}

// checkObject returns nil if the object exists and has the condition.
func (e *Engine) checkObject(ctx context.Context, c objectCheck) error {
	args := []string{"get", c.Resource, "-o", "json"}
	if c.Namespace != "" {
		args = append(args, "-n", c.Namespace)
	}
	out, err := e.runKubectl(ctx, "", args...)
	if isNotFoundError(err) {
		return errors.New("it does not exist")
	}
	if err != nil {
		return keepLastLine(err)
	}
	if c.Condition == "" {
		return nil
	}
	return checkObjectCondition(out, c.Condition)
}

// checkObjectCondition returns nil if the condition is true in the status of an object, given as JSON, and the status is of
// the latest generation of the object.
func checkObjectCondition(object []byte, condition string) error {
	o, err := parseJSON(object)
	if err != nil {
		return fmt.Errorf("kubectl get %w", err)
	}
	if seen := o.Get("status.observedGeneration"); seen.Exists() && seen.Int() < o.Get("metadata.generation").Int() {
		return errors.New("its latest change is not in its status yet")
	}
	for _, c := range o.Get("status.conditions").Array() {
		if c.Get("type").String() != condition {
			continue
		}
		if c.Get("status").String() == "True" {
			return nil
		}
		if text := c.Get("message").String(); text != "" {
			return fmt.Errorf("%s is %s: %s", condition, c.Get("status").String(), firstLine(text))
		}
		return fmt.Errorf("%s is %s", condition, c.Get("status").String())
	}
	return fmt.Errorf("its status has no condition %s", condition)
}
