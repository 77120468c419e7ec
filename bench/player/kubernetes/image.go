package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nixbench/nixbench/bench/player"
	"github.com/nixbench/nixbench/deploy/engine"
	kubernetesengine "github.com/nixbench/nixbench/deploy/engine/kubernetes"
)

const (
	pullTimeout = 100 * time.Second // less than a player may take before a workload
	imageLabel  = "nixbench.bench/image"
	// imageFields prints a line for each pod that pulls the image: its node, the digest of the image, and why it waits.
	imageFields = `jsonpath={range .items[*]}{.spec.nodeName}|{.status.containerStatuses[0].imageID}|{.status.containerStatuses[0].state.waiting.message}{"\n"}{end}`
)

// pullImage makes all workers pull the image before the workload, so that no pull is measured. A pod with the image on each worker does so;
// it bypasses the scheduler, and need not run. pullImage stores the digest of the image, and returns an error if it is not the same on all
// workers.
func (p *Player) pullImage(ctx context.Context) error {
	nodes := p.Cluster.NodesOf(kubernetesengine.Worker)
	if p.objects.hollow || len(nodes) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, pullTimeout, fmt.Errorf("it was not pulled within %v", pullTimeout))
	defer cancel()
	var pods []object
	for _, node := range nodes {
		pods = append(pods, object{"apiVersion": "v1", "kind": "Pod",
			"metadata": object{"name": "image-" + node, "namespace": namespace, "labels": object{imageLabel: "1"}},
			"spec": object{"nodeName": node, "restartPolicy": "Never", "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
				"tolerations": []object{{"operator": "Exists"}}, "containers": []object{{"name": "image", "image": p.objects.Image, "imagePullPolicy": "IfNotPresent",
					"command": []string{"/nixbench-none"}}}}})
	}
	var digests, missing []string
	list, err := json.Marshal(object{"apiVersion": "v1", "kind": "List", "items": pods})
	if err == nil {
		err = p.ensure(ctx, list, "--validate=false", "--filename=-")
	}
	if err == nil {
		err = player.Poll(ctx, engine.PollInterval, func() (bool, error) {
			out, err := p.runAdmin(ctx, nil, "get", "pods", "--namespace="+namespace, "--selector="+imageLabel+"=1", "--output="+imageFields)
			digests, missing = nil, nil
			for line := range strings.Lines(string(out)) {
				f := strings.SplitN(strings.TrimSpace(line), "|", 3)
				if len(f) == 3 && f[1] != "" {
					digests = append(digests, f[1])
				} else {
					missing = append(missing, strings.Join(f, " "))
				}
			}
			return len(digests) >= len(nodes), err
		})
	}
	if err != nil {
		return fmt.Errorf("kubernetes: pull the image %s: %w%s", p.objects.Image, err, strings.TrimSuffix(": "+strings.Join(missing, "; "), ": "))
	}
	slices.Sort(digests)
	if digests = slices.Compact(digests); len(digests) > 1 {
		return fmt.Errorf("kubernetes: the image %s is not the same on all workers: %s", p.objects.Image, strings.Join(digests, ", "))
	}
	p.Image = digests[0]
	_, err = p.runAdmin(ctx, nil, "delete", "pods", "--namespace="+namespace, "--selector="+imageLabel+"=1", "--wait=true")
	return err
}
