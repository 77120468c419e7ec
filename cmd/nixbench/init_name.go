package main

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

// maxClusterName is the maximum length of a cluster name that init takes from the name of a folder. The names of machines and of a
// network contain it.
const maxClusterName = 32

var notInClusterName = regexp.MustCompile(`[^a-z0-9]+`)

// clusterNameOf returns the name for a new cluster in a folder. It is the name of the folder in lower case, with hyphens in place
// of characters that are neither letters nor digits.
func clusterNameOf(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	name := notInClusterName.ReplaceAllString(strings.ToLower(filepath.Base(abs)), "-")
	name = strings.Trim(name[:min(len(name), maxClusterName)], "-")
	if name == "" { // the folder is /, or its name has no letter and no digit
		return "cluster", nil
	}
	return name, nil
}

// networkRangeOf returns the address range for a new cluster. The name of the cluster determines the range, so that clusters with
// different names can be on one hypervisor. It is one of 28,672 ranges from 10.128.0.0/24 to 10.239.255.0/24. None of these
// overlaps with the ranges of Kubernetes' pods and services in the templates.
func networkRangeOf(cluster string) string {
	sum := sha256.Sum256([]byte(cluster))
	return fmt.Sprintf("10.%d.%d.0/24", 128+int(sum[0])%112, sum[1])
}

var (
	nameLine    = regexp.MustCompile(`(?m)^(  meta\.name = )"[^"]*"`)
	networkLine = regexp.MustCompile(`(?m)^(  cluster\.network\.name = )"[^"]*"`)
	rangeLine   = regexp.MustCompile(`(?m)^(  cluster\.network\.cidr = )"[^"]*"`)
)

// nameCluster returns the hive.nix of a template with the name of the cluster, and with its network and address range if the
// template has a network.
func nameCluster(hive []byte, cluster string) []byte {
	hive = nameLine.ReplaceAll(hive, fmt.Appendf(nil, `${1}"%s"`, cluster))
	hive = networkLine.ReplaceAll(hive, fmt.Appendf(nil, `${1}"%s"`, cluster))
	return rangeLine.ReplaceAll(hive, fmt.Appendf(nil, `${1}"%s"`, networkRangeOf(cluster)))
}
