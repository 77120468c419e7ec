package main

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

// maxClusterName limits the name that a folder gives. It is a part of the names of machines and of a network.
const maxClusterName = 32

var notInClusterName = regexp.MustCompile(`[^a-z0-9]+`)

// clusterNameOf returns the name of a new cluster in a folder: the folder's name in lower case, with a hyphen for other
// characters than letters and digits.
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

// networkRangeOf returns the address range of a new cluster. It depends on the cluster's name, so that clusters with different
// names can be on one hypervisor: it is one of 28,672 ranges from 10.128.0.0/24 to 10.239.255.0/24. None of them overlaps with
// the ranges of Kubernetes' pods and services in the templates.
func networkRangeOf(cluster string) string {
	sum := sha256.Sum256([]byte(cluster))
	return fmt.Sprintf("10.%d.%d.0/24", 128+int(sum[0])%112, sum[1])
}

var (
	nameLine    = regexp.MustCompile(`(?m)^(  meta\.name = )"[^"]*"`)
	networkLine = regexp.MustCompile(`(?m)^(  cluster\.network\.name = )"[^"]*"`)
	rangeLine   = regexp.MustCompile(`(?m)^(  cluster\.network\.cidr = )"[^"]*"`)
)

// nameCluster returns the hive.nix of a template with the name of the cluster, its network and its address range, as
// far as the template has them.
func nameCluster(hive []byte, cluster string) []byte {
	hive = nameLine.ReplaceAll(hive, fmt.Appendf(nil, `${1}"%s"`, cluster))
	hive = networkLine.ReplaceAll(hive, fmt.Appendf(nil, `${1}"%s"`, cluster))
	return rangeLine.ReplaceAll(hive, fmt.Appendf(nil, `${1}"%s"`, networkRangeOf(cluster)))
}
