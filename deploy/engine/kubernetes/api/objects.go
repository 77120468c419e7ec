package api

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/nixbench/nixbench/deploy/engine"
)

type ObjectCheck struct {
	Resource  string `json:"resource"`  // kind and name, such as deployment.apps/gang
	Namespace string `json:"namespace"` // empty for kinds without namespaces
	Condition string `json:"condition"` // the condition that must be true; if it is empty, the object must exist
}

// String returns what the check requires, such as "deployment.apps/gang is Available".
func (o ObjectCheck) String() string {
	if o.Condition == "" {
		return o.Resource + " exists"
	}
	return o.Resource + " is " + o.Condition
}

func (c *Client) CheckObject(ctx context.Context, o ObjectCheck) error {
	args := []string{"get", o.Resource}
	if o.Namespace != "" {
		args = append(args, "-n", o.Namespace)
	}
	object, err := c.Get(ctx, args...)
	switch {
	case err != nil && strings.Contains(err.Error(), "(NotFound)"):
		return errors.New("it does not exist")
	case err != nil:
		return engine.LastLine(err)
	case o.Condition == "":
		return nil
	}
	return checkCondition(object, o.Condition)
}

// checkCondition returns nil if the condition is true in the status of an object, and the status is of
// the latest generation of the object.
func checkCondition(o gjson.Result, condition string) error {
	if seen := o.Get("status.observedGeneration"); seen.Exists() && seen.Int() < o.Get("metadata.generation").Int() {
		return errors.New("its latest change is not in its status yet")
	}
	for _, c := range o.Get("status.conditions").Array() {
		status := c.Get("status").String()
		switch text, _, _ := strings.Cut(strings.TrimSpace(c.Get("message").String()), "\n"); {
		case c.Get("type").String() != condition:
		case status == "True":
			return nil
		case text != "":
			return fmt.Errorf("%s is %s: %s", condition, status, text)
		default:
			return fmt.Errorf("%s is %s", condition, status)
		}
	}
	return fmt.Errorf("its status has no condition %s", condition)
}
